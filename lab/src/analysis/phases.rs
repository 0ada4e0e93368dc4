//! Figures of the phases of a load: throughput and latency.

use serde::{Deserialize, Serialize};

use crate::protocol::PhaseReport;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// `quiet` or `pressed`.
    pub name: String,
    pub seconds: Option<f64>,
    /// Bytes read, or of anonymous memory touched, over its length.
    pub mb_per_s: Option<f64>,
    pub ops: Option<f64>,
    /// Percentiles and maximum of the latency.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
}

impl PhaseFigures {
    pub fn of(report: &PhaseReport) -> Self {
        let ms = |us: Option<u64>| us.map(|us| us as f64 / 1e3);
        let seconds = report.seconds.filter(|seconds| *seconds > 0.0);
        Self {
            name: report.name.clone(),
            seconds,
            mb_per_s: seconds.map(|seconds| report.bytes as f64 / 1e6 / seconds),
            ops: seconds.map(|_| report.ops as f64),
            p50_ms: ms(report.p50_us),
            p99_ms: ms(report.p99_us),
            max_ms: ms(report.max_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_that_never_began_has_no_figures() {
        let figures = PhaseFigures::of(&PhaseReport::default());
        assert_eq!(figures, PhaseFigures::default());
        let figures = PhaseFigures::of(&PhaseReport {
            name: "quiet".into(),
            seconds: Some(2.0),
            bytes: 5_000_000,
            ops: 4,
            p50_us: Some(1500),
            p99_us: Some(2000),
            max_us: Some(2500),
        });
        assert_eq!((figures.mb_per_s, figures.p50_ms), (Some(2.5), Some(1.5)));
    }
}
