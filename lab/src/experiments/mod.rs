//! The experiments: what each one claims, how it is set up and which published figure it repeats.
//!
//! [`ALL`] is the registry. Most experiments are a [`Description`] and a [`Setup`]: weighted containers that
//! run a load. [`settings`] turns a command line into [`settings::Settings`], and these turn a policy into the
//! [`GuestJob`](crate::protocol::GuestJob) of one boot. A new one is a file here, its load in
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
pub mod settings;
pub mod sharing;
pub mod wait_profile;
pub mod weighted;
pub mod worth;

use serde::{Deserialize, Serialize};

use crate::args::LoadArgs;
use crate::load::Load;
use crate::policy::Policy;
use crate::protocol::Surroundings;
use justitia_machine::error::LabError;

use containers::ContainerSpec;

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
    pub name: &'static str,
    /// What it shows, one line.
    pub claim: &'static str,
    /// How it is done, one paragraph for the report.
    pub method: &'static str,
    /// What a good result looks like, one paragraph for the report.
    pub expected: &'static str,
    /// What is asked, as the report puts it after "do".
    pub question: &'static str,
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
    /// Options of the load that it understands, without their dashes, and [`CONTAINERS`].
    pub options: &'static [&'static str],
    /// What the containers run, as a command line has it, in a guest with this much memory.
    pub workload: fn(&LoadArgs, u64) -> Result<Workload, LabError>,
}

/// Options of all experiments whose containers have weights.
pub const CONTAINERS: &[&str] = &[
    "weights",
    "containers",
    "names",
    "mount-options",
    "kill-agent-at",
];

/// Experiments with weighted containers.
pub const ALL: [&Description; 11] = [
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
];

/// The experiment with weighted containers of this name.
pub fn description(name: &str) -> Option<&'static Description> {
    ALL.into_iter().find(|description| description.name == name)
}

/// The load of one kind of experiment, and what is around it.
pub trait Setup {
    /// What one container runs.
    fn load(&self, at: &At) -> Load;
    /// Bytes of all files of this many containers.
    fn bytes(&self, containers: u64) -> u64;
    /// Parameter names and values for a person.
    fn table(&self) -> Vec<(&'static str, String)>;
    /// Whether the load can bypass the page cache.
    fn has_direct(&self) -> bool {
        false
    }
    /// Bytes the host writes between caching and reading again.
    fn polluter_bytes(&self) -> Option<u64> {
        None
    }
    /// What happens around the containers.
    fn surroundings(&self, _containers: &[ContainerSpec], _policy: Policy) -> Surroundings {
        Surroundings::default()
    }
    /// The weight that a container states itself.
    fn stated(&self, container: &ContainerSpec) -> u32 {
        container.weight
    }
    /// Weights of groups that hold others; `None`: the sums of what is below them.
    fn group_weights(&self, _containers: &[ContainerSpec]) -> Option<Vec<(String, u32)>> {
        None
    }
    /// Changes the containers; `named`: the command line names them.
    fn settle(&self, _containers: &mut [ContainerSpec], _named: bool) {}
}

/// Whose load it is.
#[derive(Debug)]
pub struct At<'a> {
    /// Place of the container, from 0.
    pub place: usize,
    pub container: &'a ContainerSpec,
    pub policy: Policy,
    /// Memory of the guest.
    pub memory_bytes: u64,
    /// When the warm-up is over.
    pub from_s: f64,
}

/// Parameters of the loads by the name that result.json has for them.
macro_rules! workloads {
    ($($name:ident: $parameters:ty,)*) => {
        /// What the containers of an experiment run.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Workload {
            $($name($parameters),)*
        }

        impl std::ops::Deref for Workload {
            type Target = dyn Setup;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$name(parameters) => parameters,)*
                }
            }
        }
    };
}

workloads! {
    Fileserver: fileserver::Parameters,
    Readmix: readmix::Parameters,
    Reread: reread::Parameters,
    Sharing: sharing::Parameters,
    Guard: guard::Parameters,
    Hostile: hostile::Parameters,
    Nested: nested::Parameters,
    Worth: worth::Parameters,
}

impl Workload {
    /// Whether an experiment with it has this policy.
    pub fn can_run_under(&self, policy: Policy) -> bool {
        match policy {
            Policy::Max | Policy::Soft | Policy::Memoplight => false,
            Policy::Direct => self.has_direct(),
            _ => true,
        }
    }
}
