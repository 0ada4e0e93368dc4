//! The guard: three pitfalls of memory limits, from an operator's post, scaled down, with and without the
//! guard.
//!
//! *startup*: an application needs most of memory while the page cache is full of dirty pages. *stolen*: the
//! anonymous memory of a group with a limit displaces its own page cache. *root*: the root cgroup, which has
//! no limit, displaces the page cache of a group within its limit. Each container measures itself in a quiet
//! phase and in one under pressure. Sizes in bytes, times in seconds after the common start.

use serde::{Deserialize, Serialize};

use super::containers::ContainerSpec;
use super::{mib, At, Description, Measure, Setup, Workload};
use crate::load::guard::{GuardRole, Server};
use crate::load::Load;
use crate::policy::Policy;
use crate::protocol::{RootStream, Surroundings, TimedCommand};

/// An application starts.
pub const STARTUP: Description = Description {
    name: "startup",
    claim: "an application that starts under memory pressure gets its memory at once",
    method: "The first container touches 448 MiB of anonymous memory, once while nothing else \
             happens and once while the second has filled the page cache with dirty pages \
             (vm.dirty_ratio 70) and goes on writing. Under guarded, memory is reserved 25 seconds \
             before the second time.",
    expected:
        "Under conventional the memory has to be written to the disk before it can be given: \
               the start takes several times longer than in the quiet phase. Under guarded it \
               takes about as long.",
    question: "applications that start get their memory at once, whatever the page cache holds",
    measure: Measure::Phases,
    weights: &[400, 200],
    policies: &[Policy::Conventional, Policy::Guarded],
    seconds: 80,
    memory_bytes: 768 << 20,
    disk_mb_per_s: 40,
    options: &[],
    workload: |_, _| Ok(Workload::Guard(Parameters::of(Pitfall::Startup))),
};

/// Anonymous memory takes the place of page cache.
pub const STOLEN: Description = Description {
    name: "stolen",
    claim: "the anonymous memory of a group with a limit does not take its page cache",
    method: "The first container has a memory.max of 256 MiB and answers requests from a file of \
             192 MiB, at a steady rate. Then its anonymous memory grows by 192 MiB. Under guarded \
             the file is warmed beforehand, at the expense of the second container's group.",
    expected: "Under conventional most requests wait for the disk once the memory has grown, and \
               fewer are answered. Under guarded the file stays, because it is not charged to the \
               group whose limit is full.",
    question: "page cache stays when the anonymous memory of its group grows",
    weights: &[300, 400],
    disk_mb_per_s: 20,
    workload: |_, _| Ok(Workload::Guard(Parameters::of(Pitfall::Stolen))),
    ..STARTUP
};

/// The root cgroup takes page cache.
pub const ROOT: Description = Description {
    name: "root",
    claim: "the root cgroup does not take the page cache of a group that is within its limit",
    method: "The container has a memory.max of 512 MiB and answers requests from a file of 448 \
             MiB, at a steady rate. Then a process in the root cgroup reads a file of 600 MiB over \
             and over, each piece twice, as a backup does that takes a checksum first.",
    expected:
        "Under conventional the root's pages take the place of the container's, its requests \
               wait for the disk, which the root keeps busy, and fewer are answered. Under guarded \
               the container keeps what it is entitled to, and the root lives on its share.",
    question: "groups within their limit keep their page cache whatever the root cgroup does",
    weights: &[400],
    workload: |_, _| Ok(Workload::Guard(Parameters::of(Pitfall::Root))),
    ..STARTUP
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pitfall {
    #[default]
    Startup,
    Stolen,
    Root,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    pub pitfall: Pitfall,
    pub anon_bytes: u64,
    /// Its file; for startup, the file that the second container writes.
    pub file_bytes: u64,
    pub memory_max_bytes: Option<u64>,
    /// Request rate; 0: no requests.
    pub bytes_per_s: u64,
    pub root_bytes: Option<u64>,
    pub pressure_at_s: u32,
    /// Start of the phase under pressure.
    pub pressed_at_s: u32,
}

/// Rate of the requests, and size of one.
const RATE: u64 = 48_000_000;
const BLOCK: u32 = 64 << 10;

/// Time of the reservation, and the extra amount: the application also has page tables and stacks.
const RESERVE_AT_S: u32 = 25;
const RESERVE_MORE: u64 = 24 << 20;

impl Parameters {
    /// The parameters of one pitfall; there is nothing to choose.
    pub fn of(pitfall: Pitfall) -> Self {
        let none = Self {
            pitfall,
            pressed_at_s: 50,
            ..Self::default()
        };
        match pitfall {
            Pitfall::Startup => Self {
                anon_bytes: 448 << 20,
                file_bytes: 600 << 20,
                pressure_at_s: 6,
                ..none
            },
            Pitfall::Stolen => Self {
                anon_bytes: 192 << 20,
                file_bytes: 192 << 20,
                memory_max_bytes: Some(256 << 20),
                bytes_per_s: RATE,
                pressure_at_s: 41,
                ..none
            },
            Pitfall::Root => Self {
                file_bytes: 448 << 20,
                memory_max_bytes: Some(512 << 20),
                bytes_per_s: RATE,
                root_bytes: Some(600 << 20),
                pressure_at_s: 35,
                pressed_at_s: 45,
                ..none
            },
        }
    }
}

impl Setup for Parameters {
    fn load(&self, at: &At) -> Load {
        Load::Guard(match (self.pitfall, at.place) {
            (Pitfall::Startup, 0) => GuardRole::Starter {
                bytes: self.anon_bytes,
                quiet_at_s: 2,
                pressed_at_s: self.pressed_at_s,
            },
            (Pitfall::Startup, _) => GuardRole::Dirtier {
                bytes: self.file_bytes,
                from_s: self.pressure_at_s,
            },
            (Pitfall::Stolen | Pitfall::Root, 0) => GuardRole::Server(Server {
                file_bytes: self.file_bytes,
                block_bytes: BLOCK,
                bytes_per_s: self.bytes_per_s,
                from_s: if self.pitfall == Pitfall::Stolen {
                    14
                } else {
                    1
                },
                quiet_from_s: self.pressure_at_s - 15,
                quiet_to_s: self.pressure_at_s,
                anon_bytes: self.anon_bytes,
                pressed_from_s: self.pressed_at_s,
            }),
            (Pitfall::Stolen | Pitfall::Root, _) => GuardRole::Payer,
        })
    }

    fn surroundings(&self, containers: &[ContainerSpec], _policy: Policy) -> Surroundings {
        let name = |place: usize| containers.get(place).map_or("", |c| c.name.as_str());
        let command = |at_s: u32, arguments: &[&str]| TimedCommand {
            at_s,
            arguments: arguments.iter().map(ToString::to_string).collect(),
        };
        let own = format!("/run/justitia-lab/data/{}/set/own", name(0));
        let more = (self.anon_bytes + RESERVE_MORE).to_string();
        let (first, second) = (format!("/app/{}", name(0)), format!("/app/{}", name(1)));
        let mut surroundings = Surroundings {
            memory_max: vec![self.memory_max_bytes],
            root_stream: self.root_bytes.map(|bytes| RootStream {
                bytes,
                from_s: self.pressure_at_s,
            }),
            ..Surroundings::default()
        };
        match self.pitfall {
            Pitfall::Startup => {
                // A page cache full of dirty pages: by the kernel's default a fifth of it may be dirty, with
                // throughput profiles and older systems more.
                surroundings.vm = [("dirty_background_ratio", "60"), ("dirty_ratio", "70")]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into();
                let line = ["reserve", &*first, &*more, "--for", "60s"];
                surroundings.commands.push(command(RESERVE_AT_S, &line));
            }
            Pitfall::Stolen => {
                let line = ["warm", &*own, "--group", &*second];
                surroundings.commands.push(command(1, &line));
            }
            Pitfall::Root => {}
        }
        surroundings
    }

    fn bytes(&self, _containers: u64) -> u64 {
        self.file_bytes + self.root_bytes.unwrap_or(0)
    }

    fn table(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![("file", mib(self.file_bytes))];
        if self.anon_bytes > 0 {
            rows.push(("anonymous memory of the first", mib(self.anon_bytes)));
        }
        if let Some(limit) = self.memory_max_bytes {
            rows.push(("memory.max of the first", mib(limit)));
        }
        if self.bytes_per_s > 0 {
            let rate = format!(
                "{} MB/s in requests of 64 KiB",
                self.bytes_per_s / 1_000_000
            );
            rows.push(("requests ask for", rate));
        }
        if let Some(bytes) = self.root_bytes {
            rows.push(("the root cgroup reads", mib(bytes)));
        }
        rows.push(("pressure from", format!("{} s", self.pressure_at_s)));
        rows.push((
            "measured under pressure from",
            format!("{} s", self.pressed_at_s),
        ));
        rows
    }
}
