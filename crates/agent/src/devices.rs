//! The disks that a group uses, by the bytes that they carry for it (`io.stat`).
//!
//! The policy orders groups only against groups that share a disk. A disk that a group barely uses must not join it to
//! others, and a pause or a burst must not change its disks.

use justitia_cgroup::{Buffer, CgroupFs, Device, Group};
use justitia_policy::snapshot;

/// One look at a group's devices adds at most this many bytes, so that a burst or a long past counts no more than a look.
const LOOKED: f64 = (1 << 20) as f64;
/// The bytes of earlier looks count this part at each look.
const FADES: f64 = 0.5;
/// A group uses a disk once that carries the first part of its bytes, until it carries less than the second. Code and
/// logs of a container often lie on another disk than its data.
const USED: (f64, f64) = (1.0 / 16.0, 1.0 / 64.0);
/// The first disk of a group carries at least the first part of the bytes of the one that carries most, and stays the
/// first until it carries less than the second. Of several, the one with the lowest number is first, so that groups on
/// one array of disks have the same first disk.
const FIRST: (f64, f64) = (1.0 / 2.0, 1.0 / 4.0);
/// If stacked devices carry more than this times the bytes that disks carry for a group, some bytes reach their disk in
/// nobody's name: the kernel writes through dm-crypt and RAID 5 in a thread of its own.
const LOST: f64 = 1.5;
/// Stands for the disk of a group that moves nothing to or from block devices.
const NO_DEVICE: u64 = 0;

/// A block device, and the bytes that it carried for a group.
#[derive(Debug)]
struct Carried {
    device: Device,
    stacked: bool,
    /// Bytes in all.
    bytes: u64,
    /// Bytes of late, of which each look adds at most [`LOOKED`].
    lately: f64,
}

/// The block devices of one group.
#[derive(Debug, Default)]
pub(crate) struct Devices(Vec<Carried>);

impl Devices {
    /// Looks at a group's `io.stat`, and notes in `seen` the disks that the group uses. Without the io controller they
    /// stay as they are.
    pub(crate) fn look(
        &mut self,
        group: &Group,
        fs: &dyn CgroupFs,
        seen: &mut snapshot::Group,
        buffer: &mut Buffer,
    ) {
        let carried = &mut self.0;
        let mut moved: Vec<(usize, f64)> = Vec::new();
        let there = group.io_bytes(buffer, |device, now| {
            let bytes = now
                .read
                .unwrap_or(0)
                .saturating_add(now.written.unwrap_or(0));
            let known = carried.iter().position(|seen| seen.device == device);
            let at = known.unwrap_or_else(|| {
                carried.push(Carried {
                    device,
                    stacked: fs.stacked(device),
                    bytes: 0,
                    lately: 0.0,
                });
                carried.len() - 1
            });
            let before = std::mem::replace(&mut carried[at].bytes, bytes);
            moved.push((at, bytes.saturating_sub(before) as f64));
        });
        if !there.unwrap_or(false) {
            return;
        }
        let all: f64 = moved.iter().map(|(_, bytes)| bytes).sum();
        for disk in carried.iter_mut() {
            disk.lately *= FADES;
        }
        for (at, bytes) in moved {
            carried[at].lately += bytes * (LOOKED / all.max(LOOKED));
        }
        let sum = |stacked: bool| -> f64 {
            let of = carried.iter().filter(|seen| seen.stacked == stacked);
            of.map(|seen| seen.lately).sum()
        };
        let (disks, above) = (sum(false), sum(true));
        if disks + above < 1.0 {
            // It may have paused: the disks that it used before stay.
            if seen.devices.is_empty() {
                seen.devices.push(NO_DEVICE);
            }
            return;
        }
        let before = std::mem::take(&mut seen.devices);
        seen.device_parts.clear();
        if above > LOST * disks {
            // Its disks are not known.
            return;
        }
        let is_used = |disk: &&Carried| {
            let known = before.contains(&number(disk.device));
            let part = if known { USED.1 } else { USED.0 };
            !disk.stacked && disk.lately >= disks * part
        };
        let mut used: Vec<&Carried> = carried.iter().filter(is_used).collect();
        let most = used.iter().map(|disk| disk.lately).fold(0.0, f64::max);
        let may_be_first = |disk: &&Carried| {
            let was = before.first() == Some(&number(disk.device));
            disk.lately >= most * if was { FIRST.1 } else { FIRST.0 }
        };
        used.sort_by_key(|disk| (!may_be_first(disk), number(disk.device)));
        let numbers = used.iter().map(|disk| number(disk.device));
        seen.devices.extend(numbers);
        if used.len() > 1 {
            let parts = used.iter().map(|disk| disk.lately / disks);
            seen.device_parts.extend(parts);
        }
    }
}

/// A device's number, as the kernel packs it (`include/linux/kdev_t.h`).
fn number(device: Device) -> u64 {
    u64::from(device.major) << 20 | u64::from(device.minor)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use justitia_cgroup::fake::Fault;
    use justitia_cgroup::FakeFs;

    use super::*;

    fn managed() -> (Arc<FakeFs>, Group) {
        let fake = FakeFs::new();
        fake.mkdir("/a");
        let group = fake.open("/a").unwrap();
        (fake, group)
    }

    const CODE: Device = Device { major: 8, minor: 0 };
    const DATA: Device = Device {
        major: 8,
        minor: 16,
    };

    /// The devices that a group uses after it has moved these bytes in all, one look after the other.
    fn devices(stacked: Option<Device>, moved: &[(u64, u64)]) -> Vec<Vec<u64>> {
        let (fake, group) = managed();
        let (mut devices, mut seen) = (Devices::default(), snapshot::Group::new(group.id(), "/a"));
        if let Some(device) = stacked {
            fake.set_stacked(device);
        }
        let mut buffer = Buffer::new();
        let mut look = |&(code, data): &(u64, u64)| {
            let io = [(CODE, (code, 0)), (DATA, (0, data))];
            fake.update("/a", |group| group.io = io.into());
            devices.look(&group, &*fake, &mut seen, &mut buffer);
            let parts: f64 = seen.device_parts.iter().sum();
            assert!(
                seen.devices.len() < 2 || (parts - 1.0).abs() < 0.1,
                "{parts}"
            );
            seen.devices.clone()
        };
        moved.iter().map(&mut look).collect()
    }

    #[test]
    fn a_group_uses_the_devices_that_carry_much_of_what_it_moves_of_late() {
        let moved = [
            (0, 0),
            (40, 0),
            (40, 500),
            (41, 900),
            (41, 900),
            (300, 990),
            (310, 4000),
        ];
        let seen = devices(None, &moved.map(|(code, data)| (code << 20, data << 20)));
        let [code, data] = [CODE, DATA].map(|device| vec![number(device)]);
        let both = [code.clone(), data.clone()].concat();
        assert_eq!(seen[0], [NO_DEVICE]);
        assert_eq!(seen[1], code, "it loads its code");
        assert_eq!(seen[2], both);
        assert_eq!(seen[4], seen[3], "a pause changes nothing");
        assert_eq!(seen[5], both, "it reads from both");
        let work: Vec<(u64, u64)> = (1..10).map(|i| (40 << 20, i << 27)).collect();
        assert_eq!(devices(None, &work).last(), Some(&data));
    }

    #[test]
    fn a_disk_that_carries_little_joins_no_groups_and_leaves_them_late() {
        let moved = |part: u64| (1..12).map(move |i| ((i << 30) / part, i << 30));
        let data = vec![number(DATA)];
        let little: Vec<_> = moved(32).collect();
        assert_eq!(devices(None, &little).last(), Some(&data));
        let first = [(1 << 30, 0)];
        let after: Vec<_> = first
            .into_iter()
            .chain(moved(32).map(|(a, b)| (a + (1 << 30), b)))
            .collect();
        assert_eq!(devices(None, &after).last().map(Vec::len), Some(2));
    }

    #[test]
    fn a_disk_is_first_once_it_carries_much_more_and_of_equal_ones_the_lowest_number_is() {
        let [code, data] = [CODE, DATA].map(number);
        let mut moved = (0, 0);
        let mut rates = |code: u64, data: u64| -> Vec<(u64, u64)> {
            let looks = (0..9).map(|_| {
                moved = (moved.0 + (code << 20), moved.1 + (data << 20));
                moved
            });
            looks.collect()
        };
        let equal = [
            rates(10, 11),
            rates(3, 10),
            rates(2, 10),
            rates(4, 10),
            rates(6, 10),
        ];
        let seen = devices(None, &equal.concat());
        let first: Vec<u64> = seen.chunks(9).map(|looks| looks[8][0]).collect();
        assert_eq!(first, [code, code, data, data, code]);
    }

    #[test]
    fn one_burst_to_another_disk_is_soon_forgotten() {
        let burst = 100 << 30;
        let moved = (1..12).map(|i| (if i > 2 { burst } else { 0 }, i << 27));
        let seen = devices(None, &moved.collect::<Vec<_>>());
        assert_eq!(seen[2].len(), 2);
        assert_eq!(seen.last(), Some(&vec![number(DATA)]));
    }

    #[test]
    fn disks_below_a_device_whose_bytes_do_not_arrive_there_are_not_known() {
        let moved = [(1 << 20, 0), (1 << 20, 90 << 20)];
        assert!(devices(Some(DATA), &moved)[1].is_empty());
        // A mapped disk shows the same bytes above and below.
        let moved = [(1 << 20, 1 << 20), (90 << 20, 90 << 20)];
        assert_eq!(devices(Some(DATA), &moved)[1], [number(CODE)]);
    }

    #[test]
    fn without_the_io_controller_devices_are_not_known() {
        let (fake, group) = managed();
        let mut seen = snapshot::Group::new(group.id(), "/a");
        fake.inject("/a", "io.stat", Fault::Absent);
        Devices::default().look(&group, &*fake, &mut seen, &mut Buffer::new());
        assert!(seen.devices.is_empty());
    }
}
