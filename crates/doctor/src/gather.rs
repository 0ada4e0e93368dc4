//! Reads the facts: one pass over the host, and a second one over the counters behind rates.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use justitia_cgroup::parse::{host, io, memory, single};
use justitia_cgroup::survey::{page_size, HostFacts, HostFiles, Known, Unread};
use justitia_cgroup::{xattr, Buffer, Child, Error, File, Fs, Group, GroupId};
use justitia_discover::Owners;
use justitia_policy::units::Bytes;

use crate::facts::{is_within, no_second_look, Facts, GroupFacts};

/// The sources of facts.
pub struct Look<'a> {
    /// The host's own files.
    pub host: &'a dyn HostFiles,
    /// Opens the host's cgroups, or returns the reason why they cannot be read.
    pub groups: &'a dyn Fn(&HostFacts) -> Known<Fs>,
    /// The weights that owners stated.
    pub owners: &'a Owners,
    /// Paths that a running agent manages, or the reason why it cannot be asked.
    pub managed: Known<HashSet<String>>,
    /// Time between the two reads; zero: only one.
    pub window: Duration,
    /// Waits for `window`.
    pub wait: &'a mut dyn FnMut(Duration),
}

/// Reads all facts. A group that vanishes during the first pass is left out.
pub fn gather(look: Look) -> Facts {
    let host = HostFacts::read(look.host);
    let groups = (look.groups)(&host);
    let mount_point = match host.cgroup2() {
        Ok(Some(mount)) => mount.mount_point.clone(),
        _ => String::new(),
    };
    let mut facts = Facts {
        disk_counters: [0, 1].map(|_| Err(no_second_look())),
        host,
        mount_point,
        tree: Ok(()),
        groups: Vec::new(),
        closed: Vec::new(),
        window_s: None,
        page: page_size(),
        io_cost: Err(Unread::new("io.cost", "no cgroups could be read")),
        reclaim: None,
    };
    let mut walk = Walk {
        facts: &mut facts,
        owners: look.owners,
        managed: look.managed,
        buffer: Buffer::new(),
        seen: Vec::new(),
    };
    match &groups {
        Ok(fs) => walk.whole_tree(fs),
        Err(unread) => walk.facts.tree = Err(unread.clone()),
    }
    let begin = Instant::now();
    walk.facts.disk_counters[0] = HostFacts::disk_counters(look.host);
    if look.window > Duration::ZERO {
        (look.wait)(look.window);
        if let Ok(fs) = &groups {
            walk.second_look(fs, look.window);
        }
        walk.facts.disk_counters[1] = HostFacts::disk_counters(look.host);
        let window = begin.elapsed().max(look.window);
        walk.facts.window_s = Some(window.as_secs_f64());
    }
    facts
}

struct Walk<'a> {
    facts: &'a mut Facts,
    owners: &'a Owners,
    managed: Known<HashSet<String>>,
    buffer: Buffer,
    /// Identity and time of the first read for each of the facts' groups, and true if others than root may make
    /// groups below it. The groups are not kept open: there may be more of them than a process may have open files.
    seen: Vec<(GroupId, Instant, bool)>,
}

impl Walk<'_> {
    fn whole_tree(&mut self, fs: &Fs) {
        let root = fs.open("/").and_then(|root| {
            self.group(fs, &root, None)?;
            Ok(root)
        });
        match root {
            Ok(root) => self.facts.io_cost = self.io_cost(&root),
            Err(error) => {
                self.facts.tree = Err(unread("the root cgroup", &error));
                return;
            }
        }
        let mut next = 0;
        let mut children: Vec<Child> = Vec::new();
        while next < self.facts.groups.len() {
            let parent = self.facts.groups[next].path.clone();
            if let Err(error) = fs.children(&parent, usize::MAX, &mut children) {
                if !error.is_gone() {
                    self.facts.closed.push(unread(&parent, &error));
                }
            }
            children.sort_unstable();
            for child in children.drain(..) {
                let path = format!("{}/{}", parent.trim_end_matches('/'), child.name);
                let seen = fs
                    .open(&path)
                    .and_then(|group| self.group(fs, &group, Some(next)));
                match seen {
                    Ok(()) => {
                        let at = self.facts.groups.len() - 1;
                        self.facts.groups[next].children.push(at);
                    }
                    Err(error) if error.is_gone() => {}
                    Err(error) => self.facts.closed.push(unread(&path, &error)),
                }
            }
            next += 1;
        }
    }

    fn io_cost(&mut self, root: &Group) -> Known<Option<Vec<justitia_cgroup::Device>>> {
        let devices = root.known(File::IoCostQos, &mut self.buffer, |text| {
            Some(host::io_cost(text))
        });
        devices.unwrap_or_else(|error| Err(unread("io.cost", &error)))
    }

    /// Reads each file of a group once. An error means that the group is gone.
    fn group(&mut self, fs: &Fs, group: &Group, parent: Option<usize>) -> Result<(), Error> {
        let path = group.path().to_owned();
        let seen = Instant::now();
        let buffer = &mut self.buffer;
        // The root has statistics but neither limits nor weights, and its pressure is the host's.
        let inner = parent.map(|_| group);
        let workload = self.owners.workload(&path);
        let inside = parent.is_some_and(|at| self.seen[at].2);
        let owner = fs.owner(&path, None).ok();
        let names = self.owners.attributes(&path, owner, inside);
        let asked = match stated(group, names) {
            Ok(xattr) => Ok(self.owners.weight(&path, xattr.as_deref())),
            Err(error) if error.is_gone() => return Err(error),
            Err(error) => Err(unread(&path, &error)),
        };
        let bytes = |text: &[u8]| single(text).map(Bytes);
        let is_threaded = |text: &[u8]| Some(text.trim_ascii() == b"threaded");
        let counts = |text: &[u8]| Some(memory::events(text));
        let managed = self.managed.as_ref().map_err(Clone::clone);
        let facts = GroupFacts {
            parent,
            children: Vec::new(),
            workload,
            weighed: managed
                .clone()
                .map(|paths| paths.iter().any(|managed| is_within(managed, &path))),
            managed: managed.map(|paths| paths.contains(&path)),
            threaded: known(inner, File::CgroupType, buffer, is_threaded)?
                .map(Option::unwrap_or_default),
            min: known(inner, File::MemoryMin, buffer, memory::limit)?,
            low: known(inner, File::MemoryLow, buffer, memory::limit)?,
            high: known(inner, File::MemoryHigh, buffer, memory::limit)?,
            max: known(inner, File::MemoryMax, buffer, memory::limit)?,
            swap_max: known(inner, File::MemorySwapMax, buffer, memory::limit)?,
            current: known(inner, File::MemoryCurrent, buffer, bytes)?,
            swap: known(inner, File::MemorySwapCurrent, buffer, bytes)?,
            stat: [
                group.known(File::MemoryStat, buffer, |text| Some(memory::stat(text)))?,
                Err(no_second_look()),
            ],
            events: known(inner, File::MemoryEvents, buffer, counts)?,
            events_local: known(inner, File::MemoryEventsLocal, buffer, counts)?,
            io_weight: known(inner, File::IoWeight, buffer, io::default_weight)?,
            bfq_weight: known(inner, File::IoBfqWeight, buffer, io::default_weight)?,
            asked,
            written: [written(group, buffer)?, Err(no_second_look())],
            descendants: group.known(File::CgroupStat, buffer, |text| {
                Some(host::descendants(text))
            })?,
            psi: match inner {
                Some(group) => group.counts_pressure(buffer)?,
                None => Ok(true),
            },
            window_s: None,
            path,
        };
        if matches!(facts.current, Ok(Some(_))) && self.facts.reclaim.is_none() {
            self.facts.reclaim = Some(group.has(File::MemoryReclaim));
        }
        self.facts.groups.push(facts);
        let delegates = names.contains(&xattr::WEIGHT_OF_DELEGATED);
        self.seen.push((group.id(), seen, delegates));
        Ok(())
    }

    /// Reads the counters again. A group that vanished meanwhile has none.
    fn second_look(&mut self, fs: &Fs, least: Duration) {
        let buffer = &mut self.buffer;
        for (facts, (id, seen, _)) in self.facts.groups.iter_mut().zip(&self.seen) {
            facts.window_s = Some(seen.elapsed().max(least).as_secs_f64());
            let opened = match fs.open(&facts.path) {
                // Another group that reuses the path.
                Ok(group) if group.id() == *id => Ok(Some(group)),
                Ok(_) => Ok(None),
                Err(error) if error.is_gone() => Ok(None),
                Err(error) => Err(unread(&facts.path, &error)),
            };
            let stat = |group: &Group| {
                group.known(File::MemoryStat, buffer, |text| Some(memory::stat(text)))
            };
            facts.stat[1] = again(&facts.stat[0], &opened, stat);
            facts.written[1] = again(&facts.written[0], &opened, |group| written(group, buffer));
        }
    }
}

/// Reads a value again if the first read found it and the group still exists.
fn again<T>(
    first: &Known<Option<T>>,
    opened: &Known<Option<Group>>,
    read: impl FnOnce(&Group) -> Result<Known<Option<T>>, Error>,
) -> Known<Option<T>> {
    let group = opened.as_ref().map_err(Clone::clone)?;
    match (first, group) {
        (Ok(None), _) | (_, None) => Ok(None),
        // An error means that the group vanished after it was opened.
        (_, Some(group)) => read(group).unwrap_or(Ok(None)),
    }
}

/// The first of these attributes that is set.
fn stated(group: &Group, names: &[&'static str]) -> Result<Option<String>, Error> {
    let mut texts = names.iter().map(|name| group.xattr(name));
    texts.find(|text| *text != Ok(None)).unwrap_or(Ok(None))
}

/// Reads a file of a group; the root (`None`) does not have it.
fn known<T>(
    group: Option<&Group>,
    file: File,
    buffer: &mut Buffer,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Known<Option<T>>, Error> {
    group.map_or(Ok(Ok(None)), |group| group.known(file, buffer, parse))
}

fn written(group: &Group, buffer: &mut Buffer) -> Result<Known<Option<u64>>, Error> {
    group.known(File::IoStat, buffer, |text| {
        let mut sum = 0u64;
        io::stat(text, |_, bytes| {
            sum = sum.saturating_add(bytes.written.unwrap_or(0));
        });
        Some(sum)
    })
}

fn unread(what: &str, error: &Error) -> Unread {
    Unread::new(what, error.to_string())
}
