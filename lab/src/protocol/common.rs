//! Types shared by jobs and reports of all kinds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::args::{Lru, Scheduler, Volume};

/// Facts about a guest or its machine, by name.
pub type Facts = BTreeMap<String, String>;

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
    /// The volume over disks of this speed; `None`: one disk alone. `bytes` is the volume's size.
    pub volume: Option<Volume>,
}

/// The kernel modules that a volume needs; the kernel of a guest cannot load any by itself.
pub fn modules_of(volume: Volume) -> &'static [&'static str] {
    match volume {
        Volume::Linear => &["dm_mod"],
        Volume::Crypt | Volume::CryptInline => &["crypto_null", "dm_crypt"],
        Volume::Raid1 => &["raid1"],
        Volume::Raid5 => &["raid456"],
        Volume::LvmRaid5 => &["raid456", "dm_raid"],
    }
}

impl MemoryDisk {
    /// Number of disks, and the size of each.
    pub fn disks(&self) -> (u64, u64) {
        match self.volume {
            None | Some(Volume::Linear | Volume::Crypt | Volume::CryptInline) => (1, self.bytes),
            Some(Volume::Raid1) => (2, self.bytes),
            Some(Volume::Raid5 | Volume::LvmRaid5) => {
                (3, (self.bytes / 2).next_multiple_of(1 << 20))
            }
        }
    }

    /// Its bandwidth in the driver's unit, to the nearest MiB per second, at least one.
    pub fn mib_per_s(&self) -> u64 {
        ((u64::from(self.mb_per_s) * 1_000_000 + (1 << 19)) >> 20).max(1)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentCost {
    /// CPU seconds, user and system.
    pub cpu_s: f64,
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
