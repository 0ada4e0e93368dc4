//! A tenant of the host: an unprivileged user with a delegated cgroup, what it attacks with and what
//! came of that.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The tenant's user.
pub const TENANT: u32 = 1000;

/// A kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attack {
    /// Records of containers that are not its own, or no records.
    Records,
    /// Weights that it may not state, and names that no path can hold.
    Attributes,
    /// Cgroups that look like containers; some of them write, some come and go.
    Groups,
    /// Anonymous and mapped memory.
    Memory,
    /// I/O from far below its cgroup.
    Depth,
    /// Names that a terminal obeys.
    Names,
}

/// What a tenant does beside its load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attacks {
    /// With these; empty: with all.
    #[serde(default)]
    pub only: Vec<Attack>,
    /// Anonymous memory that it takes, again and again.
    pub anon_bytes: u64,
    /// File that it maps, populates and keeps touching.
    pub mapped_bytes: u64,
}

impl Attacks {
    /// Whether it attacks like this.
    pub fn has(&self, attack: Attack) -> bool {
        self.only.is_empty() || self.only.contains(&attack)
    }
}

/// What was seen around a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantReport {
    /// How often each attack was done; `_bytes`: how far it went. Empty without attacks.
    pub done: BTreeMap<String, u64>,
    /// Settings that changed in cgroups that are nobody's to manage, looked at once a second.
    pub unmanaged_written: Vec<String>,
    /// What the commands of `justitia` printed and the agent logged.
    pub printed_bytes: u64,
    /// Characters of that which a terminal would obey.
    pub control_characters: u64,
    /// The most that the agent's cgroup was charged: page cache and kernel memory too.
    pub agent_charged_peak_bytes: Option<u64>,
}
