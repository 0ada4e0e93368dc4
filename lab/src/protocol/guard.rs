//! Parts of jobs and reports for the experiments about the guard.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tenant::Attacks;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Surroundings {
    /// Files below `/proc/sys/vm` and the values to write to them.
    pub vm: BTreeMap<String, String>,
    /// `memory.max` of the containers, in their order; a missing entry means none.
    pub memory_max: Vec<Option<u64>>,
    pub root_stream: Option<RootStream>,
    /// Commands of `justitia`, if an agent runs.
    pub commands: Vec<TimedCommand>,
    /// Block weights that root writes; the prior ones return at the end.
    pub weights: Vec<TimedWeight>,
    pub attacks: Option<Attacks>,
}

/// A process in the root cgroup reads a file repeatedly, each piece twice, as a backup that first computes a
/// checksum does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootStream {
    pub bytes: u64,
    pub from_s: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedCommand {
    pub at_s: u32,
    pub arguments: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedWeight {
    pub at_s: u32,
    /// Below the cgroup mount.
    pub group: String,
    pub weight: u32,
}
