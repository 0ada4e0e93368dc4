//! Facts recorded for every run, whatever it measures.

use std::collections::BTreeMap;
use std::ops::Not;

use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::protocol::{AgentCost, Facts};

/// Facts recorded for every run of a policy. The guest reports its own; the host fills in the others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number, from 1.
    pub run: u32,
    pub seed: u64,
    /// Fraction of the host's CPU time that went to others during the boot, 0 to 1.
    pub host_busy_with_others: Option<f64>,
    /// Median speed of the host's CPUs, as in [`justitia_machine::host::HostSeen`].
    pub host_speed: Option<f64>,
    pub failed_boots: u32,
    /// `uname -r` of the guest; empty in old results of databases.
    #[serde(default)]
    pub kernel: String,
    /// Facts that the guest read back, until the host moves them to the experiment's environment.
    #[serde(default, skip_serializing_if = "Facts::is_empty")]
    pub environment: Facts,
    /// Cost of the agent; `None` if none ran or it could not be measured.
    pub agent: Option<AgentCost>,
    pub agent_log: String,
    /// Lines of the kernel's log of something wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_complaints: Vec<String>,
    /// True if the agent did not end in time and was killed.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub agent_killed: bool,
    /// Commands and changes of weights that failed, with what they said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_commands: Vec<String>,
}

impl Run {
    /// Troubles of a guest that reported all the same, one sentence each.
    pub fn troubles(&self) -> Vec<String> {
        let count = self.kernel_complaints.len();
        let complained =
            format!("the kernel complained {count} times, see kernel_complaints in result.json");
        let killed = "the agent did not end in time and was killed".to_owned();
        let all = [(count > 0, complained), (self.agent_killed, killed)];
        let all = all.into_iter().filter(|(holds, _)| *holds);
        let failed = self.failed_commands.iter();
        let failed = failed.map(|said| format!("failed: {said}"));
        all.map(|(_, words)| words).chain(failed).collect()
    }
}

/// One run: its figures, and its record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnalyzedRun<F, R> {
    /// Figures without the warm-up.
    pub figures: F,
    #[serde(flatten)]
    pub record: R,
}

/// The records of the runs of each policy.
pub type Records<R> = BTreeMap<Policy, Vec<R>>;

/// The records of analyzed runs, to be analyzed again.
pub fn records<P, F, R>(
    policies: BTreeMap<Policy, P>,
    runs: fn(P) -> Vec<AnalyzedRun<F, R>>,
) -> Records<R> {
    let policies = policies.into_iter();
    policies
        .map(|(policy, result)| {
            let runs = runs(result).into_iter();
            (policy, runs.map(|run| run.record).collect())
        })
        .collect()
}
