//! What jobs and reports of all kinds have in common.

use serde::{Deserialize, Serialize};

/// A disk of the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryDisk {
    /// Its size, whole mebibytes.
    pub bytes: u64,
    /// Reads and writes together, 10^6 bytes per second.
    pub mb_per_s: u32,
    /// Requests per second, reads and writes together; `None`: that of a good flash disk.
    pub iops: Option<u32>,
    /// Holds what the attached data disk holds; otherwise zeros.
    pub copies: bool,
}

impl MemoryDisk {
    /// Its bandwidth as the driver counts it, to the nearest MiB per second, at least one.
    pub fn mib_per_s(&self) -> u64 {
        ((u64::from(self.mb_per_s) * 1_000_000 + (1 << 19)) >> 20).max(1)
    }
}

/// Which LRU the guest kernel uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lru {
    /// The one it was built with.
    Kernel,
    /// Active and inactive list.
    Classic,
    /// Multi-generational LRU.
    Mglru,
}

/// The block scheduler of the data disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// BFQ, which honours `io.bfq.weight`.
    Bfq,
    /// No scheduler: weights have no effect in the block layer.
    None,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentCost {
    /// CPU seconds, user and system.
    pub cpu_s: f64,
    /// Peak resident set, bytes.
    pub peak_rss_bytes: u64,
    /// Its resident anonymous memory when it was last looked at, bytes.
    #[serde(default)]
    pub anon_bytes: u64,
    /// All that its cgroup was charged then: page cache and kernel memory (BPF maps) too, bytes.
    #[serde(default)]
    pub charged_bytes: u64,
    /// The kernel's part of that, bytes.
    #[serde(default)]
    pub kernel_bytes: u64,
}
