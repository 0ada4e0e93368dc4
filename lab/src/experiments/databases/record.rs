//! The record of one run: the report of a guest, kept so that it can be analyzed again.

use serde::{Deserialize, Serialize};

use crate::analysis::run::Run;
use crate::protocol::databases::{Color, HostSample};
use crate::protocol::samples;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    #[serde(flatten)]
    pub head: Run,
    /// Start and end of each phase, seconds since the start of the first.
    pub phases: Vec<(f64, f64)>,
    /// Knobs that the agent did not restore.
    pub knobs_left: Vec<String>,
    /// Static limit of each container under policies that have one, bytes.
    pub limits: Vec<Option<u64>>,
    pub series: Vec<Series>,
    /// The host's memory at each sample.
    #[serde(default)]
    pub host: Vec<HostSample>,
}

samples! {
    /// A container at one second. Counters are cumulative.
    Sample {
        /// Seconds since the first phase began.
        at_s: f64,
        /// The phase it belongs to, from 0.
        phase: u32,
        /// Transactions since the first phase began.
        transactions: f64,
        /// Rate of the last whole second.
        tps: Option<f64>,
        /// Transactions that wait for a client thread.
        queue: Option<u64>,
        /// 95th percentile of the latency in the last whole second.
        latency_ms: Option<f64>,
        /// Its color, judged by what its clients see.
        color: Option<Color>,
        #[serde(default)]
        declared: Option<Color>,
        memory_bytes: Option<u64>,
        /// Page cache: `file - shmem` of memory.stat.
        file_bytes: Option<u64>,
        /// Reads from the data disk.
        device_reads: Option<u64>,
        /// memory.low, `None` also for max.
        low_bytes: Option<u64>,
        /// memory.high, `None` also for max.
        high_bytes: Option<u64>,
    }
    /// One container's samples.
    Series {}
}

impl Series {
    /// Indexes of the samples of a phase.
    pub fn places(&self, phase: usize) -> impl Iterator<Item = usize> + '_ {
        self.phase
            .iter()
            .enumerate()
            .filter(move |(_, of)| **of as usize == phase)
            .map(|(place, _)| place)
    }

    /// Increase per second of a cumulative column from each sample to the next; `None` if one of them is
    /// unknown.
    pub fn rate(&self, column: &[Option<u64>]) -> Vec<(f64, Option<f64>)> {
        let times = self.at_s.iter().zip(self.at_s.iter().skip(1));
        let values = column.iter().zip(column.iter().skip(1));
        times
            .zip(values)
            .map(|((from_s, to_s), (from, to))| {
                let rate = from.zip(*to).and_then(|(from, to)| {
                    (to_s > from_s).then(|| to.saturating_sub(from) as f64 / (to_s - from_s))
                });
                (*to_s, rate)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_unknown_next_to_an_unknown_counter() {
        let series = Series {
            at_s: vec![1.0, 2.0, 4.0, 5.0],
            ..Series::default()
        };
        let rates = series.rate(&[Some(10), Some(30), Some(70), None]);
        assert_eq!(rates, [(2.0, Some(20.0)), (4.0, Some(20.0)), (5.0, None)]);
    }
}
