//! The experiments: what each one claims, how it is set up and which published figure it repeats.
//!
//! An experiment only describes. [`settings`] turns a command line into [`Settings`], `Settings`
//! turns a policy into the [`GuestJob`](crate::protocol::GuestJob) of one boot, `run` boots,
//! `study` computes and `report` draws. Adding one means: a file here, a page in
//! `docs/experiments`, an entry in [`ALL`].

pub mod containers;
pub mod fileserver;
pub mod guard;
pub mod hostile;
pub mod nested;
pub mod paper;
pub mod readmix;
pub mod reread;
pub mod settings;
pub mod sharing;

use serde::{Deserialize, Serialize};

use crate::protocol::{Load, PolicyUnderTest, Surroundings};
use justitia_machine::error::LabError;

pub use containers::ContainerSpec;
pub use paper::PaperFigure;
pub use settings::Settings;

/// How the figures of an experiment come out of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Everybody works all the time: bandwidth over a window that starts after the warm-up.
    Window,
    /// Everybody has one fixed job: its bytes over the time it took.
    Completion,
    /// What stays in the page cache; bandwidth is beside the point.
    Residency,
    /// A quiet phase and one under pressure, which the load times itself.
    Phases,
}

/// The part of an experiment that is the same whatever the command line says.
#[derive(Debug)]
pub struct Description {
    /// Name on the command line.
    pub name: &'static str,
    /// What it shows, one line.
    pub claim: &'static str,
    /// How it is done, one paragraph for the report.
    pub method: &'static str,
    /// What a good result looks like, one paragraph for the report.
    pub expected: &'static str,
    /// How its figures are computed.
    pub measure: Measure,
    /// Weights unless the command line names others.
    pub weights: &'static [u32],
    /// Policies unless the command line names others.
    pub policies: &'static [PolicyUnderTest],
    /// Seconds of the measured phase; for [`Measure::Completion`] the time limit.
    pub seconds: u32,
    /// Guest memory, bytes.
    pub memory_bytes: u64,
    /// Disk bandwidth, 10^6 bytes per second.
    pub disk_mb_per_s: u32,
}

/// All experiments.
pub const ALL: [&Description; 10] = [
    &fileserver::DESCRIPTION,
    &readmix::DESCRIPTION,
    &reread::DESCRIPTION,
    &sharing::DESCRIPTION,
    &guard::STARTUP,
    &guard::STOLEN,
    &guard::ROOT,
    &hostile::DESCRIPTION,
    &nested::WRITERS,
    &nested::READERS,
];

/// All policies an experiment can compare, in the order they are reported.
pub const POLICIES: [PolicyUnderTest; 15] = [
    PolicyUnderTest::Conventional,
    PolicyUnderTest::Memcg,
    PolicyUnderTest::Direct,
    PolicyUnderTest::Justitia,
    PolicyUnderTest::Proportional,
    PolicyUnderTest::FirstTouch,
    PolicyUnderTest::Strict,
    PolicyUnderTest::Observe,
    PolicyUnderTest::Guarded,
    PolicyUnderTest::Hostile,
    PolicyUnderTest::GateFifo,
    PolicyUnderTest::GateAging,
    PolicyUnderTest::GateInsert,
    PolicyUnderTest::GateStride,
    PolicyUnderTest::GateLoop,
];

/// The name of a policy on the command line and in result.json.
pub fn policy_name(policy: PolicyUnderTest) -> &'static str {
    match policy {
        PolicyUnderTest::Conventional => "conventional",
        PolicyUnderTest::Memcg => "memcg",
        PolicyUnderTest::Direct => "direct",
        PolicyUnderTest::Justitia => "justitia",
        PolicyUnderTest::Proportional => "proportional",
        PolicyUnderTest::FirstTouch => "first-touch",
        PolicyUnderTest::Strict => "strict",
        PolicyUnderTest::Observe => "observe",
        PolicyUnderTest::Guarded => "guarded",
        PolicyUnderTest::Hostile => "hostile",
        PolicyUnderTest::GateFifo => "gate-fifo",
        PolicyUnderTest::GateAging => "gate-aging",
        PolicyUnderTest::GateInsert => "gate-insert",
        PolicyUnderTest::GateStride => "gate-stride",
        PolicyUnderTest::GateLoop => "gate-loop",
    }
}

/// What a policy does, one line.
pub fn policy_meaning(policy: PolicyUnderTest) -> &'static str {
    match policy {
        PolicyUnderTest::Conventional => "weights set on the containers, nothing else",
        PolicyUnderTest::Memcg => "static memory.max in the ratio of the weights",
        PolicyUnderTest::Direct => "the load bypasses the page cache (O_DIRECT)",
        PolicyUnderTest::Justitia => "agent: page-cache thresholds by weight, no feedback",
        PolicyUnderTest::Proportional => {
            "agent: thresholds, allocation and feedback, objective fair"
        }
        PolicyUnderTest::FirstTouch => {
            "agent: the same without eBPF, so that a shared page belongs to who touched it first"
        }
        PolicyUnderTest::Strict => "agent: the same with objective strict, PV at any cost",
        PolicyUnderTest::Observe => "agent that measures and writes nothing",
        PolicyUnderTest::Guarded => {
            "agent: proportional with the guard, and what an operator asks of it"
        }
        PolicyUnderTest::Hostile => "agent: proportional, and the tenant attacks it",
        PolicyUnderTest::GateFifo => {
            "agent: thresholds, and the kernel module's gate without order"
        }
        PolicyUnderTest::GateAging => "agent: thresholds and the gate in the paper's order, aging",
        PolicyUnderTest::GateInsert => {
            "agent: the same where the paper has it, one insertion into the page cache at a time"
        }
        PolicyUnderTest::GateStride => "agent: thresholds and the gate with exact shares, stride",
        PolicyUnderTest::GateLoop => "agent: proportional with the gate, order stride",
    }
}

/// Whether the agent runs under this policy.
pub fn runs_agent(policy: PolicyUnderTest) -> bool {
    matches!(
        policy,
        PolicyUnderTest::Justitia
            | PolicyUnderTest::Proportional
            | PolicyUnderTest::FirstTouch
            | PolicyUnderTest::Strict
            | PolicyUnderTest::Observe
            | PolicyUnderTest::Guarded
            | PolicyUnderTest::Hostile
    ) || has_gate(policy)
}

/// Whether the kernel module is loaded under this policy.
pub fn has_gate(policy: PolicyUnderTest) -> bool {
    matches!(
        policy,
        PolicyUnderTest::GateFifo
            | PolicyUnderTest::GateAging
            | PolicyUnderTest::GateInsert
            | PolicyUnderTest::GateStride
            | PolicyUnderTest::GateLoop
    )
}

/// What the containers run: the parameters of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// See [`fileserver`].
    Fileserver(fileserver::Parameters),
    /// See [`readmix`].
    Readmix(readmix::Parameters),
    /// See [`reread`].
    Reread(reread::Parameters),
    /// See [`sharing`].
    Sharing(sharing::Parameters),
    /// See [`guard`].
    Guard(guard::Parameters),
    /// See [`hostile`].
    Hostile(hostile::Parameters),
    /// See [`nested`].
    Nested(nested::Parameters),
}

impl Workload {
    /// What the container at this place runs under a policy, in a guest with this much memory;
    /// `from_s`: when the warm-up is over.
    pub fn load(
        &self,
        place: usize,
        container: &ContainerSpec,
        policy: PolicyUnderTest,
        memory_bytes: u64,
        from_s: f64,
    ) -> Load {
        let direct = policy == PolicyUnderTest::Direct;
        match self {
            Self::Fileserver(parameters) => parameters.load(container, memory_bytes, direct),
            Self::Readmix(parameters) => parameters.load(),
            Self::Reread(parameters) => parameters.load(direct),
            Self::Sharing(parameters) => parameters.load(place, from_s as u32),
            Self::Guard(parameters) => parameters.load(place),
            Self::Hostile(parameters) => parameters.load(container, memory_bytes),
            Self::Nested(parameters) => parameters.load(container, memory_bytes, direct),
        }
    }

    /// Bytes the host writes between caching and reading again.
    pub fn polluter_bytes(&self) -> Option<u64> {
        match self {
            Self::Reread(parameters) => Some(parameters.polluter_bytes),
            _ => None,
        }
    }

    /// What happens around these containers.
    pub fn surroundings(
        &self,
        containers: &[ContainerSpec],
        policy: PolicyUnderTest,
    ) -> Surroundings {
        match self {
            Self::Guard(parameters) => parameters.surroundings(containers),
            Self::Hostile(parameters) => parameters.surroundings(policy),
            _ => Surroundings::default(),
        }
    }

    /// Parameter names and values for a person.
    pub fn table(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Fileserver(parameters) => parameters.table(),
            Self::Readmix(parameters) => parameters.table(),
            Self::Reread(parameters) => parameters.table(),
            Self::Sharing(parameters) => parameters.table(),
            Self::Guard(parameters) => parameters.table(),
            Self::Hostile(parameters) => parameters.table(),
            Self::Nested(parameters) => parameters.table(),
        }
    }

    /// The weight that a container states itself.
    pub fn stated(&self, container: &ContainerSpec) -> u32 {
        match self {
            Self::Nested(_) => nested::Parameters::stated(container),
            _ => container.weight,
        }
    }

    /// The weights of inner groups; `None`: the sums of what is below them.
    pub fn group_weights(&self, containers: &[ContainerSpec]) -> Option<Vec<(String, u32)>> {
        let nested = matches!(self, Self::Nested(_));
        nested.then(|| nested::Parameters::group_weights(containers))
    }
}

/// Finds an experiment.
///
/// # Errors
/// Names the nearest experiment there is.
pub fn find(name: &str) -> Result<&'static Description, LabError> {
    ALL.into_iter()
        .find(|experiment| experiment.name == name)
        .ok_or_else(|| {
            let databases = crate::databases::scenario::ALL.iter().map(|s| s.name);
            let names: Vec<&str> = ALL.iter().map(|e| e.name).chain(databases).collect();
            LabError::usage(
                format!("unknown experiment '{name}'"),
                did_you_mean(name, &names),
            )
        })
}

/// Finds a policy.
///
/// # Errors
/// Names the nearest policy there is.
pub fn find_policy(name: &str) -> Result<PolicyUnderTest, LabError> {
    POLICIES
        .into_iter()
        .find(|&policy| policy_name(policy) == name)
        .ok_or_else(|| {
            let names = POLICIES.map(policy_name);
            LabError::usage(
                format!("unknown policy '{name}'"),
                did_you_mean(name, &names),
            )
        })
}

/// "did you mean 'x'?" when a valid name is near, otherwise the whole list.
pub fn did_you_mean(wrong: &str, valid: &[&str]) -> String {
    let list = format!("use one of: {}", valid.join(", "));
    valid
        .iter()
        .map(|name| (strsim::jaro_winkler(wrong, name), name))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(list.clone(), |(_, name)| {
            format!("did you mean '{name}'? {list}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest_valid_one() {
        assert!(find("filserver")
            .unwrap_err()
            .remedy()
            .contains("'fileserver'"));
        assert!(find_policy("conventinal")
            .unwrap_err()
            .remedy()
            .contains("'conventional'"));
        assert!(find_policy("xyzzy")
            .unwrap_err()
            .remedy()
            .starts_with("use one of"));
    }

    #[test]
    fn policy_names_are_those_of_the_protocol() {
        for policy in POLICIES {
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(json, format!("\"{}\"", policy_name(policy)));
        }
    }
}
