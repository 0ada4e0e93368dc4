//! Bytes that reads had to fetch from a device: `rbytes` of `io.stat`.
//!
//! These bytes include misses and readahead, and also file-system metadata, direct reads and swap-ins. They
//! are an upper bound on the page cache's misses. The bytes of a stacked device (device mapper, RAID, loop)
//! appear again on the disks below it, so only disks count. A group that shows no disk at all counts its
//! largest stacked device.
//!
//! `io.stat` is hierarchical: what a group shows includes its descendants.

use std::collections::HashMap;

use justitia_cgroup::{Buffer, CgroupFs, Device, Error, Group};

/// The last values of a group's `io.stat`.
#[derive(Debug, Default)]
pub(crate) struct DeviceBytes {
    devices: Vec<(Device, u64)>,
    /// The file was read before. A device that appears after that counts from zero.
    begun: bool,
}

/// True for devices that are stacked; each is looked up once.
#[derive(Debug, Default)]
pub(crate) struct Stacks(HashMap<Device, bool>);

impl DeviceBytes {
    /// Bytes that the group's subtree read since the last call, 0 at the first. `None` without the io
    /// controller.
    pub(crate) fn advance(
        &mut self,
        group: &Group,
        fs: &dyn CgroupFs,
        stacks: &mut Stacks,
        buffer: &mut Buffer,
    ) -> Result<Option<u64>, Error> {
        let (mut disks, mut largest_stacked, mut any_disk) = (0u64, 0u64, false);
        let there = group.io_bytes(buffer, |device, bytes| {
            let Some(read) = bytes.read else { return };
            let delta = self.since_last(device, read);
            let stacked = *stacks.0.entry(device).or_insert_with(|| fs.stacked(device));
            if stacked {
                largest_stacked = largest_stacked.max(delta);
            } else {
                any_disk = true;
                disks = disks.saturating_add(delta);
            }
        })?;
        self.begun |= there;
        Ok(there.then_some(if any_disk { disks } else { largest_stacked }))
    }

    fn since_last(&mut self, device: Device, read: u64) -> u64 {
        if let Some((_, last)) = self.devices.iter_mut().find(|(known, _)| *known == device) {
            // A counter that fell means that the device was replaced.
            let delta = read.checked_sub(*last).unwrap_or(read);
            *last = read;
            return delta;
        }
        self.devices.push((device, read));
        if self.begun {
            read
        } else {
            0
        }
    }
}
