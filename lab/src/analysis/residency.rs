//! The part of the watched files that stayed in the page cache.
//!
//! Sizes in 10^6 bytes. *Before* is the last sample before the pollution, *least* the lowest value after it,
//! *end* the last sample. Unknown is `None`.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileSeries {
    /// Name: `shared file`, or the container whose own file it is.
    pub name: String,
    pub bytes: u64,
    pub at_s: Vec<f64>,
    pub resident_bytes: Vec<Option<u64>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileFigures {
    pub name: String,
    pub size_mb: Option<f64>,
    /// Resident before the pollution.
    pub before_mb: Option<f64>,
    /// Least resident after it began.
    pub least_mb: Option<f64>,
    pub end_mb: Option<f64>,
}

impl FileFigures {
    /// The figures of a file if pollution begins at `from_s`.
    pub fn of(series: &FileSeries, from_s: f64) -> Self {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let looks = series.at_s.iter().zip(&series.resident_bytes);
        let known = looks.filter_map(|(at, bytes)| Some((*at, mb((*bytes)?))));
        let (before, after): (Vec<_>, Vec<_>) = known.partition(|(at, _)| *at <= from_s);
        Self {
            name: series.name.clone(),
            size_mb: Some(mb(series.bytes)),
            before_mb: before.last().map(|(_, mb)| *mb),
            least_mb: after.iter().map(|(_, mb)| *mb).reduce(f64::min),
            end_mb: after.last().map(|(_, mb)| *mb),
        }
    }

    /// Fraction of it that was resident at the lowest point, 0 to 1.
    pub fn least_part(&self) -> Option<f64> {
        Some(self.least_mb? / self.size_mb.filter(|size| *size > 0.0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_least_and_end_are_told_apart_and_unknown_is_not_zero() {
        let mb = 1_000_000;
        let series = FileSeries {
            name: "shared".into(),
            bytes: 10 * mb,
            at_s: vec![0.0, 1.0, 2.0, 3.0, 4.0],
            resident_bytes: vec![Some(9 * mb), Some(8 * mb), None, Some(2 * mb), Some(4 * mb)],
        };
        let figures = FileFigures::of(&series, 1.0);
        assert_eq!(figures.before_mb, Some(8.0));
        assert_eq!(figures.least_mb, Some(2.0));
        assert_eq!(figures.end_mb, Some(4.0));
        assert_eq!(figures.least_part(), Some(0.2));
        let figures = FileFigures::of(&series, 9.0);
        assert_eq!((figures.least_mb, figures.end_mb), (None, None));
    }
}
