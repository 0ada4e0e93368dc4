//! Samples of a container. Series are stored by column, which takes a third of the size and suits a plot.

use serde::{Deserialize, Serialize};

use super::PhaseReport;

/// A sample and, by column, a series of samples, which has fields of its own too.
macro_rules! samples {
    (
        $(#[$about:meta])*
        $sample:ident {
            $($(#[doc = $doc:literal])* $(#[serde($serde:ident)])? $field:ident: $kind:ty,)*
        }
        $(#[$series_about:meta])*
        $series:ident {
            $($(#[$own_about:meta])* $own:ident: $own_kind:ty,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq)]
        pub struct $sample {
            $($(#[doc = $doc])* pub $field: $kind,)*
        }

        $(#[$series_about])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct $series {
            $($(#[$own_about])* pub $own: $own_kind,)*
            $($(#[doc = $doc])* $(#[serde($serde)])? pub $field: Vec<$kind>,)*
        }

        impl $series {
            /// The columns of these samples.
            pub fn of(samples: &[$sample]) -> Self {
                Self {
                    $($own: <$own_kind>::default(),)*
                    $($field: samples.iter().map(|sample| sample.$field).collect(),)*
                }
            }
        }
    };
}
pub(crate) use samples;

samples! {
    /// A container at one second. Counters are cumulative since the start of the measured phase.
    Sample {
        /// Seconds since the start of the measured phase.
        at_s: f64,
        /// Bytes the application read (hits and misses).
        read_bytes: u64,
        write_bytes: u64,
        /// Bytes read from the device by the group (io.stat rbytes).
        device_read_bytes: u64,
        /// Bytes written to the device by the group (io.stat wbytes).
        device_write_bytes: u64,
        ops: u64,
        /// Sum of operation latencies, microseconds.
        latency_us: u64,
        /// Page cache charged to the group: `file - shmem` of memory.stat.
        file_bytes: u64,
        /// memory.low, `None` for max.
        low_bytes: Option<u64>,
        /// memory.high, `None` for max.
        high_bytes: Option<u64>,
        /// memory.pressure full total, microseconds.
        memory_full_us: u64,
        /// io.pressure some total, microseconds.
        io_some_us: u64,
    }
    /// One container's samples.
    Series {
        name: String,
        weight: u32,
        /// Operations over two seconds.
        slow_ops: u64,
        max_latency_us: u64,
        /// Time at which its fixed job was done; `None` for loads without an end and for those stopped before it.
        finished_at_s: Option<f64>,
        /// Phases that the load timed itself.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        phases: Vec<PhaseReport>,
    }
}

impl Series {
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
