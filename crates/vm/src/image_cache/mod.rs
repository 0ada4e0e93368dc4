//! Looks after the images of all machines: discovers, counts, drops, shares.
//!
//! [`ImageCache::tick`] is one round. What is to be dropped is decided by the pure policy
//! ([`crate::policy`]); here is only the carrying out. Nothing has to be put back when the
//! image cache ends: what it dropped the guest or the kernel fetches again when it is wanted.
//!
//! Units: pages where the policy counts, bytes in the report, nanoseconds of the monotonic clock.

mod kept;
mod tell;

use std::collections::BTreeMap;
use std::time::Duration;

use justitia_cgroup::{HostMemory, Processes};
use justitia_policy::units::{Bytes, Weight};

use crate::discover::{find, Machine};
use crate::image::{Identity, Image};
use crate::policy::fairness::{self, give, reserve, watermarks, Memory};
use crate::policy::Replacement;
use crate::report::Report;
use crate::track::{now_ns, Book, Tracker};
use crate::Error;
use kept::Kept;

/// How often machines are looked for.
const DISCOVER_EVERY: Duration = Duration::from_secs(2);
/// How often whole images are asked what of them is cached.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What an image cache is to do.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The policy.
    pub replacement: Replacement,
    /// Weights of machines, by name; the others have the default.
    pub weights: Vec<(String, Weight)>,
    /// Only look: count nothing, whatever the policy.
    pub only_look: bool,
}

/// Looks after images.
#[derive(Debug)]
pub struct ImageCache {
    processes: Processes,
    memory: HostMemory,
    /// `None`: requests are not counted.
    tracker: Option<Tracker>,
    settings: Settings,
    machines: Vec<Machine>,
    images: BTreeMap<Identity, Kept>,
    /// What the last rounds found.
    shares: Shares,
    discovered_ns: Option<u64>,
    looked_ns: Option<u64>,
    /// Pages that had been fetched by the last round.
    fetched: u64,
    /// What went wrong last that the image cache can live with.
    complaint: Option<String>,
}

/// Who may hold how much.
#[derive(Debug, Default)]
struct Shares {
    memory: Option<Memory>,
    reserve: Option<Bytes>,
    watermarks: Vec<Bytes>,
    held: Vec<Bytes>,
}

impl ImageCache {
    /// Starts: attaches the programs, and takes stock.
    ///
    /// # Errors
    /// Environment: requests cannot be counted here, and the settings do not say to only look.
    pub fn start(processes: Processes, settings: Settings) -> Result<ImageCache, Error> {
        let tracker = if settings.only_look {
            None
        } else {
            Some(Tracker::open()?)
        };
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

    /// The policy in force.
    pub fn replacement(&self) -> Replacement {
        self.settings.replacement
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

    /// What went wrong since this was last asked, in one line; the image cache goes on.
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
        if due(self.discovered_ns, DISCOVER_EVERY) {
            self.discover(now)?;
        }
        for kept in self.images.values_mut() {
            kept.note_used(now);
            if self.settings.replacement.admits_on_second() {
                kept.admit_second(now);
            } else {
                kept.admit_all();
            }
        }
        if due(self.looked_ns, LOOK_EVERY) {
            self.looked_ns = Some(now);
            self.images.values_mut().for_each(Kept::look);
        }
        self.share(now);
        Ok(())
    }

    /// What there is to tell.
    pub fn report(&self) -> Report {
        tell::report(self)
    }

    /// Machines and images that came and went.
    fn discover(&mut self, now: u64) -> Result<(), Error> {
        self.discovered_ns = Some(now);
        let known = |identity| self.images.contains_key(&identity);
        let found = find(&self.processes, &known)?;
        for (identity, image) in found.images {
            let book = self.register(&image);
            self.images.insert(identity, Kept::new(image, book));
        }
        if let Some(tracker) = &self.tracker {
            let is_new = |machine: &&Machine, among: &[Machine]| {
                let same = |old: &Machine| old.pid == machine.pid && old.started == machine.started;
                !among.iter().any(same)
            };
            for gone in self
                .machines
                .iter()
                .filter(|old| is_new(old, &found.machines))
            {
                tracker.remove_machine(gone.pid);
            }
            for new in found
                .machines
                .iter()
                .filter(|new| is_new(new, &self.machines))
            {
                if let Err(error) = tracker.add_machine(new.pid) {
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
            kept.users = self
                .machines
                .iter()
                .filter(holds)
                .map(|machine| machine.pid)
                .collect();
        }
        // The paper: what was counted goes with the last who has the image open.
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
        pages_to_count(image).and_then(|pages| {
            tracker
                .register(image.key, pages, None)
                .map_err(|error| self.complaint = Some(format!("{}: {error}", image.path)))
                .ok()
        })
    }

    /// Images that have become larger than their books get larger ones.
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

    /// Machines above their watermarks give when memory is short.
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
        let fetched: u64 = self.fetched_pages();
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

    fn fetched_pages(&self) -> u64 {
        let Some(tracker) = &self.tracker else {
            return 0;
        };
        let counts = self
            .images
            .values()
            .filter_map(|kept| tracker.image(kept.image.key));
        counts.map(|counts| counts.fetched).sum()
    }

    /// The machines as the policy sees them.
    fn shared_machines(&self) -> Vec<fairness::Machine> {
        let page = rustix::param::page_size() as u64;
        let machine = |machine: &Machine| {
            let images = self.images.values();
            let held = images.filter(|kept| kept.users.contains(&machine.pid));
            let held = held.map(|kept| {
                let cached = kept.resident.map_or(0, |resident| resident.cached);
                cached * page / kept.users.len().max(1) as u64
            });
            let counts = self
                .tracker
                .as_ref()
                .and_then(|tracker| tracker.machine(machine.pid));
            fairness::Machine {
                weight: self.weight(&machine.name),
                held: Bytes(held.sum()),
                used_at: counts.map_or(0, |counts| counts.used_ns),
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

    /// Takes from each machine what it gives: from its own images, then from those that it shares
    /// with machines above their watermarks only.
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

/// Pages that an image may come to have: a qcow2 file grows to its disk's size and its tables.
fn pages_to_count(image: &Image) -> Option<u64> {
    let bytes = image.bytes().ok()?;
    let disk = image.qcow2.as_ref().map_or(0, |header| {
        // Tables: 8 bytes of L2 and 2 of refcounts for each cluster, and the header.
        let clusters = header.disk_bytes.div_ceil(header.cluster_bytes);
        header
            .disk_bytes
            .saturating_add(clusters * 10 + 4 * header.cluster_bytes)
    });
    // A damaged header may say anything; sparse files have ends too.
    let disk = disk.min(1 << 46);
    Some(bytes.max(disk).div_ceil(rustix::param::page_size() as u64))
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
