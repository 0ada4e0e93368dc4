//! A tenant of the host: an unprivileged user with a delegated cgroup, its attacks and their effects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The tenant's user.
pub const TENANT: u32 = 1000;

/// A kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attack {
    /// Records of containers that are not its own, and files that are no records.
    Records,
    /// Weights that it may not state, and names that no path can hold.
    Attributes,
    /// Cgroups that look like containers; some of them write, some come and go.
    Groups,
    /// Anonymous and mapped memory.
    Memory,
    /// I/O from far below its cgroup.
    Depth,
    /// Names with terminal escapes.
    Names,
}

/// The tenant's attacks in addition to its load.
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

/// Observations around a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantReport {
    /// Number of times that each attack was done; for names with `_bytes`, the amount reached. Empty without
    /// attacks.
    pub done: BTreeMap<String, u64>,
    /// Settings that changed in cgroups that are nobody's to manage, sampled once per second.
    pub unmanaged_written: Vec<String>,
    /// Output of the commands of `justitia`, and of the agent's log.
    pub printed_bytes: u64,
    /// Characters in it that a terminal would interpret.
    pub control_characters: u64,
    /// The agent's peak charge, with page cache and kernel memory.
    pub agent_charged_peak_bytes: Option<u64>,
}
