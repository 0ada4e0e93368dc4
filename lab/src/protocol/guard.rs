//! What the experiments about the guard add to a job and to its report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tenant::Attacks;

/// What happens around the containers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Surroundings {
    /// Files below `/proc/sys/vm` and what to write to them.
    pub vm: BTreeMap<String, String>,
    /// `memory.max` of the containers, in their order; missing ones have none.
    pub memory_max: Vec<Option<u64>>,
    /// What the root cgroup reads.
    pub root_stream: Option<RootStream>,
    /// Commands of `justitia`, where an agent runs.
    pub commands: Vec<TimedCommand>,
    /// What the tenant does beside its load.
    pub attacks: Option<Attacks>,
}

/// A process in the root cgroup reads a file over and over, each piece twice, as a backup does that
/// takes a checksum first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootStream {
    /// Size of the file.
    pub bytes: u64,
    /// When it begins.
    pub from_s: u32,
}

/// A command and when to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedCommand {
    pub at_s: u32,
    /// Arguments of `justitia`.
    pub arguments: Vec<String>,
}
