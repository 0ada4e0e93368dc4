//! What a guest says about where the tasks of its load spent a window of time.

use serde::{Deserialize, Serialize};

/// The window and what was done in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitProfile {
    /// Length of the window.
    pub seconds: f64,
    /// Tasks of the load that were seen.
    pub tasks: u64,
    /// What they did and where, one entry for each distinct stack.
    pub places: Vec<Place>,
    /// Why spinning was not looked at; `None`: it was.
    pub no_spinning: Option<String>,
    /// How often something found no room in the programs' maps and is missing.
    pub lost: u64,
}

/// What tasks did at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub doing: Doing,
    /// The kernel's functions on the stack, the innermost first; empty where no stack was taken.
    pub frames: Vec<String>,
    /// Thread-nanoseconds.
    pub ns: u64,
    /// How often.
    pub times: u64,
}

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// On a CPU, spinning included.
    Running,
    /// Could run, and no CPU is free.
    Runnable,
    /// Waits for something.
    Blocked,
    /// On a CPU, for a spinlock.
    Spinning,
}
