//! Files that describe the host rather than a group: `/proc/swaps`, `/proc/diskstats`,
//! `/proc/self/mountinfo`, `queue/scheduler`, `lru_gen/enabled`, and the root's `io.cost.qos` and
//! `cgroup.stat`.
//!
//! Units: bytes.

use justitia_policy::cost::DiskCounters;

use super::mountinfo::unescape;
use super::{disk, flat, io, lines, number, words};
use crate::Device;

/// One line of `/proc/swaps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// The device or file.
    pub name: String,
    /// Its size, bytes.
    pub size: u64,
    /// Space in use, bytes.
    pub used: u64,
}

impl Swap {
    /// Compressed memory rather than a disk.
    pub fn is_zram(&self) -> bool {
        let name = self.name.rsplit('/').next().unwrap_or_default();
        name.starts_with("zram")
    }
}

/// Parses `/proc/swaps`: a head line, then name, type, size and use in KiB, priority.
pub fn swaps(text: &[u8]) -> Vec<Swap> {
    let swap = |line| {
        let mut words = words(line);
        let name = unescape(words.next()?);
        let size = number(words.nth(1)?)?;
        let used = number(words.next()?)?;
        Some(Swap {
            name,
            size: size.checked_mul(1024)?,
            used: used.checked_mul(1024)?,
        })
    };
    lines(text).filter_map(swap).collect()
}

/// Parses `/proc/diskstats`: major, minor, name, then the disk's `stat`. A line that is too short is left out.
pub fn diskstats(text: &[u8]) -> Vec<(Device, DiskCounters)> {
    let counters = |line| {
        let mut fields = words(line);
        let mut next = || fields.next().and_then(number);
        let device = Device {
            major: u32::try_from(next()?).ok()?,
            minor: u32::try_from(next()?).ok()?,
        };
        Some((device, disk::counters(fields.skip(1))?))
    };
    lines(text).filter_map(counters).collect()
}

/// A disk's `queue/scheduler`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scheduler {
    /// The one in brackets.
    pub active: String,
    /// All that can be selected now, the active one too.
    pub offered: Vec<String>,
}

/// Parses `none [bfq] mq-deadline`; a disk without queue says `none`.
pub fn scheduler(text: &[u8]) -> Option<Scheduler> {
    let mut scheduler = Scheduler::default();
    for word in words(text) {
        let inner = word.strip_prefix(b"[").and_then(|w| w.strip_suffix(b"]"));
        let name = String::from_utf8_lossy(inner.unwrap_or(word)).into_owned();
        if inner.is_some() {
            scheduler.active.clone_from(&name);
        }
        scheduler.offered.push(name);
    }
    if scheduler.active.is_empty() {
        let [only] = &scheduler.offered[..] else {
            return None;
        };
        scheduler.active.clone_from(only);
    }
    Some(scheduler)
}

/// Parses `lru_gen/enabled`: hexadecimal bits, `0x0007`.
pub fn lru_gen(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii().strip_prefix(b"0x")?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Devices on which `io.cost.qos` is enabled.
pub fn io_cost(text: &[u8]) -> Vec<Device> {
    let enabled = |line| {
        let mut words = words(line);
        let device = io::device(words.next()?)?;
        words.any(|word| word == b"enable=1").then_some(device)
    };
    lines(text).filter_map(enabled).collect()
}

keyed_file! {
    /// Counts of `cgroup.stat`.
    pub struct Descendants of u64, by descendants from flat;
    /// Cgroups below that live.
    living = b"nr_descendants",
    /// Removed cgroups below that still exist, because something holds them.
    dying = b"nr_dying_descendants",
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDA: Device = Device { major: 8, minor: 0 };

    #[test]
    fn swaps_are_bytes_and_zram_is_told_from_a_disk() {
        let text = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
/dev/zram0                              partition\t1024\t\t12\t\t100\n\
/dev/sda2                               partition\t2048\t\t0\t\t-2\n";
        let swaps = swaps(text);
        assert_eq!((swaps[0].size, swaps[0].used), (1 << 20, 12 << 10));
        assert!(swaps[0].is_zram() && !swaps[1].is_zram());
        assert_eq!(swaps.len(), 2, "the head is no swap");
    }

    #[test]
    fn written_bytes_and_busy_time_come_from_their_own_columns() {
        let text = b"   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n 8 1 sda1 1 2\n";
        let [(device, counters)] = diskstats(text)[..] else {
            panic!("not one disk");
        };
        assert_eq!(device, SDA);
        assert_eq!((counters.write_bytes, counters.busy_ms), (7 * 512, 10));
    }

    #[test]
    fn the_active_scheduler_is_the_one_in_brackets_or_the_only_one() {
        let several = scheduler(b"none [bfq] mq-deadline\n").unwrap();
        assert_eq!(several.active, "bfq");
        assert_eq!(several.offered, ["none", "bfq", "mq-deadline"]);
        assert_eq!(scheduler(b"none\n").unwrap().active, "none");
        assert_eq!(scheduler(b"none bfq\n"), None);
        assert_eq!(scheduler(b""), None);
    }

    #[test]
    fn bits_of_the_multi_generational_lru_are_hexadecimal() {
        assert_eq!(lru_gen(b"0x0007\n"), Some(7));
        assert_eq!(lru_gen(b"0x0000\n"), Some(0));
        assert_eq!(lru_gen(b"7\n"), None);
    }

    #[test]
    fn only_devices_with_io_cost_enabled_are_listed() {
        let text = b"8:0 enable=1 ctrl=auto rpct=0.00\n8:16 enable=0 ctrl=user\n";
        assert_eq!(io_cost(text), [SDA]);
    }

    #[test]
    fn the_living_and_the_dying_are_told_apart() {
        let counts = descendants(b"nr_descendants 5\nnr_subsys_memory 5\nnr_dying_descendants 7\n");
        assert_eq!((counts.living, counts.dying), (Some(5), Some(7)));
        assert_eq!(descendants(b"").dying, None);
    }
}
