//! Jobs and reports of a guest with databases. One boot runs one policy.
//!
//! Units: `_bytes` bytes, `_s` seconds, `tps` transactions per second. Counters are cumulative. A value that
//! could not be read is `None`, never zero.

use serde::{Deserialize, Serialize};

use super::common::{Lru, MemoryDisk, Scheduler};
use super::lie::Lie;
pub use crate::args::Keys;
use crate::policy::Policy;
pub use justitia_policy::color::Color;

/// Creates the databases on an empty data disk; answered with a [`PrepareReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrepareJob {
    pub databases: u32,
    pub rows: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrepareReport {
    /// Size of one database's table file.
    pub table_bytes: u64,
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabasesJob {
    pub policy: Policy,
    /// In the order of the report.
    pub containers: Vec<DatabaseJob>,
    pub phases: Vec<Start>,
    pub phase_s: u32,
    pub threads: u32,
    pub rows: u32,
    pub keys: Keys,
    /// The memory disk that the guest creates; `None`: it uses the attached disk.
    pub memory_disk: Option<MemoryDisk>,
    pub lru: Lru,
    pub scheduler: Scheduler,
    pub agent_args: Vec<String>,
    /// Lines of the agent's configuration, ahead of the policy's own.
    pub agent_config: Vec<String>,
    pub seed: u64,
}

/// State of the page cache at the start of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    AsIs,
    Cold,
    /// Every container has read its whole database once, so memory is full.
    Warm,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseJob {
    /// Its name; its cgroup is `/app/<name>`.
    pub name: String,
    pub weight: u32,
    /// Transactions per second that it was promised.
    pub objective_tps: u32,
    /// Its static limit, relative to those of the others.
    pub limit_part: u32,
    /// Offered load in each phase, transactions per second; `None`: the container is stopped for good.
    pub offered_tps: Vec<Option<u32>>,
    /// Declared instead of its color.
    pub lie: Option<Lie>,
    /// It runs this instead of a database, in the phases with an offered load.
    pub neighbor: Option<Neighbor>,
}

/// A program beside a database. Its transactions are its units of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Neighbor {
    /// `tar` of the whole data disk, repeatedly; a unit is 100 records of 10 KiB.
    Backup,
    /// Appends to a log and syncs it; a unit is 1 MiB.
    Log,
    /// Compiles; a unit is one file.
    Build,
}

/// The host's memory at one moment (`/proc/meminfo`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSample {
    /// `MemFree`.
    pub free_bytes: Option<u64>,
    /// All page cache: `Cached + Buffers - Shmem`.
    pub file_bytes: Option<u64>,
}
