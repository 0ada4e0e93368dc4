//! What the experiments about the guard add to a job and to its report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Attacks;

/// What a container of these experiments does. Times are seconds after the common start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuardRole {
    /// An application that starts: touches anonymous memory once while nothing else happens, gives
    /// it back, and touches as much again under pressure.
    Starter {
        /// How much.
        bytes: u64,
        /// When, without pressure.
        quiet_at_s: u32,
        /// When, under pressure.
        pressed_at_s: u32,
    },
    /// Writes a file over and over, so that the page cache fills with dirty pages.
    Dirtier {
        /// Size of the file.
        bytes: u64,
        /// When it begins.
        from_s: u32,
    },
    /// Answers requests: reads random blocks of a file at a steady rate.
    Server {
        /// Size of the file.
        file_bytes: u64,
        /// Bytes of a request.
        block_bytes: u32,
        /// Requests arrive at this rate.
        bytes_per_s: u64,
        /// When it reads the whole file once.
        from_s: u32,
        /// The quiet phase.
        quiet_from_s: u32,
        /// Its end; then its anonymous memory grows.
        quiet_to_s: u32,
        /// By how much.
        anon_bytes: u64,
        /// The phase under pressure, until the end.
        pressed_from_s: u32,
    },
    /// Does nothing: a group that pays for page cache.
    Payer,
}

/// What happens around the containers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Surroundings {
    /// Files below `/proc/sys/vm` and what to write to them.
    pub vm: BTreeMap<String, String>,
    /// `memory.max` of the containers, in their order; missing ones have none.
    pub memory_max: Vec<Option<u64>>,
    /// What the root cgroup reads.
    pub root_stream: Option<RootStream>,
    /// Commands of `justitia`, where an agent runs.
    pub commands: Vec<TimedCommand>,
    /// What the tenant does beside its load.
    pub attacks: Option<Attacks>,
}

/// A process in the root cgroup reads a file over and over, each piece twice, as a backup does that
/// takes a checksum first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootStream {
    /// Size of the file.
    pub bytes: u64,
    /// When it begins.
    pub from_s: u32,
}

/// A command and when to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedCommand {
    /// When.
    pub at_s: u32,
    /// Arguments of `justitia`.
    pub arguments: Vec<String>,
}

/// One phase of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// `quiet` or `pressed`.
    pub name: String,
    /// Its length; `None`: it never began.
    pub seconds: Option<f64>,
    /// Bytes read or touched.
    pub bytes: u64,
    /// Operations.
    pub ops: u64,
    /// Half of the operations took no longer; likewise below. `None`: there were none.
    pub p50_us: Option<u64>,
    /// Ninety-nine of a hundred.
    pub p99_us: Option<u64>,
    /// All.
    pub max_us: Option<u64>,
}
