//! The running observer: which groups the programs know, and what they counted of each.
//!
//! A tick reads each active group's counters once, from mapped memory. The list of groups goes to the kernel
//! only when it changes: first the map of watched cgroups, then the generation that makes the programs look
//! again.
//!
//! Invariants: links are dropped before the maps they use, and nothing is pinned, so nothing outlives the
//! observer, except a look at shared files that hangs. A group that found no slot is unknown, not idle.

use std::collections::{BTreeMap, HashMap};
use std::mem::offset_of;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use justitia_cgroup::{Fs, GroupId};
use justitia_policy::snapshot::{SharedFile, Traffic};
use justitia_policy::units::Bytes;
use justitia_policy::worth::Curve;
use libbpf_rs::{Link, MapCore as _, MapFlags, Object, OpenObject};
use rustix::time::{clock_gettime, ClockId};

use super::choice::{choose, Choice, Tier};
use super::counters::Counters;
use super::curves::Curves;
use super::estimate::Estimator;
use super::features::Coverage;
use super::memory::{ControlMemory, CounterMemory, ReuseMemory};
use super::reads::{self, Reads, Turn};
use super::sharing::{Sharing, USUAL};
use super::sizes::Sizes;
use super::slots::Slots;
use super::{attach_one, find, types, Error};
use crate::{is_list_of, ProcIo, Sample, TrafficSource, Watched};

/// The section of the places of threads.
const PLACES: &str = ".bss.places";
/// Maps whose entries come and go.
const HASHES: [&str; 6] = [
    "watched",
    "resolved",
    "doing",
    "prefetched",
    "readers",
    THREADS,
];
/// The bytes that each thread had read, while reads are sampled.
const THREADS: &str = "threads";

/// Counts traffic and page-cache use by BPF programs.
pub struct Observer {
    /// Dropped before the object, so that programs are detached first.
    links: Vec<Link>,
    sharing: Option<Sharing>,
    /// `None` in the tier that does not count reads.
    reads: Option<Reads>,
    memory: Arc<CounterMemory>,
    control: ControlMemory,
    object: Arc<Object>,
    sampled_at: Instant,
    choice: Choice,
    slots: Slots,
    groups: HashMap<GroupId, Account>,
    listed: Vec<GroupId>,
    /// Some group found no slot, or no memory.
    waiting: bool,
    samples: u64,
    page_bytes: u64,
    /// Source of bytes in the tier that does not count them.
    proc: Option<ProcIo>,
    /// Empty without that source.
    proc_samples: Vec<Sample>,
}

/// A watched group.
#[derive(Debug, Default)]
struct Account {
    slot: u32,
    /// Counters of its slot when the group was added.
    base: types::counters,
    last: Option<Sample>,
    /// Counters of its slot in the last sample.
    seen: types::counters,
    /// The estimated part, to be added to the counted reads; wraps.
    beside: Beside,
    estimator: Estimator,
    /// Reads of the last step are neither counted nor estimated.
    blind: bool,
}

/// The differences between reported and counted values of reads.
#[derive(Debug, Clone, Copy, Default)]
struct Beside {
    read_bytes: u64,
    asked: u64,
    readahead: u64,
}

impl Account {
    /// Counters since the group was added, if its slot holds `now`.
    fn told(&self, now: &types::counters) -> Counters {
        let mut counters = Counters::since(now, &self.base);
        let Beside {
            read_bytes,
            asked,
            readahead,
        } = self.beside;
        counters.read_bytes = counters.read_bytes.wrapping_add(read_bytes);
        counters.asked = counters.asked.wrapping_add(asked);
        counters.readahead = counters.readahead.wrapping_add(readahead);
        counters
    }

    /// A step ended in which each read was counted.
    fn counted(&mut self) {
        self.blind = false;
    }

    /// A step of `seconds` ended in which reads were sampled.
    fn estimate(&mut self, now: &types::counters, seconds: f64) {
        let step = Counters::since(now, &self.seen);
        let rchar = now.rchar.saturating_sub(self.seen.rchar);
        let (bytes, asked) = self.estimator.reads(rchar, seconds).unwrap_or_default();
        self.blind = self.estimator.reads(0, seconds).is_none();
        // Each page fetched ahead is taken to be used once.
        let readahead = step.fetched.saturating_sub(step.missed);
        for (beside, told, counted) in [
            (&mut self.beside.read_bytes, bytes as u64, step.read_bytes),
            (&mut self.beside.asked, asked as u64, step.asked),
            (&mut self.beside.readahead, readahead, step.readahead),
        ] {
            *beside = beside.wrapping_add(told).wrapping_sub(counted);
        }
        self.seen = *now;
    }
}

impl Observer {
    /// Loads and attaches what the coverage allows. A program that the kernel refuses all the same is left out, and
    /// its place is absent from `coverage` afterwards: only a module itself knows whether it has a function, and a
    /// compiler may have inlined one. `fs` is the source of bytes where BPF does not count them. Calls `loaded` once
    /// all programs are loaded and before the first thread begins: from then on the process may have fewer privileges.
    pub fn open(fs: Fs, coverage: &mut Coverage, loaded: impl FnOnce()) -> Result<Observer, Error> {
        let cpus = libbpf_rs::num_possible_cpus()
            .ok()
            .and_then(|cpus| u32::try_from(cpus).ok())
            .filter(|cpus| *cpus > 0)
            .ok_or(Error::Map(
                "counters",
                "the number of CPUs is not known".into(),
            ))?;
        let total = fs.read_host().total;
        let sizes = Sizes::of(total, cpus);
        let (choice, object, links) = loop {
            let choice = choose(coverage)?;
            let made = load_programs(&choice, &sizes)
                .and_then(|object| Ok((attach(&object, &choice)?, object)));
            match made {
                Ok((links, object)) => break (choice, Arc::new(object), links),
                Err(error) if error.program().is_some_and(|name| coverage.lose(name)) => {}
                Err(error) => return Err(error),
            }
        };
        loaded();
        let memory = Arc::new(CounterMemory::map(&object, sizes.slots, sizes.lanes)?);
        let control = ControlMemory::map(&object)?;
        let page_bytes = rustix::param::page_size() as u64;
        let reads = if choice.tier == Tier::Fentry {
            let ages = ReuseMemory::map(&object, sizes.reuses, sizes.asked_at)?;
            let most = total.unwrap_or(Bytes(u64::MAX));
            let curves = Curves::new(ages, Arc::clone(&memory), page_bytes, most);
            Some(Reads::start(&object, &memory, &choice, cpus, curves)?)
        } else {
            None
        };
        let sharing = Sharing::start(&object, &choice)?;
        return_freed_memory();
        Ok(Observer {
            links,
            sharing,
            reads,
            memory,
            control,
            sampled_at: Instant::now(),
            object,
            proc: (choice.tier == Tier::Tracepoints).then(|| ProcIo::new(fs)),
            choice,
            slots: Slots::new(sizes.slots),
            groups: HashMap::new(),
            listed: Vec::new(),
            waiting: false,
            samples: 0,
            page_bytes,
            proc_samples: Vec::new(),
        })
    }

    /// The part of the traffic that is counted in the kernel.
    pub fn tier(&self) -> Tier {
        self.choice.tier
    }

    /// Number of attached programs.
    pub fn attached(&self) -> usize {
        self.links.len() + self.reads.as_ref().map_or(0, Reads::attached)
    }

    /// True while the bytes and pages that groups read are estimated, not counted.
    pub fn estimates(&self) -> bool {
        self.reads.as_ref().is_some_and(Reads::sampled)
    }

    /// Rate of reads up to which each is counted. `None`: each is counted at any rate.
    pub fn most_reads_per_s(&self) -> Option<f64> {
        self.reads.as_ref().and_then(Reads::most_per_s)
    }

    /// Entries in use, by map.
    pub fn map_entries(&self) -> BTreeMap<&'static str, usize> {
        HASHES
            .into_iter()
            .filter_map(|name| Some((name, find(&self.object, name).ok()?.keys().count())))
            .collect()
    }

    /// Counters of a group of the last sample, up to now. `None` if it is not watched.
    pub fn counters(&self, id: GroupId) -> Option<Counters> {
        let account = self.groups.get(&id)?;
        let mut now = self.memory.read(account.slot)?;
        if self.estimates() {
            // Reads counted in windows are not reported; estimates are.
            now.read_bytes = account.seen.read_bytes;
            now.asked_pages = account.seen.asked_pages;
            now.readahead_pages = account.seen.readahead_pages;
        }
        Some(account.told(&now))
    }

    fn runs(&self, program: &str) -> bool {
        self.choice.programs.contains(&program)
    }

    /// Adapts to another list of groups.
    fn list(&mut self, groups: &[Watched<'_>]) {
        if is_list_of(&self.listed, groups) && !self.waiting {
            return;
        }
        self.listed = groups.iter().map(|watched| watched.group.id()).collect();
        let changes = self.slots.assign(&self.listed, self.samples);
        let groups_map = find(&self.object, "groups");
        let name_slot = |slot: u32, id: u64| {
            // Without it, the group's use of files is not known; nothing else depends on it.
            let _ = groups_map
                .as_ref()
                .map(|map| map.update(&slot.to_ne_bytes(), &id.to_ne_bytes(), MapFlags::ANY));
        };
        for id in &changes.removed {
            if let Some(account) = self.groups.remove(id) {
                name_slot(account.slot, 0);
            }
        }
        for &(id, slot) in &changes.added {
            name_slot(slot, id.0);
            if let Some(base) = self.memory.read(slot) {
                let account = Account {
                    slot,
                    base,
                    seen: base,
                    ..Account::default()
                };
                self.groups.insert(id, account);
            }
        }
        self.waiting = self.groups.len() < self.listed.len();
        if changes.added.is_empty() && changes.removed.is_empty() {
            return;
        }
        if let Ok(watched) = find(&self.object, "watched") {
            for id in &changes.removed {
                // It may never have been inserted.
                let _ = watched.delete(&id.0.to_ne_bytes());
            }
            for (id, slot) in &changes.added {
                let put = watched.update(&id.0.to_ne_bytes(), &slot.to_ne_bytes(), MapFlags::ANY);
                if put.is_err() {
                    // Unknown, not idle, until a later sample finds memory.
                    self.groups.remove(id);
                    self.slots.take_back(*id, self.samples);
                    name_slot(*slot, 0);
                    self.waiting = true;
                }
            }
        }
        self.control.next_generation();
        let slots = || self.groups.iter().map(|(id, account)| (account.slot, *id));
        if let Some(reads) = &self.reads {
            reads.watch(slots());
            let goes_on = !reads.sampled();
            reads.curves().watch(slots().map(|(slot, _)| slot), goes_on);
        }
    }

    /// Estimates the reads since the last sample, if programs did not count them all.
    fn count_reads(&mut self) {
        let seconds = self.sampled_at.elapsed().as_secs_f64();
        self.sampled_at = Instant::now();
        let Some(reads) = &mut self.reads else { return };
        let control = &self.control;
        let turn = reads.turn(|| control.count_threads_since(now_ns()));
        if turn == Turn::Counted {
            self.groups.values_mut().for_each(Account::counted);
            return;
        }
        for (group, seen) in reads.seen() {
            if let Some(account) = self.groups.get_mut(&group) {
                account.estimator.learn(&seen);
            }
        }
        for account in self.groups.values_mut() {
            let Some(now) = self.memory.read(account.slot) else {
                continue;
            };
            match turn {
                Turn::CountedLast => {
                    account.seen = now;
                    account.counted();
                }
                _ => account.estimate(&now, seconds),
            }
        }
        if turn == Turn::SampledLast {
            self.control.trust_readahead_since(now_ns());
            for account in self.groups.values_mut() {
                account.estimator = Estimator::default();
            }
            if let Ok(threads) = find(&self.object, THREADS) {
                for thread in threads.keys() {
                    let _ = threads.delete(&thread);
                }
            }
        }
    }

    /// Looks now for files that several groups use, even if the next look is not due. Waits up to this long
    /// for what it finds, and as long for a look that was under way.
    pub fn look_for_shared_files(&mut self, wait: Duration) {
        self.hear_of_shared_files(wait);
        if let Some(sharing) = &mut self.sharing {
            sharing.look(&self.control);
        }
        self.hear_of_shared_files(wait);
    }

    fn hear_of_shared_files(&mut self, wait: Duration) {
        let Some(sharing) = &mut self.sharing else {
            return;
        };
        let (groups, slots) = (&self.groups, &self.slots);
        let group_of = |slot: u64| slots.owner(u32::try_from(slot).ok()?);
        let is_watched = |id: GroupId| groups.contains_key(&id);
        sharing.hear(wait, self.page_bytes, &group_of, &is_watched);
    }

    fn sample_of(&mut self, index: usize, watched: &Watched<'_>) -> Sample {
        let proc = self.proc_samples.get(index).copied();
        let id = watched.group.id();
        let Some(counters) = self.counters(id) else {
            return proc.unwrap_or_default();
        };
        let blind = self.groups.get(&id).is_some_and(|account| account.blind);
        let reads = self.reads.as_ref().is_some_and(Reads::known) && !blind;
        let cache = counters.cache(&|program| self.runs(program), reads);
        let traffic = match proc {
            Some(proc) => proc.traffic,
            None => Traffic {
                read_bytes: reads.then_some(counters.read_bytes),
                write_bytes: Some(counters.write_bytes),
                missed_bytes: Some(counters.fetched.saturating_mul(self.page_bytes)),
            },
        };
        Sample { traffic, cache }
    }
}

impl TrafficSource for Observer {
    fn missed_events(&self) -> Option<u64> {
        let mut missed = self.control.lost();
        for program in self.object.progs_mut() {
            if self.runs(&program.name().to_string_lossy()) {
                missed = missed.saturating_add(recursion_misses(&program)?);
            }
        }
        Some(missed)
    }

    fn sample(&mut self, groups: &[Watched<'_>], out: &mut Vec<Sample>) {
        self.samples += 1;
        self.list(groups);
        if let Some(proc) = &mut self.proc {
            proc.sample(groups, &mut self.proc_samples);
        }
        self.count_reads();
        out.clear();
        for (index, watched) in groups.iter().enumerate() {
            let id = watched.group.id();
            let last = self.groups.get(&id).and_then(|account| account.last);
            let sample = match last {
                Some(last) if !watched.active => last,
                _ => self.sample_of(index, watched),
            };
            if let Some(account) = self.groups.get_mut(&id) {
                account.last = Some(sample);
            }
            out.push(sample);
        }
        if self.sharing.as_ref().is_some_and(Sharing::is_due) {
            self.look_for_shared_files(USUAL);
        } else {
            self.hear_of_shared_files(Duration::ZERO);
        }
        if let Some(reads) = &self.reads {
            let mut curves = reads.curves();
            if let Some(then) = curves.due(reads.sampled()) {
                curves.look(then);
            }
        }
    }

    fn worth(&self, group: GroupId) -> Option<Curve> {
        let slot = self.groups.get(&group)?.slot;
        self.reads.as_ref()?.curves().curve(slot).cloned()
    }

    fn shared(&mut self) -> Option<Vec<SharedFile>> {
        self.sharing.as_ref()?.files.clone()
    }

    fn name(&self) -> &'static str {
        if self.estimates() {
            "bpf, reads estimated"
        } else {
            "bpf"
        }
    }
}

/// Loads the chosen programs.
fn load_programs(choice: &Choice, sizes: &Sizes) -> Result<Object, Error> {
    let refused = |error: &libbpf_rs::Error| Error::Load {
        reason: justitia_bpf::reason().unwrap_or_else(|| error.to_string()),
        log: justitia_bpf::said(),
        program: justitia_bpf::failed_program(),
    };
    let object = justitia_bpf::object!("observe");
    let mut object = justitia_bpf::open("justitia", object).map_err(|e| refused(&e))?;
    configure(&mut object, choice, sizes).map_err(|e| refused(&e))?;
    object.load().map_err(|e| refused(&e))
}

fn configure(object: &mut OpenObject, choice: &Choice, sizes: &Sizes) -> libbpf_rs::Result<()> {
    for mut program in object.progs_mut() {
        let wanted = choice.programs.iter().any(|name| program.name() == *name);
        program.set_autoload(wanted);
    }
    let page_shift = rustix::param::page_size().trailing_zeros();
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let entries = match name.as_str() {
            "counters" => sizes.slots * sizes.lanes,
            "groups" => sizes.slots,
            "resolved" => sizes.resolved,
            "prefetched" => sizes.prefetched,
            "readers" => sizes.readers,
            "doing" => sizes.doing,
            "reuses" => sizes.reuses,
            "asked_at" => sizes.asked_at,
            // The programs say how many lie in a set.
            "files" => sizes.sets * map.max_entries(),
            _ => 0,
        };
        if entries > 0 {
            map.set_max_entries(entries)?;
        } else if name == PLACES {
            map.set_value_size(sizes.places * size_of::<types::doing>() as u32)?;
        } else if name.ends_with(".rodata") {
            let mut settings = [0; size_of::<types::settings>()];
            for (at, value) in [
                (offset_of!(types::settings, lanes), sizes.lanes),
                (offset_of!(types::settings, page_shift), page_shift),
                (offset_of!(types::settings, place_mask), sizes.places - 1),
                (
                    offset_of!(types::settings, set_shift),
                    64 - sizes.sets.trailing_zeros(),
                ),
                (offset_of!(types::settings, asked_mask), sizes.asked_at - 1),
            ] {
                settings[at..at + size_of::<u32>()].copy_from_slice(&value.to_ne_bytes());
            }
            map.set_initial_value(&settings)?;
        }
    }
    Ok(())
}

/// Nanoseconds of the clock that the programs use.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Attaches the chosen programs except the iterators and those of reads. If one fails, those attached before
/// it are detached.
fn attach(object: &Object, choice: &Choice) -> Result<Vec<Link>, Error> {
    let mut links = Vec::new();
    for program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let iterator = program.section().to_string_lossy().starts_with("iter");
        let of_reads = reads::PROGRAMS.contains(&name.as_str()) || name == reads::ENDS;
        if choice.programs.contains(&name.as_str()) && !iterator && !of_reads {
            links.push(attach_one(object, &name)?);
        }
    }
    Ok(links)
}

/// Returns memory to the kernel. libbpf has read the kernel's type information and freed it, but the
/// allocator would keep that memory for a reuse that never comes.
fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only gives back pages that nothing uses.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Number of times that a program was not run because it was already running on that CPU.
fn recursion_misses(program: &libbpf_rs::ProgramMut<'_>) -> Option<u64> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: info and its length agree, and it asks for none of the arrays it can point to.
    let result = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(
            program.as_fd().as_raw_fd(),
            &raw mut info,
            &raw mut length,
        )
    };
    (result == 0).then_some(info.recursion_misses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_joined_as_sampling_ended_is_known_once_each_read_is_counted() {
        let none = types::counters::default();
        let mut account = Account::default();
        account.estimate(&none, 1.0);
        assert!(account.blind, "no window saw it");
        account.counted();
        assert!(!account.blind);
    }
}
