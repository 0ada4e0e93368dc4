//! The figures of one policy and of one container.

use serde::{Deserialize, Serialize};

use super::phases::PhaseFigures;
use super::residency::FileFigures;

/// The figures of a policy, over one window of one run or as the median of several runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Per container, in the order of the settings.
    pub containers: Vec<ContainerFigures>,
    /// Proportionality variation of all bytes; 0 is perfect.
    pub pv: Option<f64>,
    pub pv_reads: Option<f64>,
    pub pv_writes: Option<f64>,
    /// PV until the first fixed job was done (reread); null if that took less than three seconds.
    pub pv_while_all_work: Option<f64>,
    /// Fraction of all bytes that went to the wrong container, 0 to 1.
    pub share_error: Option<f64>,
    /// Sum of `(w_i / W) ln b_i`, with `b_i` in 10^6 bytes per second.
    pub utility: Option<f64>,
    /// All bytes read and written by applications.
    pub total_mb_per_s: Option<f64>,
    pub read_mb_per_s: Option<f64>,
    pub write_mb_per_s: Option<f64>,
    pub device_read_mb_per_s: Option<f64>,
    pub device_write_mb_per_s: Option<f64>,
    /// Estimate: 1 - device reads / application reads, not below 0. Readahead counts as misses.
    pub hit_ratio: Option<f64>,
    pub mean_latency_ms: Option<f64>,
    /// Operations over two seconds, in the whole run.
    pub slow_ops: Option<f64>,
    pub max_latency_ms: Option<f64>,
    /// Residency of the watched files (sharing).
    #[serde(default)]
    pub files: Vec<FileFigures>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerFigures {
    pub name: String,
    pub weight: u32,
    /// Share that it is entitled to, 0 to 1.
    pub ideal_share: Option<f64>,
    pub share: Option<f64>,
    /// Entitled bandwidth over that of the lowest-weighted container.
    pub ideal_normalized: Option<f64>,
    /// Bandwidth over that of the lowest-weighted container.
    pub normalized: Option<f64>,
    pub mb_per_s: Option<f64>,
    pub read_mb_per_s: Option<f64>,
    pub write_mb_per_s: Option<f64>,
    pub hit_ratio: Option<f64>,
    pub mean_latency_ms: Option<f64>,
    /// Operations over two seconds, in the whole run.
    pub slow_ops: Option<f64>,
    pub max_latency_ms: Option<f64>,
    /// Page cache at the start of the window (reread: what survived the polluter).
    pub resident_mb: Option<f64>,
    /// Mean page cache in the window.
    pub page_cache_mb: Option<f64>,
    /// Mean memory.low in the window; null if it was ever `max`.
    pub low_mb: Option<f64>,
    /// Time in which all its tasks waited for memory, percent of the window.
    pub memory_stall_percent: Option<f64>,
    /// Time in which some of its tasks waited for I/O, percent of the window.
    pub io_stall_percent: Option<f64>,
    /// Time at which its fixed job was done (reread); null if it was not.
    pub finished_at_s: Option<f64>,
    /// Its phases (startup, stolen, root).
    #[serde(default)]
    pub phases: Vec<PhaseFigures>,
}
