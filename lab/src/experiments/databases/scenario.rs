//! The scenarios of MemOpLight's evaluation (tables III and V), and their scale.
//!
//! Rates are the paper's, in transactions per second; [`Scenario::scale`] converts them: an emulated guest
//! serves some hundreds of point selects per second, the paper's machine two thousand transactions.
//! Objectives, loads and limits keep their ratios, and so does the size of a database relative to the memory
//! that may cache it. Time does not scale: memory moves at two percent per second in both, so a phase should
//! be long enough for it.

use crate::policy::Policy::{self, Conventional, Max, Memoplight, Observe, Proportional, Soft};
use crate::protocol::databases::{Keys, Neighbor, Start};

/// A container of a scenario; rates are those of the paper.
#[derive(Debug, Clone, Copy)]
pub struct Container {
    pub name: &'static str,
    pub objective: u32,
    pub limit_mb: u32,
    /// Offered load in each phase; 0: it is stopped.
    pub offered: &'static [u32],
    /// It runs this instead of a database, in the phases with a load.
    pub neighbor: Option<Neighbor>,
}

#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// The finding that the scenario is to show, one line.
    pub claim: &'static str,
    pub method: &'static str,
    /// Description of a good result, one paragraph.
    pub expected: &'static str,
    pub containers: &'static [Container],
    /// Name of each phase, and the state of the page cache at its start.
    pub phases: &'static [(&'static str, Start)],
    pub paper_high: u32,
    /// Our high load unless the command line names another.
    pub high: u32,
    pub phase_s: u32,
    pub memory_bytes: u64,
    pub database_bytes: u64,
    pub keys: Keys,
    /// Client threads of each container: enough to keep a disk with a queue busy, few enough that a report
    /// soon shows waiting work.
    pub threads: u32,
    /// Requests per second that the data disk serves.
    pub disk_iops: u32,
    pub policies: &'static [Policy],
}

impl Scenario {
    /// Converts a rate of the paper to ours.
    pub fn scale(&self, rate: u32, high: u32) -> u32 {
        let scaled = (u64::from(rate) * u64::from(high) + u64::from(self.paper_high) / 2)
            / u64::from(self.paper_high);
        u32::try_from(scaled).unwrap_or(u32::MAX).max(1)
    }

    /// A container's I/O weight: its objective, scaled into the range that BFQ and OCI share.
    pub fn weight(container: &Container) -> u32 {
        (container.objective / 10).clamp(10, 1000)
    }
}

/// The policies of these experiments, in the order of the reports.
pub const POLICIES: &[Policy] = &[Conventional, Max, Soft, Memoplight, Proportional];

pub const ALL: [&Scenario; 4] = [&ONE, &TWO, &EIGHT, &NEIGHBORS];

/// One container alone: the value of a cache here, and the maximum throughput of one container.
pub const ONE: Scenario = Scenario {
    name: "one-database",
    claim: "the page cache, not the processor, decides what a database serves",
    method: "One container with MariaDB and more memory than its database. Phase cold begins with \
             an empty page cache, phase warm with the database in it. The offered load is more \
             than can be served.",
    expected:
        "The first seconds of cold are bound by the disk, warm by the processor, and warm is \
               at least three times as fast. Otherwise choose a slower disk (--disk-iops).",
    containers: &[container("A", 1700, 1800, &[10_000, 10_000])],
    phases: &[("cold", Start::Cold), ("warm", Start::Warm)],
    paper_high: 2000,
    high: 200,
    phase_s: 20,
    memory_bytes: 512 << 20,
    database_bytes: 160 << 20,
    keys: Keys::Uniform,
    threads: 8,
    disk_iops: 300,
    policies: &[Conventional],
};

/// Table III.
pub const TWO: Scenario = Scenario {
    name: "two-databases",
    claim: "memory follows need: what the lightly loaded database does not use serves the other",
    method:
        "Two containers, A and B, each with a MariaDB whose database is larger than the memory \
             that can cache it. sysbench offers each a rate of point selects, high (h), \
             intermediate (i), low (l), or none because the container is stopped (s), in six \
             phases (a, b) for A and B: (h,h), (h,l), (h,i), (l,l), (i,h), (s,h). A's objective is \
             85 percent of the high rate, B's 55 percent. A probe (justitia probe mysql) declares \
             each container's color.",
    expected: "In (h,l), A serves more under memoplight and proportional than under max, soft and \
               no limits, because B gives what it does not need. In (h,h), A and B are served in \
               the ratio of their objectives. In (s,h), B reaches what one container can.",
    containers: &[
        container("A", 1700, 1800, &[2000, 2000, 2000, 200, 1500, 0]),
        container("B", 1100, 1000, &[2000, 200, 1500, 200, 2000, 2000]),
    ],
    phases: &[
        ("h,h", Start::Warm),
        ("h,l", Start::AsIs),
        ("h,i", Start::AsIs),
        ("l,l", Start::AsIs),
        ("i,h", Start::AsIs),
        ("s,h", Start::AsIs),
    ],
    paper_high: 2000,
    high: 200,
    phase_s: 60,
    memory_bytes: 288 << 20,
    database_bytes: 160 << 20,
    keys: Keys::Uniform,
    threads: 8,
    disk_iops: 300,
    policies: POLICIES,
};

/// Table V.
pub const EIGHT: Scenario = Scenario {
    name: "eight-databases",
    claim: "more containers are satisfied for longer, and more transactions are served",
    method: "Eight containers, A to H, each with a MariaDB, under the loads of the paper's table \
             V: nine phases in which each container gets a high, an intermediate (its objective, \
             five percent more or less) or a low rate of point selects. A probe (justitia probe \
             mysql) declares each container's color.",
    expected: "Total transactions and the fraction of time satisfied are both higher under \
               memoplight and proportional than under no limits, max and soft.",
    #[rustfmt::skip]
    containers: &[
        container("A", 1800, 1400, &[2500, 1710, 2500, 200, 1890, 200, 200, 200, 2500]),
        container("B", 1600, 1000, &[1520, 2500, 2500, 200, 2500, 200, 1520, 2500, 200]),
        container("C", 1400, 800, &[1330, 1470, 200, 1470, 2500, 1330, 1470, 200, 1470]),
        container("D", 1400, 800, &[2500, 1470, 200, 200, 200, 1470, 200, 2500, 2500]),
        container("E", 1200, 600, &[1140, 1140, 200, 2500, 1260, 2500, 2500, 2500, 200]),
        container("F", 1200, 600, &[2500, 1260, 200, 2500, 200, 2500, 1260, 1260, 2500]),
        container("G", 1000, 400, &[2500, 200, 2500, 200, 200, 200, 200, 950, 950]),
        container("H", 800, 400, &[840, 2500, 200, 200, 760, 200, 760, 760, 2500]),
    ],
    #[rustfmt::skip]
    phases: &[
        ("1", Start::Warm), ("2", Start::AsIs), ("3", Start::AsIs), ("4", Start::AsIs), ("5", Start::AsIs),
        ("6", Start::AsIs), ("7", Start::AsIs), ("8", Start::AsIs), ("9", Start::AsIs),
    ],
    paper_high: 2500,
    high: 80,
    phase_s: 120,
    memory_bytes: 544 << 20,
    database_bytes: 80 << 20,
    keys: Keys::Special,
    threads: 4,
    disk_iops: 60,
    policies: POLICIES,
};

/// A database whose rows fit into memory, and work that memory does not help.
pub const NEIGHBORS: Scenario = Scenario {
    name: "database-neighbors",
    claim: "a database that fits into memory serves beside a backup, a log writer and a build what it serves alone",
    method: "Container A runs a MariaDB whose database fits into memory, under a constant load. In \
             phase alone it has no neighbor. In phase backup a container of the same weight runs tar \
             over the whole data disk, which is larger than memory; in phase log one appends to a \
             log and syncs each MiB; in phase build one compiles. Each phase begins with the \
             database in the page cache.",
    expected: "A serves in each phase what it serves alone, and each neighbor does as much as under \
               no limits. An agent that only observes shows what its memory and CPU time cost. The \
               neighbors' transactions are units: 1.02 MB read, 1 MiB written, one file compiled.",
    containers: &[
        container("A", 1700, 1000, &[2000, 2000, 2000, 2000]),
        neighbor("backup", Neighbor::Backup, &[0, 1, 0, 0]),
        neighbor("log", Neighbor::Log, &[0, 0, 1, 0]),
        neighbor("build", Neighbor::Build, &[0, 0, 0, 1]),
    ],
    phases: &[
        ("alone", Start::Warm),
        ("backup", Start::Warm),
        ("log", Start::Warm),
        ("build", Start::Warm),
    ],
    paper_high: 2000,
    high: 300,
    phase_s: 60,
    memory_bytes: 288 << 20,
    database_bytes: 80 << 20,
    keys: Keys::Uniform,
    threads: 8,
    disk_iops: 600,
    policies: &[Conventional, Observe, Proportional],
};

const fn container(
    name: &'static str,
    objective: u32,
    limit_mb: u32,
    offered: &'static [u32],
) -> Container {
    Container {
        name,
        objective,
        limit_mb,
        offered,
        neighbor: None,
    }
}

const fn neighbor(name: &'static str, work: Neighbor, offered: &'static [u32]) -> Container {
    Container {
        neighbor: Some(work),
        ..container(name, 1700, 0, offered)
    }
}

pub fn find(name: &str) -> Option<&'static Scenario> {
    ALL.into_iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_container_has_a_load_for_every_phase() {
        for scenario in ALL {
            for container in scenario.containers {
                assert_eq!(container.offered.len(), scenario.phases.len());
            }
        }
    }

    #[test]
    fn scaling_keeps_the_papers_ratios_and_never_offers_nothing() {
        assert_eq!(TWO.scale(2000, 800), 800);
        assert_eq!(TWO.scale(1700, 800), 680);
        assert_eq!(EIGHT.scale(200, 250), 20);
        assert_eq!(EIGHT.scale(1, 1), 1);
    }

    #[test]
    fn weights_are_in_the_ratio_of_the_objectives() {
        let weights: Vec<u32> = EIGHT.containers.iter().map(Scenario::weight).collect();
        assert_eq!(weights, [180, 160, 140, 140, 120, 120, 100, 80]);
    }

    #[test]
    fn only_the_sixth_phase_of_two_stops_a_container() {
        let mut stopped = Vec::new();
        let containers = ALL.iter().flat_map(|scenario| scenario.containers);
        for container in containers.filter(|container| container.neighbor.is_none()) {
            let rates = container.offered.iter().enumerate();
            let none = rates.filter(|(_, rate)| **rate == 0);
            stopped.extend(none.map(|(phase, _)| (container.name, phase)));
        }
        assert_eq!(stopped, [("A", 5)]);
    }
}
