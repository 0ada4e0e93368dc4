//! Facts recorded for every run, whatever it measures.

use serde::{Deserialize, Serialize};

/// Facts recorded for every run of a policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number, from 1.
    pub run: u32,
    pub seed: u64,
    /// Fraction of the host's CPU time that went to others during the boot, 0 to 1.
    #[serde(default)]
    pub host_busy_with_others: Option<f64>,
    /// Median speed of the host's CPUs, as in [`justitia_machine::host::HostSeen`].
    #[serde(default)]
    pub host_speed: Option<f64>,
    /// Boots that failed before this one.
    pub failed_boots: u32,
}
