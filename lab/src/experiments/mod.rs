//! The experiments: what each one claims, how it is set up and which published figure it reproduces.
//!
//! [`ALL`] is the registry. Most experiments are a [`Description`] and a [`Setup`]: weighted containers that
//! run a load. [`settings`] turns a command line into [`settings::Settings`], which turn a policy into the
//! [`GuestJob`](crate::protocol::GuestJob) of one boot. A new experiment needs a file here, its load in
//! [`load`](crate::load) if that is new too, a line in each of the two registries, and a page in
//! `docs/experiments`.

pub mod containers;
pub mod databases;
pub mod fileserver;
pub mod guard;
pub mod hostile;
pub mod nested;
pub mod overhead;
pub mod paper;
pub mod readmix;
pub mod reread;
pub mod responses;
pub mod settings;
pub mod sharing;
pub mod wait_profile;
pub mod weighted;
pub mod worth;

use serde::{Deserialize, Serialize};

use crate::args::LoadArgs;
use crate::load::{kinds, Load};
use crate::policy::Policy;
use crate::protocol::Surroundings;
use justitia_machine::error::Result;

use containers::ContainerSpec;

/// The way from the series of an experiment to its figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// All containers work all the time: bandwidth over a window that starts after the warm-up.
    Window,
    /// Each container has one fixed job: its bytes over the time it took.
    Completion,
    /// Bytes of the watched files that stay in the page cache; bandwidth is irrelevant.
    Residency,
    /// Figures of each phase: a quiet one and one under pressure, timed by the load itself, or those between
    /// the experiment's events.
    Phases,
}

/// The part of an experiment that does not depend on the command line.
#[derive(Debug)]
pub struct Description {
    pub name: &'static str,
    /// The finding that the experiment is to show, one line.
    pub claim: &'static str,
    /// Method, one paragraph for the report.
    pub method: &'static str,
    /// Description of a good result, one paragraph for the report.
    pub expected: &'static str,
    /// The question, as the report puts it after "do".
    pub question: &'static str,
    pub measure: Measure,
    pub weights: &'static [u32],
    pub policies: &'static [Policy],
    /// Seconds of the measured phase; for [`Measure::Completion`] the time limit.
    pub seconds: u32,
    pub memory_bytes: u64,
    pub disk_mb_per_s: u32,
    /// Supported options of the load, without their dashes, some words each; and [`CONTAINERS`].
    pub options: &'static [&'static str],
    /// The load of the containers, from a command line, in a guest with this much memory.
    pub workload: fn(&LoadArgs, u64) -> Result<Workload>,
}

/// Options of all experiments whose containers have weights.
pub const CONTAINERS: &str = "weights containers names mount-options kill-agent-at";

/// Experiments with weighted containers.
pub const ALL: [&Description; 12] = [
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
    &worth::DESCRIPTION,
    &responses::DESCRIPTION,
];

/// The experiment with weighted containers that has this name.
pub fn description(name: &str) -> Option<&'static Description> {
    ALL.into_iter().find(|description| description.name == name)
}

/// The load of one kind of experiment, and its surroundings.
pub trait Setup {
    fn load(&self, at: &At) -> Load;
    /// Bytes of all files of this many containers.
    fn bytes(&self, containers: u64) -> u64;
    /// Names and values of the parameters, as text.
    fn table(&self) -> Vec<(&'static str, String)>;
    /// True if the load can bypass the page cache.
    fn has_direct(&self) -> bool {
        false
    }
    /// Bytes that the host writes between caching and re-reading.
    fn polluter_bytes(&self) -> Option<u64> {
        None
    }
    fn surroundings(&self, _containers: &[ContainerSpec], _policy: Policy) -> Surroundings {
        Surroundings::default()
    }
    /// The weight that the container itself states.
    fn stated(&self, container: &ContainerSpec) -> u32 {
        container.weight
    }
    /// Weights of groups that contain others; `None`: the sum of the weights below them.
    fn group_weights(&self, _containers: &[ContainerSpec]) -> Option<Vec<(String, u32)>> {
        None
    }
    /// Events that change ideals, in order of time; the first is the start. Empty: all work all the time, or
    /// by their duty cycles.
    fn events(&self, _containers: &[ContainerSpec]) -> Vec<Event> {
        Vec::new()
    }
    /// Adjusts the containers; `named`: the command line names them.
    fn settle(&self, _containers: &mut [ContainerSpec], _named: bool) {}
}

pub fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// A change of who works, or by which weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub name: &'static str,
    pub at_s: f64,
    /// Weight of each container from then on; `None`: it does not work.
    pub weights: Vec<Option<u32>>,
}

/// The container for which a load is made.
#[derive(Debug)]
pub struct At<'a> {
    pub place: usize,
    pub container: &'a ContainerSpec,
    pub policy: Policy,
    pub memory_bytes: u64,
    pub from_s: f64,
}

kinds! {
    /// Parameters of the loads, by their names in result.json.
    Workload, each a Setup:
    Fileserver: fileserver::Parameters,
    Readmix: readmix::Parameters,
    Reread: reread::Parameters,
    Sharing: sharing::Parameters,
    Guard: guard::Parameters,
    Hostile: hostile::Parameters,
    Nested: nested::Parameters,
    Worth: worth::Parameters,
    Responses: responses::Parameters,
}

impl Workload {
    /// True if an experiment with this load supports the policy.
    pub fn can_run_under(&self, policy: Policy) -> bool {
        match policy {
            Policy::Max | Policy::Soft | Policy::Memoplight => false,
            Policy::Direct => self.has_direct(),
            _ => true,
        }
    }
}
