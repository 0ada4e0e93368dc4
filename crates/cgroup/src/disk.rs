//! A disk's I/O counters, the rate at which io.cost serves it, and the io.cost model that udev knows.

use justitia_policy::cost::{CostModel, DiskCounters};

use crate::parse::disk;
use crate::{Buffer, Error, File, Group};

impl Group {
    /// I/O counters of this disk since boot.
    pub fn disk_counters(&self, buffer: &mut Buffer) -> Result<Option<DiskCounters>, Error> {
        self.parsed(File::DiskStat, buffer, disk::stat)
    }

    /// What io.cost says of this disk: its vrate relative to the model, in hundredths of a percent, and the microseconds
    /// that it has charged to groups, of the model's disk sped up by the vrate.
    pub fn cost_stat(&self, buffer: &mut Buffer) -> Result<(Option<u32>, Option<u64>), Error> {
        let both = |line: &[u8]| Some((disk::vrate(line), disk::charged_us(line)));
        Ok(self.parsed(File::IoStat, buffer, both)?.unwrap_or_default())
    }

    /// The model of this disk that udev knows (`iocost.conf(5)`).
    pub fn known_model(&self, buffer: &mut Buffer) -> Result<Option<CostModel>, Error> {
        self.parsed(File::Udev, buffer, disk::udev_model)
    }
}
