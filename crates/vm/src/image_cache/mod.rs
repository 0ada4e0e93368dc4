//! Manages the images of all machines: discovers them, counts requests, drops pages, divides memory.
//!
//! [`ImageCache::tick`] is one round. The pure policy ([`crate::policy`]) decides which pages go, and this
//! module drops them. Nothing has to be restored when the image cache ends: the guest or the kernel fetches a
//! dropped page again when it needs it.
//!
//! Units: pages in counters, bytes in the division of memory and in the report, nanoseconds of the monotonic
//! clock.

mod kept;
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use justitia_cgroup::{HostMemory, Processes};
use justitia_policy::units::{Bytes, Weight};

use crate::discover::{find, Machine};
use crate::image::{Identity, Image};
use crate::policy::fairness::{self, give, reserve, watermarks, Memory};
use crate::policy::Replacement;
use crate::report::Report;
use crate::track::{now_ns, types, Book, Tracker};
use crate::Error;
use kept::Kept;

/// Interval between two scans for machines.
const DISCOVER_EVERY: Duration = Duration::from_secs(2);
/// Interval between two reads of whole images' residency.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub replacement: Replacement,
    /// Weights of machines, by name; other machines have the default.
    pub weights: Vec<(String, Weight)>,
    /// Attach no programs and count nothing, whatever the policy.
    pub only_look: bool,
}

#[derive(Debug)]
pub struct ImageCache {
    processes: Processes,
    memory: HostMemory,
    /// `None`: requests are not counted.
    tracker: Option<Tracker>,
    settings: Settings,
    machines: Vec<Machine>,
    images: BTreeMap<Identity, Kept>,
    /// Result of the last division of memory.
    shares: Shares,
    discovered_ns: Option<u64>,
    looked_ns: Option<u64>,
    /// Total of fetched pages at the last round.
    fetched: u64,
    /// The last error that did not stop the image cache.
    complaint: Option<String>,
}

/// The division of memory; `watermarks` and `held` are in the order of the machines.
#[derive(Debug, Default)]
struct Shares {
    memory: Option<Memory>,
    reserve: Option<Bytes>,
    watermarks: Vec<Bytes>,
    held: Vec<Bytes>,
}

impl ImageCache {
    /// Attaches the programs, discovers machines, and reads the host's memory.
    ///
    /// # Errors
    /// Environment: requests cannot be counted here, and `only_look` is not set.
    pub fn start(processes: Processes, settings: Settings) -> Result<ImageCache, Error> {
        let tracker = (!settings.only_look).then(Tracker::open).transpose()?;
        let mut image_cache = ImageCache {
            processes,
            memory: HostMemory::default(),
            tracker,
            settings,
            machines: Vec::new(),
            images: BTreeMap::new(),
            shares: Shares::default(),
            discovered_ns: None,
            looked_ns: None,
            fetched: 0,
            complaint: None,
        };
        image_cache.discover(now_ns())?;
        image_cache.share(now_ns());
        Ok(image_cache)
    }

    /// Changes the policy from the next round on.
    pub fn switch(&mut self, replacement: Replacement) {
        let now = now_ns();
        for kept in self.images.values_mut() {
            if replacement.admits_on_second() && !self.settings.replacement.admits_on_second() {
                kept.look_at_all(now);
            }
        }
        self.settings.replacement = replacement;
    }

    /// Takes the last error since the previous call that did not stop the image cache, in one line.
    pub fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// One round.
    ///
    /// # Errors
    /// The processes cannot be listed.
    pub fn tick(&mut self) -> Result<(), Error> {
        let now = now_ns();
        let due = |last: Option<u64>, every: Duration| {
            last.is_none_or(|last| u128::from(now - last) >= every.as_nanos())
        };
        let ended = |of: &Machine| self.processes.started(of.pid) != Some(of.started);
        // An image that nobody uses any more must not stay open: it may be unmapped or handed over next.
        if due(self.discovered_ns, DISCOVER_EVERY) || self.machines.iter().any(ended) {
            self.discover(now)?;
        }
        for kept in self.images.values_mut() {
            kept.note_used(now);
            if self.settings.replacement.admits_on_second() {
                kept.admit_second(now);
            } else {
                kept.pending.clear();
            }
        }
        if due(self.looked_ns, LOOK_EVERY) {
            self.looked_ns = Some(now);
            self.images.values_mut().for_each(Kept::look);
        }
        self.share(now);
        Ok(())
    }

    pub fn report(&self) -> Report {
        tell::report(self)
    }

    /// Updates the machines and images: adds new ones and removes those that ended.
    fn discover(&mut self, now: u64) -> Result<(), Error> {
        self.discovered_ns = Some(now);
        let known = |identity| self.images.contains_key(&identity);
        let found = find(&self.processes, &known)?;
        for (identity, image) in found.images {
            let book = self.register(&image);
            self.images.insert(identity, Kept::new(image, book));
        }
        if let Some(tracker) = &self.tracker {
            let of = |machine: &Machine| (machine.pid, machine.started);
            let before: BTreeSet<(u32, u64)> = self.machines.iter().map(of).collect();
            let now: BTreeSet<(u32, u64)> = found.machines.iter().map(of).collect();
            for (gone, _) in before.difference(&now) {
                tracker.remove_machine(*gone);
            }
            for (new, _) in now.difference(&before) {
                if let Err(error) = tracker.add_machine(*new) {
                    self.complaint = Some(error.to_string());
                }
            }
        }
        self.machines = found.machines;
        for (identity, kept) in &mut self.images {
            let holds = |machine: &&Machine| {
                let mut held = machine.images.iter();
                held.any(|held| held.identity == *identity && !held.direct)
            };
            let users = self.machines.iter().filter(holds);
            kept.users = users.map(|machine| machine.pid).collect();
        }
        // As in the paper: the counts end when the last machine closes the image.
        self.images.retain(|_, kept| {
            if kept.users.is_empty() {
                if let Some(tracker) = &mut self.tracker {
                    tracker.forget(kept.image.key);
                }
            }
            !kept.users.is_empty()
        });
        self.grow();
        Ok(())
    }

    fn register(&mut self, image: &Image) -> Option<Book> {
        let tracker = self.tracker.as_mut()?;
        let book = tracker.register(image.key, pages_to_count(image)?, None);
        book.map_err(|error| self.complaint = Some(format!("{}: {error}", image.path)))
            .ok()
    }

    /// Gives a larger book to each image that outgrew its book.
    fn grow(&mut self) {
        let Some(tracker) = &mut self.tracker else {
            return;
        };
        for kept in self.images.values_mut() {
            let (Some(book), Some(pages)) = (&kept.book, pages_to_count(&kept.image)) else {
                continue;
            };
            if pages > book.pages() {
                match tracker.register(kept.image.key, pages, Some(book)) {
                    Ok(larger) => kept.book = Some(larger),
                    Err(error) => self.complaint = Some(error.to_string()),
                }
            }
        }
    }

    /// Divides memory. When it is short, takes from machines above their watermarks.
    fn share(&mut self, now: u64) {
        self.shares = Shares::default();
        let host = self.memory.read();
        let (Some(free), Some(cache)) = (host.free, host.file) else {
            return;
        };
        let memory = Memory {
            free,
            cache,
            high_watermark: host.high_watermark.unwrap_or_default(),
        };
        let page = rustix::param::page_size() as u64;
        let counts = self.images.values().filter_map(|kept| self.counts(kept));
        let fetched: u64 = counts.map(|counts| counts.fetched_pages()).sum();
        let intake = Bytes(fetched.saturating_sub(self.fetched) * page);
        self.fetched = fetched;
        let reserve = reserve(&memory, intake);
        let machines = self.shared_machines();
        let marks = watermarks(&memory, &machines);
        let gives = give(&machines, &marks, free, reserve);
        if self.settings.replacement.evicts() && gives.iter().any(|gives| *gives > Bytes::ZERO) {
            self.take(&machines, &marks, &gives);
            self.looked_ns = Some(now);
            self.images.values_mut().for_each(Kept::look);
        }
        self.shares = Shares {
            memory: Some(memory),
            reserve: Some(reserve),
            held: self.shared_machines().iter().map(|one| one.held).collect(),
            watermarks: marks,
        };
    }

    /// Counters of an image; `None`: not counted.
    fn counts(&self, kept: &Kept) -> Option<types::image> {
        self.tracker.as_ref()?.image(kept.image.key)
    }

    /// Counters of a machine; `None`: not counted.
    fn counts_of(&self, machine: &Machine) -> Option<types::machine> {
        self.tracker.as_ref()?.machine(machine.pid)
    }

    /// The images that a machine holds.
    fn images_of(&self, machine: &Machine) -> impl Iterator<Item = &Kept> {
        let pid = machine.pid;
        let images = self.images.values();
        images.filter(move |kept| kept.users.contains(&pid))
    }

    /// The machines as the policy sees them.
    fn shared_machines(&self) -> Vec<fairness::Machine> {
        let page = rustix::param::page_size() as u64;
        let machine = |machine: &Machine| {
            let held = self.images_of(machine).map(|kept| {
                let cached = kept.resident.map_or(0, |resident| resident.cached);
                cached * page / kept.users.len().max(1) as u64
            });
            fairness::Machine {
                weight: self.weight(&machine.name),
                held: Bytes(held.sum()),
                used_at: self.counts_of(machine).map_or(0, |counts| counts.used_ns),
            }
        };
        self.machines.iter().map(machine).collect()
    }

    fn weight(&self, name: &str) -> Weight {
        let mut weights = self.settings.weights.iter();
        weights
            .find(|(of, _)| of == name)
            .map_or(Weight::DEFAULT, |(_, weight)| *weight)
    }

    /// Takes from each machine what it gives: first from images that it alone holds, then from shared ones.
    /// An image is spared if any machine that holds it is at or below its watermark.
    fn take(&mut self, machines: &[fairness::Machine], marks: &[Bytes], gives: &[Bytes]) {
        let page = rustix::param::page_size() as u64;
        let above: Vec<u32> = (self.machines.iter().zip(machines).zip(marks))
            .filter(|((_, shared), mark)| shared.held > **mark)
            .map(|((machine, _), _)| machine.pid)
            .collect();
        let replacement = self.settings.replacement;
        for (machine, gives) in self.machines.iter().zip(gives) {
            let mut pages = gives.0 / page;
            for shared in [false, true] {
                for kept in self.images.values_mut() {
                    let is_its = kept.users.contains(&machine.pid)
                        && (kept.users.len() > 1) == shared
                        && kept.users.iter().all(|user| above.contains(user));
                    if pages > 0 && is_its {
                        pages = pages.saturating_sub(kept.give(pages, replacement));
                    }
                }
            }
        }
    }
}

/// Pages that an image may grow to. A file that outgrows them gets a larger book.
fn pages_to_count(image: &Image) -> Option<u64> {
    let bytes = image.bytes().ok()?;
    let grown = image.qcow2.as_ref().map_or(0, |header| header.grown(bytes));
    Some(bytes.max(grown).div_ceil(rustix::param::page_size() as u64))
}

impl Drop for ImageCache {
    fn drop(&mut self) {
        if let Some(tracker) = &mut self.tracker {
            for kept in self.images.values() {
                tracker.forget(kept.image.key);
            }
        }
    }
}
