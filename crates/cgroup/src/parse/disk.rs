//! Files about one disk: `/sys/block/NAME/stat`, its line of the root's `io.stat`, its properties in udev's
//! database.

use justitia_policy::cost::{CostModel, DiskCounters};

use super::{number, words};

/// Bytes of a sector in `stat`, whatever the disk's own are.
const SECTOR: u64 = 512;

/// `/sys/block/NAME/stat`: reads, merged, sectors, ms; the same for writes; in flight, ms busy.
pub fn stat(text: &[u8]) -> Option<DiskCounters> {
    counters(words(text))
}

/// The same from its words.
pub(super) fn counters<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<DiskCounters> {
    let mut fields = [0; 10];
    for field in &mut fields {
        *field = number(words.next()?)?;
    }
    Some(DiskCounters {
        reads: fields[0],
        read_bytes: fields[2].checked_mul(SECTOR)?,
        writes: fields[4],
        write_bytes: fields[6].checked_mul(SECTOR)?,
        busy_ms: fields[9],
    })
}

/// `cost.vrate=97.50 cost.usage=1200` in a disk's line of the root's `io.stat`: hundredths of a percent, and
/// microseconds.
pub fn cost(line: &[u8]) -> Option<(u32, Option<u64>)> {
    let value = |name| words(line).find_map(|word| word.strip_prefix(name));
    let text = value(&b"cost.vrate="[..])?;
    let dot = text.iter().position(|&byte| byte == b'.')?;
    let [whole, part] = [&text[..dot], &text[dot + 1..]].map(number);
    let hundredths = whole?.checked_mul(100)?.checked_add(part?)?;
    let used_us = value(b"cost.usage=").and_then(number);
    Some((u32::try_from(hundredths).ok()?, used_us))
}

/// The model of the first solution that `IOCOST_SOLUTIONS` names.
pub fn udev_model(text: &[u8]) -> Option<CostModel> {
    let text = std::str::from_utf8(text).ok()?;
    let property = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| {
            line.strip_prefix("E:")?
                .strip_prefix(name)?
                .strip_prefix('=')
        })
    };
    let solution = property("IOCOST_SOLUTIONS")?.split_whitespace().next()?;
    let model = property(&format!("IOCOST_MODEL_{solution}"))?;
    CostModel::parse(&format!("ctrl=user {model}")).filter(CostModel::is_whole)
}

/// Whether a `dm/uuid` is of dm-crypt, which writes in one thread (`dmcrypt_write`, `drivers/md/dm-crypt.c`).
pub(crate) fn is_crypt(uuid: &[u8]) -> bool {
    uuid.starts_with(b"CRYPT-")
}

/// Whether a `dm/uuid` is of device-mapper multipath.
pub(crate) fn is_multipath(uuid: &[u8]) -> bool {
    uuid.starts_with(b"mpath-")
}

/// Whether an `md/level` has parity: `raid5d` writes (`drivers/md/raid5.c`).
pub(crate) fn is_parity_raid(level: &[u8]) -> bool {
    [&b"raid4"[..], b"raid5", b"raid6"].contains(&level.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_bytes_and_milliseconds() {
        let text = b"  120  3  1000  50  40  2  800  70  1  90  125  0 0 0 0 2 5\n";
        let counters = stat(text).unwrap();
        assert_eq!((counters.reads, counters.read_bytes), (120, 512_000));
        assert_eq!((counters.writes, counters.write_bytes), (40, 409_600));
        assert_eq!(counters.busy_ms, 90);
        assert_eq!(stat(b"1 2 3"), None);
    }

    #[test]
    fn the_rate_of_io_cost_is_in_hundredths() {
        let line = b"rbytes=1 wbytes=2 cost.vrate=97.05 cost.usage=3";
        assert_eq!(cost(line).map(|seen| seen.0), Some(9705));
        assert_eq!(cost(b"rbytes=1 wbytes=2"), None);
        assert_eq!(cost(b"cost.vrate=1.00 cost.usage=7"), Some((100, Some(7))));
    }

    #[test]
    fn the_model_is_that_of_the_first_solution() {
        let numbers = |n| format!("rbps={n} rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6");
        let text = format!(
            "S:disk/by-id/x\nE:IOCOST_SOLUTIONS=isolation naive\nE:IOCOST_MODEL_naive={}\n\
             E:IOCOST_MODEL_isolation={}\n",
            numbers(1),
            numbers(9)
        );
        assert_eq!(udev_model(text.as_bytes()).unwrap().rbps, 9);
        assert_eq!(udev_model(b"E:IOCOST_SOLUTIONS=naive\n"), None);
    }
}
