//! Hostile: a tenant attacks the agent and its neighbors with everything that a delegated cgroup allows.
//!
//! The last container belongs to an unprivileged user and is below that user's slice. All run the fileserver
//! load. Under `hostile` the tenant attacks in addition to its load. Sizes in bytes.

use serde::{Deserialize, Serialize};

use super::containers::ContainerSpec;
use super::{fileserver, mib, At, Description, Measure, Setup, Workload};
use crate::args::LoadArgs;
use crate::protocol::{Attacks, Load, Policy, Surroundings, TENANT};
use justitia_machine::error::Result;

pub const DESCRIPTION: Description = Description {
    name: "hostile",
    claim: "a hostile tenant hurts neither its neighbors nor the agent",
    method: "All containers run the fileserver load. The last one is an unprivileged user's, in a \
             delegated cgroup below that user's slice. Under proportional it is as honest as the \
             others. Under hostile it also forges records of containers and weights, makes hundreds \
             of cgroups that look like containers, maps its page cache, takes 60 percent of RAM, does \
             I/O from deep below and puts escape sequences into names, for the whole run.",
    expected: "The honest containers get what they get beside the honest tenant. The agent stays \
               within its memory, writes to nobody else's cgroup, tells a bounded number of problems \
               and restores every knob.",
    question: "honest containers keep their bandwidth beside a hostile tenant",
    measure: Measure::Window,
    weights: &[100, 400, 100],
    policies: &[Policy::Proportional, Policy::Hostile],
    seconds: 300,
    memory_bytes: 768 << 20,
    disk_mb_per_s: 40,
    options: &[fileserver::OPTIONS, "idle anon-growth attacks"],
    workload: |args, memory| Ok(Workload::Hostile(Parameters::from_args(args, memory)?)),
};

/// `MemoryMax=` of the agent's unit, enforced here too.
pub const AGENT_MEMORY_MAX: u64 = 192 << 20;

/// Default number of files of a container: three sets together exceed memory.
const FILES: u32 = 2100;

/// Disk space for the tenant's attacks, in addition to the file sets.
const ROOM: u64 = 64 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    pub fileserver: fileserver::Parameters,
    pub attacks: Attacks,
}

impl Parameters {
    /// The parameters of a command line, in a guest with this much memory.
    fn from_args(args: &LoadArgs, memory_bytes: u64) -> Result<Self> {
        let mut fileserver = fileserver::Parameters::from_args(args)?;
        fileserver.files = args.files.unwrap_or(FILES);
        Ok(Self {
            fileserver,
            attacks: Attacks {
                only: args.attacks.clone(),
                anon_bytes: memory_bytes / 10 * 6,
                mapped_bytes: memory_bytes / 4,
            },
        })
    }
}

impl Setup for Parameters {
    fn load(&self, at: &At) -> Load {
        self.fileserver.load(at)
    }

    fn surroundings(&self, _containers: &[ContainerSpec], policy: Policy) -> Surroundings {
        Surroundings {
            attacks: (policy == Policy::Hostile).then(|| self.attacks.clone()),
            ..Surroundings::default()
        }
    }

    fn bytes(&self, containers: u64) -> u64 {
        self.fileserver.bytes(containers) + self.attacks.mapped_bytes + ROOM
    }

    fn table(&self) -> Vec<(&'static str, String)> {
        let mut rows = self.fileserver.table();
        if !self.attacks.only.is_empty() {
            rows.push(("tenant attacks with", format!("{:?}", self.attacks.only)));
        }
        rows.push(("tenant takes", mib(self.attacks.anon_bytes)));
        rows.push(("tenant maps", mib(self.attacks.mapped_bytes)));
        rows
    }

    /// The last container is the tenant's.
    fn settle(&self, containers: &mut [ContainerSpec], named: bool) {
        if let Some(tenant) = containers.last_mut() {
            tenant.user = Some(TENANT);
            if !named {
                tenant.name = "tenant".into();
            }
        }
    }
}
