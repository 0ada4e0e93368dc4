//! The cost of observing: the job of one boot and its report.

use serde::{Deserialize, Serialize};

use super::common::{AgentCost, Facts};
use justitia_report::text::word;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverheadJob {
    pub pairs: u32,
    pub seconds: u32,
    pub loads: Vec<OverheadLoad>,
    pub seed: u64,
}

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
    pub const ALL: [OverheadLoad; 3] = [Self::Randread, Self::Read, Self::Fileserver];

    pub fn name(self) -> String {
        word(&self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observing {
    /// Nobody: no agent runs.
    Nothing,
    Proc,
    Bpf,
}

impl Observing {
    pub const ALL: [Observing; 3] = [Self::Nothing, Self::Proc, Self::Bpf];

    /// The value of `--observer`.
    pub fn name(self) -> String {
        word(&self)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverheadReport {
    pub kernel: String,
    /// Facts that the guest read back.
    pub environment: Facts,
    pub windows: Vec<Window>,
    /// The cost of each BPF program under each load, in a window of its own, because the kernel's timing
    /// makes every run more expensive.
    pub programs: Vec<ProgramCost>,
}

/// The cost of one BPF program while a load ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramCost {
    pub load: OverheadLoad,
    /// Its name, truncated by the kernel to 15 characters.
    pub name: String,
    pub runs: u64,
    /// Time in it, nanoseconds, without the kernel's reads of the clock.
    pub ns: u64,
    /// Operations of the load in the same time.
    pub ops: u64,
    /// CPU time of the load's own tasks in the same time, microseconds.
    pub cpu_us: f64,
}

/// One window of a load under one condition.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Window {
    pub load: OverheadLoad,
    /// Number of its pair, from 0.
    pub pair: u32,
    pub observing: Observing,
    pub seconds: f64,
    pub ops: u64,
    /// CPU time of the load's own tasks, user and system, microseconds.
    pub cpu_us: f64,
    /// Cost of the agent, with its CPU time in the window; `None` if none ran.
    pub agent: Option<AgentCost>,
    /// Seconds in which that CPU time was counted.
    pub agent_s: Option<f64>,
}
