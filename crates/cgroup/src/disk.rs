//! A disk's I/O counters, the rate at which io.cost serves it, and the io.cost model that udev knows.

use justitia_policy::cost::{CostModel, DiskCounters};

use crate::parse::disk;
use crate::{Buffer, Error, File, Group};

impl Group {
    /// I/O counters of this disk since boot.
    pub fn disk_counters(&self, buffer: &mut Buffer) -> Result<Option<DiskCounters>, Error> {
        self.parsed(File::DiskStat, buffer, disk::stat)
    }

    /// The vrate of io.cost for this disk, relative to its model, in hundredths of a percent; and the disk's time
    /// that io.cost has granted, microseconds.
    pub fn cost(&self, buffer: &mut Buffer) -> Result<Option<(u32, Option<u64>)>, Error> {
        self.parsed(File::IoStat, buffer, disk::cost)
    }

    /// The model of this disk that udev knows (`iocost.conf(5)`). An error: udev does not know the disk yet.
    pub fn known_model(&self, buffer: &mut Buffer) -> Result<Option<CostModel>, Error> {
        self.read(File::Udev, buffer)?;
        Ok(disk::udev_model(buffer.bytes()))
    }
}
