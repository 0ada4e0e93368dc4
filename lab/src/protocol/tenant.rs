//! A tenant of the host: an unprivileged user with a delegated cgroup, its attacks and their effects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::args::Attack;

/// The tenant's user.
pub const TENANT: u32 = 1000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attacks {
    /// The kinds of attack; empty: all.
    #[serde(default)]
    pub only: Vec<Attack>,
    /// Anonymous memory that it takes repeatedly.
    pub anon_bytes: u64,
    /// Size of a file that it maps, populates and keeps touching.
    pub mapped_bytes: u64,
}

impl Attacks {
    pub fn has(&self, attack: Attack) -> bool {
        self.only.is_empty() || self.only.contains(&attack)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantReport {
    /// Number of times that each attack was done; for names with `_bytes`, the amount reached. Empty without
    /// attacks.
    pub done: BTreeMap<String, u64>,
    /// Settings that changed in cgroups that are nobody's to manage, sampled once per second.
    pub unmanaged_written: Vec<String>,
    /// Characters in the output of the commands of `justitia`, and in the agent's log, that a terminal would
    /// interpret.
    pub control_characters: u64,
    /// The agent's peak charge, with page cache and kernel memory.
    pub agent_charged_peak_bytes: Option<u64>,
}
