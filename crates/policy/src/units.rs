//! Units: bytes, weights, limits, ids. One newtype each, so that a page count is never taken for bytes.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// The kernel's cgroup ID (the inode of its directory). It is the identity, because paths are recycled. For a
/// disk, the inode of its scheduler's directory with the top bit set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u64);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of bytes. Subtraction saturates at zero: a difference of two gauges read at different
/// instants may be negative by a page, and that must not wrap.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` MiB.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }

    /// Bytes as a floating-point number, for ratios.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// The nearest whole number of bytes; negative and NaN become zero.
    pub fn from_f64(value: f64) -> Bytes {
        Bytes(if value > 0.0 { value.round() as u64 } else { 0 })
    }

    /// This many bytes times a factor, rounded to the nearest byte.
    #[must_use]
    pub fn scale(self, factor: f64) -> Bytes {
        Bytes::from_f64(self.as_f64() * factor)
    }

    /// Rounded down to whole 4 KiB pages, the granularity of every memory knob.
    #[must_use]
    pub fn page_aligned(self) -> Bytes {
        Bytes(self.0 & !4095)
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    /// Binary units with one decimal: `512 B`, `1.5 KiB`, `109.0 MiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.as_f64() / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{value:.1} {}", UNITS[unit]))
    }
}

/// A group's I/O weight, 1 to 10000 as in `io.weight` (kernel `CGROUP_WEIGHT_MIN`/`MAX`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Weight(u32);

/// A weight outside 1..=10000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("weight {0} is not between 1 and 10000")]
pub struct WeightOutOfRange(pub u32);

impl Weight {
    /// The kernel's default for a group without a weight of its own (`CGROUP_WEIGHT_DFL`).
    pub const DEFAULT: Weight = Weight(100);

    /// A weight between 1 and 10000.
    pub fn new(value: u32) -> Result<Weight, WeightOutOfRange> {
        if (1..=10_000).contains(&value) {
            Ok(Weight(value))
        } else {
            Err(WeightOutOfRange(value))
        }
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The number, for ratios.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0)
    }
}

impl TryFrom<u32> for Weight {
    type Error = WeightOutOfRange;
    fn try_from(value: u32) -> Result<Weight, WeightOutOfRange> {
        Weight::new(value)
    }
}

impl From<Weight> for u32 {
    fn from(weight: Weight) -> u32 {
        weight.0
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The value of `memory.low`, `memory.high` or `memory.max`: bytes, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// A number of bytes.
    Bytes(Bytes),
    /// The kernel's `max`.
    Max,
}

impl Limit {
    /// The bytes, or `None` for `max`.
    pub fn bytes(self) -> Option<Bytes> {
        match self {
            Limit::Bytes(bytes) => Some(bytes),
            Limit::Max => None,
        }
    }
}

impl fmt::Display for Limit {
    /// As a cgroup file prints it: a decimal number, or `max`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Bytes(bytes) => bytes.0.fmt(f),
            Limit::Max => f.pad("max"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_print_with_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (109 << 20, "109.0 MiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn a_difference_of_gauges_never_wraps() {
        assert_eq!(Bytes(1) - Bytes(2), Bytes::ZERO);
        assert_eq!(Bytes::from_f64(f64::NAN), Bytes::ZERO);
        assert_eq!(Bytes::from_f64(-3.0), Bytes::ZERO);
    }

    #[test]
    fn a_weight_is_between_1_and_10000() {
        assert!(Weight::new(0).is_err() && Weight::new(10_001).is_err());
        assert!(Weight::new(1).is_ok() && Weight::new(10_000).is_ok());
    }
}
