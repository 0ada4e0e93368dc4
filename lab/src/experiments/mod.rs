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
pub mod paper;
pub mod readmix;
pub mod reread;
pub mod settings;
pub mod sharing;

use serde::{Deserialize, Serialize};

use crate::policy::did_you_mean;
use crate::protocol::{Load, Policy, Surroundings};
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
    pub policies: &'static [Policy],
    /// Seconds of the measured phase; for [`Measure::Completion`] the time limit.
    pub seconds: u32,
    /// Guest memory, bytes.
    pub memory_bytes: u64,
    /// Disk bandwidth, 10^6 bytes per second.
    pub disk_mb_per_s: u32,
}

/// All experiments.
pub const ALL: [&Description; 8] = [
    &fileserver::DESCRIPTION,
    &readmix::DESCRIPTION,
    &reread::DESCRIPTION,
    &sharing::DESCRIPTION,
    &guard::STARTUP,
    &guard::STOLEN,
    &guard::ROOT,
    &hostile::DESCRIPTION,
];

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
}

impl Workload {
    /// What the container at this place runs under a policy, in a guest with this much memory;
    /// `from_s`: when the warm-up is over.
    pub fn load(
        &self,
        place: usize,
        container: &ContainerSpec,
        policy: Policy,
        memory_bytes: u64,
        from_s: f64,
    ) -> Load {
        let direct = policy == Policy::Direct;
        match self {
            Self::Fileserver(parameters) => parameters.load(container, memory_bytes, direct),
            Self::Readmix(parameters) => parameters.load(),
            Self::Reread(parameters) => parameters.load(direct),
            Self::Sharing(parameters) => parameters.load(place, from_s as u32),
            Self::Guard(parameters) => parameters.load(place),
            Self::Hostile(parameters) => parameters.load(container, memory_bytes),
        }
    }

    /// Whether the experiment has this policy.
    pub fn can_run_under(&self, policy: Policy) -> bool {
        match policy {
            Policy::Max | Policy::Soft | Policy::Memoplight => false,
            Policy::Direct => matches!(self, Self::Fileserver(_) | Self::Reread(_)),
            _ => true,
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
    pub fn surroundings(&self, containers: &[ContainerSpec], policy: Policy) -> Surroundings {
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
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest_valid_one() {
        assert!(find("filserver")
            .unwrap_err()
            .remedy()
            .contains("'fileserver'"));
    }
}
