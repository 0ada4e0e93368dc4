//! Samples of a container. Series are stored by column, which takes a third of the size and suits a plot.

use serde::{Deserialize, Serialize};

use super::PhaseReport;

/// A container at one second. Counters are cumulative since the start of the measured phase.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Seconds since the start of the measured phase.
    pub at_s: f64,
    /// Bytes the application read (hits and misses).
    pub read_bytes: u64,
    /// Bytes the application wrote.
    pub write_bytes: u64,
    /// Bytes read from the device by the group (io.stat rbytes).
    pub device_read_bytes: u64,
    /// Bytes written to the device by the group (io.stat wbytes).
    pub device_write_bytes: u64,
    /// Operations completed.
    pub ops: u64,
    /// Sum of operation latencies, microseconds.
    pub latency_us: u64,
    /// Page cache charged to the group: `file - shmem` of memory.stat.
    pub file_bytes: u64,
    /// memory.low, `None` for max.
    pub low_bytes: Option<u64>,
    /// memory.high, `None` for max.
    pub high_bytes: Option<u64>,
    /// memory.pressure full total, microseconds.
    pub memory_full_us: u64,
    /// io.pressure some total, microseconds.
    pub io_some_us: u64,
}

/// One container's samples, by column.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub weight: u32,
    /// Operations over two seconds.
    pub slow_ops: u64,
    /// Longest operation.
    pub max_latency_us: u64,
    /// Time at which its fixed job was done; `None` for loads without an end and for those stopped before it.
    pub finished_at_s: Option<f64>,
    /// Phases that the load timed itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseReport>,
    /// Time of each sample.
    pub at_s: Vec<f64>,
    /// See [`Sample`]; likewise below.
    pub read_bytes: Vec<u64>,
    /// Bytes written by the application.
    pub write_bytes: Vec<u64>,
    pub device_read_bytes: Vec<u64>,
    /// Bytes written to the device.
    pub device_write_bytes: Vec<u64>,
    pub ops: Vec<u64>,
    /// Sum of latencies.
    pub latency_us: Vec<u64>,
    pub file_bytes: Vec<u64>,
    /// memory.low, `None` for max.
    pub low_bytes: Vec<Option<u64>>,
    /// memory.high, `None` for max.
    pub high_bytes: Vec<Option<u64>>,
    /// memory.pressure full total.
    pub memory_full_us: Vec<u64>,
    /// io.pressure some total.
    pub io_some_us: Vec<u64>,
}

impl Series {
    /// The columns of these samples.
    pub fn of(samples: &[Sample]) -> Self {
        Self {
            at_s: column(samples, |s| s.at_s),
            read_bytes: column(samples, |s| s.read_bytes),
            write_bytes: column(samples, |s| s.write_bytes),
            device_read_bytes: column(samples, |s| s.device_read_bytes),
            device_write_bytes: column(samples, |s| s.device_write_bytes),
            ops: column(samples, |s| s.ops),
            latency_us: column(samples, |s| s.latency_us),
            file_bytes: column(samples, |s| s.file_bytes),
            low_bytes: column(samples, |s| s.low_bytes),
            high_bytes: column(samples, |s| s.high_bytes),
            memory_full_us: column(samples, |s| s.memory_full_us),
            io_some_us: column(samples, |s| s.io_some_us),
            ..Self::default()
        }
    }

    pub fn all_bytes(&self) -> Vec<u64> {
        self.read_bytes
            .iter()
            .zip(&self.write_bytes)
            .map(|(r, w)| r + w)
            .collect()
    }

    /// A cumulative counter at a time between two samples, interpolated; `None` outside the record.
    pub fn at(&self, column: &[u64], time_s: f64) -> Option<f64> {
        let after = self.at_s.iter().position(|&t| t >= time_s)?;
        let value = *column.get(after)? as f64;
        if after == 0 {
            return (self.at_s[0] <= time_s + 1e-9).then_some(value);
        }
        let (t0, t1) = (self.at_s[after - 1], self.at_s[after]);
        let before = *column.get(after - 1)? as f64;
        if t1 <= t0 {
            return Some(value);
        }
        Some(before + (value - before) * (time_s - t0) / (t1 - t0))
    }

    pub fn end_s(&self) -> Option<f64> {
        self.at_s.last().copied()
    }
}

/// One column of samples.
pub(crate) fn column<S, T>(samples: &[S], field: impl Fn(&S) -> T) -> Vec<T> {
    samples.iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_between_samples_is_interpolated_and_outside_unknown() {
        let series = Series {
            at_s: vec![0.0, 1.0, 3.0],
            ..Series::default()
        };
        let column = [0, 10, 30];
        assert_eq!(series.at(&column, 0.0), Some(0.0));
        assert_eq!(series.at(&column, 0.5), Some(5.0));
        assert_eq!(series.at(&column, 2.0), Some(20.0));
        assert_eq!(series.at(&column, 3.5), None);
        assert_eq!(Series::default().at(&[], 0.0), None);
    }
}
