//! Types shared by jobs and reports of all kinds.

use serde::{Deserialize, Serialize};

pub use crate::args::{Lru, Scheduler};

/// A disk in the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryDisk {
    /// Its size, whole mebibytes.
    pub bytes: u64,
    /// Reads and writes together, 10^6 bytes per second.
    pub mb_per_s: u32,
    /// Requests per second, reads and writes together; `None`: that of a good flash disk.
    pub iops: Option<u32>,
    /// True if it holds a copy of the attached data disk; otherwise zeros.
    pub copies: bool,
}

impl MemoryDisk {
    /// Its bandwidth in the driver's unit, to the nearest MiB per second, at least one.
    pub fn mib_per_s(&self) -> u64 {
        ((u64::from(self.mb_per_s) * 1_000_000 + (1 << 19)) >> 20).max(1)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentCost {
    /// CPU seconds, user and system.
    pub cpu_s: f64,
    /// Peak resident set, bytes.
    pub peak_rss_bytes: u64,
    /// Its resident anonymous memory at the last sample, bytes.
    #[serde(default)]
    pub anon_bytes: u64,
    /// The whole charge of its cgroup at that time, with page cache and kernel memory (BPF maps), bytes.
    #[serde(default)]
    pub charged_bytes: u64,
    /// The kernel memory of that charge, bytes.
    #[serde(default)]
    pub kernel_bytes: u64,
}
