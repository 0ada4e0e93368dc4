//! A container's samples by column, which takes a third of the size and suits a plot.

use serde::{Deserialize, Serialize};

use crate::protocol::column;
use crate::protocol::databases::{Color, DatabaseSample};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// See [`DatabaseSample`], here and below.
    pub at_s: Vec<f64>,
    pub phase: Vec<u32>,
    /// Cumulative.
    pub transactions: Vec<f64>,
    /// Rate of the last whole second.
    pub tps: Vec<Option<f64>>,
    pub queue: Vec<Option<u64>>,
    pub latency_ms: Vec<Option<f64>>,
    /// Its color, judged by what its clients see.
    pub color: Vec<Option<Color>>,
    #[serde(default)]
    pub declared: Vec<Option<Color>>,
    /// memory.current.
    pub memory_bytes: Vec<Option<u64>>,
    pub file_bytes: Vec<Option<u64>>,
    /// Cumulative.
    pub device_reads: Vec<Option<u64>>,
    pub low_bytes: Vec<Option<u64>>,
    pub high_bytes: Vec<Option<u64>>,
}

impl Series {
    pub fn of(samples: &[DatabaseSample]) -> Self {
        Self {
            at_s: column(samples, |s| s.at_s),
            phase: column(samples, |s| s.phase),
            transactions: column(samples, |s| s.transactions),
            tps: column(samples, |s| s.tps),
            queue: column(samples, |s| s.queue),
            latency_ms: column(samples, |s| s.latency_ms),
            color: column(samples, |s| s.color),
            declared: column(samples, |s| s.declared),
            memory_bytes: column(samples, |s| s.memory_bytes),
            file_bytes: column(samples, |s| s.file_bytes),
            device_reads: column(samples, |s| s.device_reads),
            low_bytes: column(samples, |s| s.low_bytes),
            high_bytes: column(samples, |s| s.high_bytes),
        }
    }

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
