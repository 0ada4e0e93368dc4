//! The report on machines and their images: the record behind `justitia vm` and its JSON.
//!
//! Units are in the names; an unknown value is `null`. Counters are cumulative since the image cache first
//! saw the machine or image.

use serde::{Deserialize, Serialize};

use crate::policy::Replacement;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The policy in force; `None`: no image cache runs, and this is a single look.
    pub policy: Option<Replacement>,
    /// The function or tracepoint at which requests are counted; `None`: they are not counted.
    pub tracking: Option<String>,
    /// Free memory of the host.
    pub free_bytes: Option<u64>,
    /// Page cache of the host, images included.
    pub cache_bytes: Option<u64>,
    /// Memory to keep free: below it, machines above their watermarks give.
    pub reserve_bytes: Option<u64>,
    /// In order of process IDs.
    pub machines: Vec<MachineReport>,
    /// CPU time of the process that reports.
    pub image_cache_cpu_s: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineReport {
    pub name: String,
    pub pid: u32,
    /// Its manager: `machine` (libvirt, machined, Proxmox), `kata`, `container`, `plain`.
    pub manager: String,
    pub group: Option<String>,
    /// Its weight among the machines.
    pub weight: u32,
    /// Page cache of its images; a shared image counts in equal parts for each machine that holds it.
    pub cached_bytes: Option<u64>,
    /// Page cache that is not taken from it for other machines.
    pub low_watermark_bytes: Option<u64>,
    pub requested_bytes: Option<u64>,
    /// Part of `requested_bytes` that had been requested before.
    pub second_bytes: Option<u64>,
    /// Share of all machines' requests for its images that was not fetched from disk.
    pub hit_ratio: Option<f64>,
    /// Dropped after the first request.
    pub dropped_bytes: Option<u64>,
    /// Dropped because memory was short.
    pub evicted_bytes: Option<u64>,
    pub images: Vec<ImageReport>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageReport {
    /// Its path as the machine sees it.
    pub path: String,
    /// `qcow2`, `damaged qcow2`, or `raw`, which stands for every other format; `None`: not read.
    pub format: Option<String>,
    /// Size of the file or block device.
    pub bytes: Option<u64>,
    /// The backing file as the qcow2 header names it.
    pub backing: Option<String>,
    /// It bypasses the page cache (`cache=none`) and is left alone.
    pub direct: bool,
    /// The machine may write it.
    pub writable: bool,
    /// Machines that hold it open.
    pub machines: usize,
    pub cached_bytes: Option<u64>,
    /// Part of `cached_bytes` that is dirty or under writeback.
    pub dirty_bytes: Option<u64>,
    pub requested_bytes: Option<u64>,
    /// Part of `requested_bytes` that had been requested before.
    pub second_bytes: Option<u64>,
    /// Fetched from disk, by readahead or on demand.
    pub fetched_bytes: Option<u64>,
    /// Requested by processes that are not machines; the policy ignores these requests.
    pub foreign_bytes: Option<u64>,
    /// Requested or written, but not counted.
    pub lost_bytes: Option<u64>,
    /// Dropped after the first request.
    pub dropped_bytes: Option<u64>,
    /// Dropped because memory was short.
    pub evicted_bytes: Option<u64>,
    /// Memory that its counters take.
    pub counter_bytes: Option<u64>,
}
