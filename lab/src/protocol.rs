//! Jobs that the host hands to a guest, and reports that the guest returns.
//!
//! One boot of a virtual machine runs one [`Job`], mostly a [`GuestJob`] (one policy of one experiment), and
//! answers with one [`RunRecord`](crate::analysis::record::RunRecord). Both travel as JSON over the job disk ([`justitia_machine::job_disk`]).
//! Progress travels as console lines that start with
//! [`PROGRESS_PREFIX`](justitia_machine::vm::PROGRESS_PREFIX).
//!
//! Units: `_bytes` bytes, `_s` seconds, `_us` microseconds, `mb` means 10^6 bytes.

use serde::{Deserialize, Serialize};

pub use crate::load::phases::PhaseReport;
pub use crate::load::Load;
pub use crate::policy::Policy;
use databases::{DatabasesJob, PrepareJob};

mod common;
pub mod databases;
mod guard;
mod knobs;
mod lie;
mod overhead;
mod series;
mod tenant;
mod wait_profile;

pub use common::{modules_of, AgentCost, Facts, Lru, MemoryDisk, Scheduler, Volume};
pub use guard::{RootStream, Surroundings, TimedCommand, TimedWeight};
pub use knobs::{KnobDifference, Knobs};
pub use lie::Lie;
pub use overhead::{Observing, OverheadJob, OverheadLoad, OverheadReport, ProgramCost, Window};
pub(crate) use series::samples;
pub use series::{Sample, Series};
pub use tenant::{Attack, Attacks, TenantReport, TENANT};
pub use wait_profile::{Doing, Place, WaitProfile};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// One policy of one experiment; answered with a [`RunRecord`](crate::analysis::record::RunRecord).
    Experiment(GuestJob),
    /// The cost of observing; answered with an [`OverheadReport`].
    Overhead(OverheadJob),
    /// One policy with databases; answered with a
    /// [`RunRecord`](crate::experiments::databases::record::RunRecord) of databases.
    Databases(DatabasesJob),
    /// The databases themselves; answered with a [`PrepareReport`](crate::protocol::databases::PrepareReport).
    PrepareDatabases(PrepareJob),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestJob {
    pub policy: Policy,
    /// In the order of the report.
    pub containers: Vec<ContainerJob>,
    /// Weights of groups below `/app` that contain others; `None`: the sum of the weights below them.
    pub group_weights: Option<Vec<(String, u32)>>,
    pub seconds: u32,
    /// The kernel's reclaim: classic or multi-generational LRU.
    pub lru: Lru,
    pub scheduler: Scheduler,
    /// The memory disk that the guest creates; `None`: it uses the attached disk.
    pub memory_disk: Option<MemoryDisk>,
    /// Mount options of the data file system (ext4), for example `noauto_da_alloc`; may be empty.
    pub mount_options: String,
    /// Extra arguments for `justitia run`, for example `--interval 1s`.
    pub agent_args: Vec<String>,
    /// Lines of the agent's configuration, ahead of the policy's own.
    pub agent_config: Vec<String>,
    /// Bytes that the host writes between caching and re-reading (reread only).
    pub polluter_bytes: Option<u64>,
    /// Kills the agent with SIGKILL after this many measured seconds and restarts it one second later (the
    /// crash experiment); `None`: no kill.
    pub kill_agent_at_s: Option<u32>,
    pub surroundings: Surroundings,
    /// Profiles where tasks wait in the second half of the measured phase.
    pub profile_waits: bool,
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerJob {
    /// Name, also the last part of its cgroup: `/app/<name>` (slashes nest groups).
    pub name: String,
    /// I/O weight, 1 to 10000; written to the OCI configuration as `blockIO.weight`.
    pub weight: u32,
    /// The false color that is declared each second; `None`: nothing.
    pub lie: Option<Lie>,
    /// The unprivileged user who owns the container, which is then below that user's slice; `None`: root's.
    pub user: Option<u32>,
    pub load: Load,
}
