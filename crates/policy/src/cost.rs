//! Settings of io.cost for a disk, and the disk's counters.
//!
//! Texts are those of `io.cost.qos` and `io.cost.model` (`block/blk-iocost.c`), with commas instead of
//! blanks, so that a value is one word of the journal.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `io.cost.qos` of a disk: whether io.cost is on, and how far its speed may differ from the model's.
/// Percentages are in hundredths. With `user` unset the kernel chooses the numbers, and they are not part of
/// the value.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct CostQos {
    /// It is on.
    pub enable: bool,
    /// `ctrl=user`: these numbers hold.
    pub user: bool,
    /// Part of the reads that must meet `rlat_us`.
    pub rpct: u32,
    /// Time in the disk that a read may take beyond its cost, microseconds.
    pub rlat_us: u32,
    /// The same for writes.
    pub wpct: u32,
    /// The same for writes.
    pub wlat_us: u32,
    /// Lowest speed of the kernel, relative to the model.
    pub min: u32,
    /// Highest speed of the kernel, relative to the model.
    pub max: u32,
}

/// `io.cost.model` of a disk: what it delivers for each kind of request. With `user` unset the kernel guesses
/// the numbers, and they are not part of the value.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct CostModel {
    /// `ctrl=user`: these numbers hold.
    pub user: bool,
    /// Bytes read per second.
    pub rbps: u64,
    /// Sequential reads of 4 KiB per second.
    pub rseqiops: u64,
    /// Random reads of 4 KiB per second.
    pub rrandiops: u64,
    /// Bytes written per second.
    pub wbps: u64,
    /// Sequential writes of 4 KiB per second.
    pub wseqiops: u64,
    /// Random writes of 4 KiB per second.
    pub wrandiops: u64,
}

/// The `key=value` words of a text.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    words.filter_map(|word| word.split_once('='))
}

/// A percentage with up to two places, in hundredths.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let part = format!("{part:0<2}");
    if part.len() != 2 || whole.len() > 6 {
        return None;
    }
    Some(whole.parse::<u32>().ok()? * 100 + part.parse::<u32>().ok()?)
}

impl CostQos {
    /// Parses a line of the kernel, or a text of [`Display`](fmt::Display). `None`: a number is malformed.
    pub fn parse(text: &str) -> Option<CostQos> {
        let mut qos = CostQos::default();
        for (key, value) in words(text) {
            match key {
                "enable" => qos.enable = value == "1",
                "ctrl" => qos.user = value == "user",
                "rpct" => qos.rpct = hundredths(value)?,
                "rlat" => qos.rlat_us = value.parse().ok()?,
                "wpct" => qos.wpct = hundredths(value)?,
                "wlat" => qos.wlat_us = value.parse().ok()?,
                "min" => qos.min = hundredths(value)?,
                "max" => qos.max = hundredths(value)?,
                _ => {}
            }
        }
        let chosen = CostQos {
            enable: qos.enable,
            ..CostQos::default()
        };
        Some(if qos.user { qos } else { chosen })
    }
}

impl fmt::Display for CostQos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "enable={},ctrl=", u8::from(self.enable))?;
        if !self.user {
            return f.write_str("auto");
        }
        f.write_str("user")?;
        let percent = |value: u32| format!("{}.{:02}", value / 100, value % 100);
        write!(f, ",rpct={},rlat={}", percent(self.rpct), self.rlat_us)?;
        write!(f, ",wpct={},wlat={}", percent(self.wpct), self.wlat_us)?;
        write!(f, ",min={},max={}", percent(self.min), percent(self.max))
    }
}

impl CostModel {
    /// Parses a line of the kernel, or a text of [`Display`](fmt::Display). `None`: a number is malformed.
    pub fn parse(text: &str) -> Option<CostModel> {
        let mut model = CostModel::default();
        for (key, value) in words(text) {
            let field = match key {
                "ctrl" => {
                    model.user = value == "user";
                    continue;
                }
                "rbps" => &mut model.rbps,
                "rseqiops" => &mut model.rseqiops,
                "rrandiops" => &mut model.rrandiops,
                "wbps" => &mut model.wbps,
                "wseqiops" => &mut model.wseqiops,
                "wrandiops" => &mut model.wrandiops,
                _ => continue,
            };
            *field = value.parse().ok()?;
        }
        Some(if model.user {
            model
        } else {
            CostModel::default()
        })
    }

    /// True if every number is known.
    pub fn is_whole(&self) -> bool {
        let reads = [self.rbps, self.rseqiops, self.rrandiops];
        let writes = [self.wbps, self.wseqiops, self.wrandiops];
        reads.iter().chain(&writes).all(|&number| number > 0)
    }
}

impl fmt::Display for CostModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.user {
            return f.write_str("ctrl=auto");
        }
        write!(f, "ctrl=user,model=linear,rbps={}", self.rbps)?;
        write!(
            f,
            ",rseqiops={},rrandiops={}",
            self.rseqiops, self.rrandiops
        )?;
        write!(f, ",wbps={},wseqiops={}", self.wbps, self.wseqiops)?;
        write!(f, ",wrandiops={}", self.wrandiops)
    }
}

/// Counters of a disk since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounters {
    /// Completed reads.
    pub reads: u64,
    /// Bytes of completed reads.
    pub read_bytes: u64,
    /// Completed writes.
    pub writes: u64,
    /// Bytes of completed writes.
    pub write_bytes: u64,
    /// Milliseconds in which it was busy.
    pub busy_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_understood_and_ours_are_read_back() {
        let line =
            "enable=1 ctrl=user rpct=95.00 rlat=2500 wpct=90.50 wlat=5000 min=50.00 max=150.00";
        let qos = CostQos::parse(line).unwrap();
        assert_eq!((qos.wpct, qos.rlat_us, qos.max), (9050, 2500, 15_000));
        assert_eq!(qos.to_string(), line.replace(' ', ","));
        let line =
            "ctrl=user model=linear rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6";
        let model = CostModel::parse(line).unwrap();
        assert_eq!(model.to_string(), line.replace(' ', ","));
        assert!(model.is_whole());
    }

    #[test]
    fn numbers_that_the_kernel_chose_are_no_part_of_the_value() {
        let off = CostQos::parse("enable=0 ctrl=auto rpct=95.00 rlat=75000 min=1.00 max=10000.00");
        assert_eq!(off, Some(CostQos::default()));
        let auto = CostModel::parse("ctrl=auto model=linear rbps=488636629 rseqiops=8932");
        assert_eq!(auto, Some(CostModel::default()));
        assert_eq!(CostQos::parse("enable=1 ctrl=user min=x"), None);
        assert_eq!(CostModel::parse("ctrl=user rbps=-1"), None);
    }
}
