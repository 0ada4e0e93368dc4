//! A guest's report on where the tasks of its load spent a window of time.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitProfile {
    pub seconds: f64,
    /// Number of tasks of the load that were seen.
    pub tasks: u64,
    /// Time by activity and kernel stack, one entry per distinct pair.
    pub places: Vec<Place>,
    /// Reason why spinning was not measured; `None`: it was.
    pub no_spinning: Option<String>,
    /// Records lost because the programs' maps were full.
    pub lost: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub doing: Doing,
    /// The kernel's functions on the stack, innermost first; empty if no stack was taken.
    pub frames: Vec<String>,
    /// Thread-nanoseconds.
    pub ns: u64,
    pub times: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// On a CPU, spinning included.
    Running,
    /// Could run, but no CPU is free.
    Runnable,
    Blocked,
    /// On a CPU, spinning on a spinlock.
    Spinning,
}
