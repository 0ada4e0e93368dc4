//! What is told of machines and their images: the record behind `justitia vm` and its JSON.
//!
//! Units are in the names; what is not known is `null`. Counters are cumulative since the image cache
//! first saw the machine or image.

use serde::{Deserialize, Serialize};

use crate::policy::Replacement;

/// Everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The policy in force; `None`: nobody keeps anything, this is one look.
    pub policy: Option<Replacement>,
    /// Where requests are counted; `None`: nowhere.
    pub tracking: Option<String>,
    /// Free memory of the host.
    pub free_bytes: Option<u64>,
    /// Its page cache, images in it.
    pub cache_bytes: Option<u64>,
    /// What is kept free by taking from machines above their watermarks.
    pub reserve_bytes: Option<u64>,
    /// The machines, in order of their process ids.
    pub machines: Vec<MachineReport>,
    /// Processor time that keeping took, seconds.
    pub image_cache_cpu_s: Option<f64>,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineReport {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Who runs it: `machine` (libvirt, machined, Proxmox), `kata`, `container`, `plain`.
    pub manager: String,
    /// Its cgroup.
    pub group: Option<String>,
    /// Its weight among the machines.
    pub weight: u32,
    /// What the page cache holds of its images; of shared ones an equal part.
    pub cached_bytes: Option<u64>,
    /// What is not taken from it for others.
    pub low_watermark_bytes: Option<u64>,
    /// What it asked for.
    pub requested_bytes: Option<u64>,
    /// Of that, what was asked for before.
    pub second_bytes: Option<u64>,
    /// Of what machines asked for of its images, the share that was not fetched from disk.
    pub hit_ratio: Option<f64>,
    /// Dropped after the first request.
    pub dropped_bytes: Option<u64>,
    /// Given for others, or because its memory ran out.
    pub evicted_bytes: Option<u64>,
    /// Its images.
    pub images: Vec<ImageReport>,
}

/// An image.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageReport {
    /// Its path as the machine sees it.
    pub path: String,
    /// `qcow2`, `raw` (or any other), or `damaged qcow2`; `None`: not looked at.
    pub format: Option<String>,
    /// Size of the file or block device.
    pub bytes: Option<u64>,
    /// The image behind it, as it is written in it.
    pub backing: Option<String>,
    /// Past the page cache (`cache=none`): left alone.
    pub direct: bool,
    /// The machine may write it.
    pub writable: bool,
    /// How many machines hold it open.
    pub machines: usize,
    /// What the page cache holds of it.
    pub cached_bytes: Option<u64>,
    /// Of that, what is dirty or being written.
    pub dirty_bytes: Option<u64>,
    /// What machines asked for.
    pub requested_bytes: Option<u64>,
    /// Of that, what was asked for before.
    pub second_bytes: Option<u64>,
    /// What was fetched from disk, ahead or on demand.
    pub fetched_bytes: Option<u64>,
    /// What processes that are no machines asked for; it counts for nothing.
    pub foreign_bytes: Option<u64>,
    /// What was asked for or written and could not be counted.
    pub lost_bytes: Option<u64>,
    /// Dropped after the first request.
    pub dropped_bytes: Option<u64>,
    /// Given for others.
    pub evicted_bytes: Option<u64>,
    /// Memory that its counters take.
    pub counter_bytes: Option<u64>,
}
