//! What observing costs: the job of one boot and its report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::common::AgentCost;

/// What observing costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverheadJob {
    /// Pairs for each load.
    pub pairs: u32,
    /// Seconds of a window.
    pub seconds: u32,
    /// The loads, one after the other.
    pub loads: Vec<OverheadLoad>,
    pub seed: u64,
}

/// A load that is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverheadLoad {
    /// fio, random reads of 4 KiB from cache.
    Randread,
    /// fio, sequential reads of 128 KiB from cache.
    Read,
    /// The fileserver load in a container.
    Fileserver,
}

impl OverheadLoad {
    /// All of them.
    pub const ALL: [OverheadLoad; 3] = [Self::Randread, Self::Read, Self::Fileserver];

    pub fn name(self) -> &'static str {
        match self {
            Self::Randread => "randread",
            Self::Read => "read",
            Self::Fileserver => "fileserver",
        }
    }
}

/// Who observes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observing {
    /// Nobody: no agent runs.
    Nothing,
    /// The agent, through /proc.
    Proc,
    /// The agent, through eBPF.
    Bpf,
}

impl Observing {
    /// All conditions.
    pub const ALL: [Observing; 3] = [Self::Nothing, Self::Proc, Self::Bpf];

    /// As `--observer` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Proc => "proc",
            Self::Bpf => "bpf",
        }
    }
}

/// What observing cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverheadReport {
    /// `uname -r`.
    pub kernel: String,
    /// Facts the guest read back.
    pub environment: BTreeMap<String, String>,
    /// In the order they were measured.
    pub windows: Vec<Window>,
    /// What each BPF program took under each load, in a window of its own: that the kernel takes
    /// the time makes every run dearer.
    pub programs: Vec<ProgramCost>,
}

/// What one BPF program took while a load ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramCost {
    pub load: OverheadLoad,
    /// Its name, as far as the kernel keeps it (15 characters).
    pub name: String,
    /// How often it ran.
    pub runs: u64,
    /// Time in it, nanoseconds, the kernel's looks at the clock left out.
    pub ns: u64,
    /// Operations of the load meanwhile.
    pub ops: u64,
    /// CPU time of the load's own tasks meanwhile, microseconds.
    pub cpu_us: f64,
}

/// One load under one condition for a while.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Window {
    pub load: OverheadLoad,
    /// Number of the pair it belongs to, from 0.
    pub pair: u32,
    /// The condition.
    pub observing: Observing,
    /// Its length.
    pub seconds: f64,
    /// Operations completed.
    pub ops: u64,
    /// CPU time of the load's own tasks, user and system, microseconds.
    pub cpu_us: f64,
    /// What the agent cost; `None` if none ran.
    pub agent: Option<AgentCost>,
    /// Seconds from the agent's start to its end.
    pub agent_alive_s: Option<f64>,
}
