//! The state of a fake cgroup and how its files show and change it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use justitia_policy::units::{Bytes, Limit};
use rustix::io::Errno;

use crate::parse::memory::{limit as parse_limit, MemoryEvents};
use crate::parse::number;
use crate::{Device, File};

/// A fake cgroup. Tests set the fields; `memory.current` follows from them.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the kernel's names")]
pub struct FakeGroup {
    pub anon: Bytes,
    /// `file` of `memory.stat`, shmem included.
    pub file: Bytes,
    pub shmem: Bytes,
    pub kernel: Bytes,
    pub file_mapped: Bytes,
    pub file_dirty: Bytes,
    pub file_writeback: Bytes,
    pub active_file: Bytes,
    pub refault_pages: u64,
    pub memory_some_us: u64,
    pub memory_full_us: u64,
    pub io_some_us: u64,
    pub io_full_us: u64,
    pub cpu_some_us: u64,
    /// Bytes read and written by device.
    pub io: BTreeMap<Device, (u64, u64)>,
    pub min: Limit,
    pub low: Limit,
    pub high: Limit,
    pub max: Limit,
    pub swap: Bytes,
    pub swap_max: Limit,
    /// `None`: no such file.
    pub io_weight: Option<u32>,
    /// `None`: no such file.
    pub bfq_weight: Option<u32>,
    /// Of a disk; `None`: no such file.
    pub low_latency: Option<bool>,
    /// True if `memory.reclaim` exists.
    pub reclaim: bool,
    /// A threaded cgroup, as `cgroup.type` tells.
    pub threaded: bool,
    /// Cgroups below it that live, as `cgroup.stat` counts them.
    pub descendants: u64,
    /// Cgroups below it that were removed and still hold memory.
    pub dying: u64,
    /// `io.cost.qos`, of the root, and its line about a disk; `None`: no such file.
    pub io_cost_qos: Option<String>,
    /// The same of `io.cost.model`.
    pub io_cost_model: Option<String>,
    /// `stat` of a disk.
    pub disk_stat: Option<String>,
    /// A disk's entry in udev's database; `None`: it has none.
    pub udev: Option<String>,
    pub events: MemoryEvents,
    /// Without the events of groups below it.
    pub events_local: MemoryEvents,
}

const NO_EVENTS: MemoryEvents = MemoryEvents {
    low: Some(0),
    high: Some(0),
    max: Some(0),
    oom: Some(0),
    oom_kill: Some(0),
};

impl Default for FakeGroup {
    /// An empty group as the kernel makes it, with every knob but BFQ's.
    fn default() -> Self {
        FakeGroup {
            anon: Bytes::ZERO,
            file: Bytes::ZERO,
            shmem: Bytes::ZERO,
            kernel: Bytes::ZERO,
            file_mapped: Bytes::ZERO,
            file_dirty: Bytes::ZERO,
            file_writeback: Bytes::ZERO,
            active_file: Bytes::ZERO,
            refault_pages: 0,
            memory_some_us: 0,
            memory_full_us: 0,
            io_some_us: 0,
            io_full_us: 0,
            cpu_some_us: 0,
            io: BTreeMap::new(),
            min: Limit::Bytes(Bytes::ZERO),
            low: Limit::Bytes(Bytes::ZERO),
            high: Limit::Max,
            max: Limit::Max,
            swap: Bytes::ZERO,
            swap_max: Limit::Max,
            io_weight: Some(100),
            bfq_weight: None,
            low_latency: None,
            reclaim: true,
            threaded: false,
            descendants: 0,
            dying: 0,
            io_cost_qos: None,
            io_cost_model: None,
            disk_stat: None,
            udev: None,
            events: NO_EVENTS,
            events_local: NO_EVENTS,
        }
    }
}

impl FakeGroup {
    /// `memory.current`.
    pub fn current(&self) -> Bytes {
        self.anon + self.file + self.kernel
    }

    /// Page cache that reclaim can take at once: clean, unmapped, not shmem.
    pub fn reclaimable(&self) -> Bytes {
        self.file - self.shmem - self.file_mapped - self.file_dirty - self.file_writeback
    }

    /// Takes up to this much page cache and returns the amount.
    fn take(&mut self, wanted: Bytes) -> Bytes {
        let taken = wanted.min(self.reclaimable());
        self.file = self.file - taken;
        self.active_file = self.active_file.min(self.file);
        taken
    }

    fn shrink_below(&mut self, limit: Limit) {
        if let Limit::Bytes(limit) = limit {
            self.take(self.current() - limit);
        }
    }

    /// The text of a file, appended; `pids` for `cgroup.procs`.
    pub(super) fn show(&self, file: File, pids: &[u32], out: &mut Vec<u8>) -> Result<(), Errno> {
        let mut text = String::with_capacity(1024);
        let shown = match file {
            File::MemoryCurrent => writeln!(text, "{}", self.current().0),
            File::MemoryStat => self.show_stat(&mut text),
            File::MemoryPressure => {
                show_pressure(&mut text, self.memory_some_us, self.memory_full_us)
            }
            File::IoPressure => show_pressure(&mut text, self.io_some_us, self.io_full_us),
            File::CpuPressure => show_pressure(&mut text, self.cpu_some_us, 0),
            File::MemoryLow => writeln!(text, "{}", self.low),
            File::MemoryHigh => writeln!(text, "{}", self.high),
            File::MemoryMax => writeln!(text, "{}", self.max),
            File::IoWeight => writeln!(text, "default {}", self.io_weight.ok_or(Errno::NOENT)?),
            File::IoBfqWeight => {
                writeln!(text, "default {}", self.bfq_weight.ok_or(Errno::NOENT)?)
            }
            File::IoStat => self.io.iter().try_for_each(|(device, (read, written))| {
                writeln!(
                    text,
                    "{device} rbytes={read} wbytes={written} rios=1 wios=1 dbytes=0 dios=0"
                )
            }),
            File::MemoryEvents => show_events(&self.events, &mut text),
            File::MemoryEventsLocal => show_events(&self.events_local, &mut text),
            File::MemoryReclaim if !self.reclaim => return Err(Errno::NOENT),
            File::MemoryReclaim => return Err(Errno::INVAL),
            File::CgroupProcs => pids.iter().try_for_each(|pid| writeln!(text, "{pid}")),
            File::CgroupEvents => {
                writeln!(text, "populated {}\nfrozen 0", u8::from(!pids.is_empty()))
            }
            File::CgroupControllers => writeln!(text, "cpu io memory pids"),
            File::BfqLowLatency => {
                let on = self.low_latency.ok_or(Errno::NOENT)?;
                writeln!(text, "{}", u8::from(on))
            }
            File::MemoryMin => writeln!(text, "{}", self.min),
            File::MemorySwapCurrent => writeln!(text, "{}", self.swap.0),
            File::MemorySwapMax => writeln!(text, "{}", self.swap_max),
            File::CgroupType if self.threaded => writeln!(text, "threaded"),
            File::CgroupType => writeln!(text, "domain"),
            File::CgroupStat => writeln!(
                text,
                "nr_descendants {}\nnr_dying_descendants {}",
                self.descendants, self.dying
            ),
            File::IoCostQos => {
                let qos = self.io_cost_qos.as_deref().ok_or(Errno::NOENT)?;
                writeln!(text, "{qos}")
            }
            File::IoCostModel => {
                let model = self.io_cost_model.as_deref().ok_or(Errno::NOENT)?;
                writeln!(text, "{model}")
            }
            File::DiskStat => {
                let stat = self.disk_stat.as_deref().ok_or(Errno::NOENT)?;
                writeln!(text, "{stat}")
            }
            File::Udev => write!(text, "{}", self.udev.as_deref().ok_or(Errno::NOENT)?),
        };
        shown.map_err(|_| Errno::IO)?;
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn show_stat(&self, text: &mut String) -> std::fmt::Result {
        let inactive = self.file - self.shmem - self.active_file;
        for (name, value) in [
            ("anon", self.anon.0),
            ("file", self.file.0),
            ("kernel", self.kernel.0),
            ("shmem", self.shmem.0),
            ("file_mapped", self.file_mapped.0),
            ("file_dirty", self.file_dirty.0),
            ("file_writeback", self.file_writeback.0),
            ("inactive_anon", 0),
            ("active_anon", self.anon.0),
            ("inactive_file", inactive.0),
            ("active_file", self.active_file.0),
            ("unevictable", 0),
            ("workingset_refault_anon", 0),
            ("workingset_refault_file", self.refault_pages),
            ("workingset_activate_file", 0),
            ("pgscan", 0),
            ("pgsteal", 0),
        ] {
            writeln!(text, "{name} {value}")?;
        }
        Ok(())
    }

    pub(super) fn has(&self, file: File) -> bool {
        match file {
            File::MemoryReclaim => self.reclaim,
            File::IoWeight => self.io_weight.is_some(),
            File::IoBfqWeight => self.bfq_weight.is_some(),
            File::BfqLowLatency => self.low_latency.is_some(),
            File::IoCostQos => self.io_cost_qos.is_some(),
            File::IoCostModel => self.io_cost_model.is_some(),
            _ => true,
        }
    }

    /// Does what the kernel does on a write.
    pub(super) fn store(
        &mut self,
        file: File,
        text: &str,
        no_swappiness: bool,
    ) -> Result<(), Errno> {
        let limit = || {
            parse_limit(text.as_bytes())
                .map(|limit| match limit {
                    Limit::Bytes(bytes) => Limit::Bytes(bytes.page_aligned()),
                    Limit::Max => Limit::Max,
                })
                .ok_or(Errno::INVAL)
        };
        match file {
            _ if !self.has(file) => return Err(Errno::NOENT),
            File::MemoryLow => self.low = limit()?,
            File::MemoryHigh => {
                self.high = limit()?;
                self.shrink_below(self.high);
            }
            File::MemoryMax => {
                self.max = limit()?;
                self.shrink_below(self.max);
            }
            File::IoCostQos => self.io_cost_qos = Some(text.to_owned()),
            File::IoCostModel => self.io_cost_model = Some(text.to_owned()),
            File::IoWeight => self.io_weight = Some(weight(text, 10_000)?),
            File::IoBfqWeight => self.bfq_weight = Some(weight(text, 1000)?),
            File::BfqLowLatency => {
                self.low_latency = Some(number(text.trim().as_bytes()).ok_or(Errno::INVAL)? != 0);
            }
            File::MemoryReclaim => {
                let (bytes, argument) = text.split_once(' ').unwrap_or((text, ""));
                let known =
                    argument.is_empty() || (!no_swappiness && argument.starts_with("swappiness="));
                if !known {
                    return Err(Errno::INVAL);
                }
                let wanted = Bytes(number(bytes.as_bytes()).ok_or(Errno::INVAL)?);
                if self.take(wanted) < wanted {
                    return Err(Errno::AGAIN);
                }
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }
}

fn show_events(events: &MemoryEvents, text: &mut String) -> std::fmt::Result {
    for (name, value) in [
        ("low", events.low),
        ("high", events.high),
        ("max", events.max),
        ("oom", events.oom),
        ("oom_kill", events.oom_kill),
    ] {
        if let Some(value) = value {
            writeln!(text, "{name} {value}")?;
        }
    }
    Ok(())
}

fn show_pressure(text: &mut String, some_us: u64, full_us: u64) -> std::fmt::Result {
    for (who, total) in [("some", some_us), ("full", full_us)] {
        writeln!(
            text,
            "{who} avg10=0.00 avg60=0.00 avg300=0.00 total={total}"
        )?;
    }
    Ok(())
}

fn weight(text: &str, most: u32) -> Result<u32, Errno> {
    let digits = text.trim().strip_prefix("default ").unwrap_or(text.trim());
    let weight = number(digits.as_bytes()).ok_or(Errno::INVAL)?;
    u32::try_from(weight)
        .ok()
        .filter(|weight| (1..=most).contains(weight))
        .ok_or(Errno::RANGE)
}
