//! Traffic from `/proc/PID/io`, on every kernel. It needs no privilege but to read these files.
//!
//! A group's bytes read are the sum of `rchar` over its processes, and its bytes written the sum of `wchar`.
//! The limits of this source:
//!
//! - `rchar` and `wchar` count every read-like and write-like system call, including those on pipes, sockets
//!   and terminals. Accesses to mapped files are not counted.
//! - A process that ended keeps its contribution. Its I/O after the last look is lost, unless its parent
//!   in a watched group waited for it (see [`crate::account`]). The same holds for a process that lived only
//!   between two looks.
//! - A process that moves leaves its earlier bytes with its old group. Its bytes since the last look count
//!   for the new one.
//! - A process that existed before the first look at its group counts from that look on. A process that
//!   started later counts from its start.
//! - One process that cannot be read, or that is outside of our pid namespace, makes its group's traffic
//!   unknown, not smaller.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use justitia_cgroup::{Buffer, Child, Fs, Group, GroupId, Process, ProcessIo};
use justitia_policy::snapshot::Traffic;
use rustix::io::Errno;

use crate::account::{difference, sum, Debts};
use crate::missed::{DeviceBytes, Stacks};
use crate::{is_list_of, Sample, TrafficSource, Watched};

/// A process that left its group is kept for this many samples, to notice when its parent waits for it.
const LINGER: u16 = 60;
/// Start times are in ticks of 10 ms.
const TICK: Duration = Duration::from_millis(10);
/// Cgroups below a group that are searched for its processes, at most: a container can create any number.
const MOST_BELOW: usize = 1000;

/// Counts from `/proc/PID/io` and `io.stat`.
pub struct ProcIo {
    fs: Fs,
    processes: HashMap<u32, Tracked>,
    debts: Debts,
    stacks: Stacks,
    /// The groups of the last sample, in its order, and their accounts.
    listed: Vec<GroupId>,
    accounts: Vec<Account>,
    /// The index of each of them.
    places: HashMap<GroupId, usize>,
    /// For each of them, the index of its nearest ancestor among them.
    above: Vec<Option<usize>>,
    /// Processes that were found to have ended in this sample.
    ended: HashSet<u32>,
    sample: u64,
    buffer: Buffer,
}

/// One group's counters.
#[derive(Debug, Default)]
struct Account {
    read: u64,
    written: u64,
    missed: u64,
    /// `io.stat` is there: the io controller is enabled.
    missed_known: bool,
    devices: DeviceBytes,
    /// Time since boot at the last look; `None` before the first.
    looked_at: Option<Duration>,
    /// Some process could not be read in the last look.
    unreadable: bool,
    /// The last sample that looked at it.
    sample: u64,
}

struct Tracked {
    process: Box<dyn Process>,
    group: GroupId,
    parent: u32,
    last: ProcessIo,
    /// I/O since the look before; `None` if it was not read in this sample.
    delta: Option<ProcessIo>,
    /// Last sample in which its group listed it.
    sample: u64,
    /// Number of samples since it left its group.
    lingers: u16,
}

impl ProcIo {
    pub fn new(fs: Fs) -> ProcIo {
        ProcIo {
            fs,
            processes: HashMap::new(),
            debts: Debts::default(),
            stacks: Stacks::default(),
            listed: Vec::new(),
            accounts: Vec::new(),
            places: HashMap::new(),
            above: Vec::new(),
            ended: HashSet::new(),
            sample: 0,
            buffer: Buffer::new(),
        }
    }

    /// Adapts to another list of groups.
    fn list(&mut self, groups: &[Watched<'_>]) {
        if is_list_of(&self.listed, groups) {
            return;
        }
        let accounts = self.listed.drain(..).zip(self.accounts.drain(..));
        let mut accounts: HashMap<GroupId, Account> = accounts.collect();
        self.places.clear();
        for (index, watched) in groups.iter().enumerate() {
            let id = watched.group.id();
            self.listed.push(id);
            self.accounts.push(accounts.remove(&id).unwrap_or_default());
            self.places.insert(id, index);
        }
        // In a group that is no longer listed, a process stays if its parent stays, which may wait for it later.
        let (places, processes) = (&self.places, &self.processes);
        let is_listed = |pid| {
            let tracked = processes.get(&pid);
            tracked.is_some_and(|tracked| places.contains_key(&tracked.group))
        };
        let mut pids: Vec<u32> = processes.keys().copied().collect();
        pids.sort_unstable();
        let mut stay = HashSet::new();
        for pid in pids {
            let parent = processes[&pid].parent;
            if is_listed(pid) || is_listed(parent) || stay.contains(&parent) {
                stay.insert(pid);
            }
        }
        self.processes.retain(|pid, _| stay.contains(pid));
        let by_path: HashMap<&str, usize> = groups
            .iter()
            .enumerate()
            .map(|(index, watched)| (watched.group.path(), index))
            .collect();
        self.above = groups
            .iter()
            .map(|watched| {
                let path = watched.group.path();
                let mut slashes = path.rmatch_indices('/');
                slashes.find_map(|(slash, _)| by_path.get(&path[..slash]).copied())
            })
            .collect();
    }

    /// Appends the processes of a group's subtree to `found`, without the subtrees of other listed groups. Returns
    /// false if it cannot, or if the group has more than `MOST_BELOW` cgroups below it.
    fn find(&mut self, group: &Group, found: &mut Vec<(u32, GroupId)>) -> bool {
        let id = group.id();
        let mut pids = Vec::new();
        if group.pids(&mut self.buffer, &mut pids).is_err() {
            return false;
        }
        let mut left = MOST_BELOW;
        let mut below: Vec<Child> = Vec::new();
        let mut open = vec![group.path().to_owned()];
        while let Some(path) = open.pop() {
            // A subtree that vanished meanwhile has no processes.
            if self.fs.children(&path, left + 1, &mut below).is_err() {
                continue;
            }
            if below.len() > left {
                return false;
            }
            left -= below.len();
            for child in below.drain(..) {
                if self.places.contains_key(&child.id) {
                    continue;
                }
                let path = format!("{path}/{}", child.name);
                if let Ok(inner) = self.fs.open(&path) {
                    match inner.pids(&mut self.buffer, &mut pids) {
                        Err(error) if !error.is_gone() => return false,
                        _ => open.push(path),
                    }
                }
            }
        }
        found.extend(pids.into_iter().map(|pid| (pid, id)));
        true
    }

    /// Looks at a process that its group lists.
    fn look(&mut self, pid: u32, group: GroupId) {
        if let Some(tracked) = self.processes.get_mut(&pid) {
            match tracked.process.io(&mut self.buffer) {
                Ok(io) => {
                    // A process that moves meanwhile may be listed twice.
                    let before = tracked.delta.unwrap_or_default();
                    tracked.delta = Some(sum(before, difference(io, tracked.last)));
                    tracked.last = io;
                    tracked.group = group;
                    tracked.sample = self.sample;
                    tracked.lingers = 0;
                    return;
                }
                // The pid belongs to another process now.
                Err(Errno::SRCH) => self.end(pid),
                Err(_) => {
                    tracked.sample = self.sample;
                    self.unreadable(group);
                    return;
                }
            }
        }
        self.meet(pid, group);
    }

    /// Looks at a process for the first time.
    fn meet(&mut self, pid: u32, group: GroupId) {
        let opened = self.fs.process(pid).and_then(|mut process| {
            let io = process.io(&mut self.buffer)?;
            let parent = process.parent(&mut self.buffer)?;
            Ok((process, io, parent))
        });
        match opened {
            Ok((process, io, parent)) => {
                let account = self.places.get(&group).map(|&at| &self.accounts[at]);
                let since = account.and_then(|account| account.looked_at);
                let is_new = since.is_some_and(|since| process.started() + TICK >= since);
                let delta = if is_new { io } else { ProcessIo::default() };
                let tracked = Tracked {
                    process,
                    group,
                    parent,
                    last: io,
                    delta: Some(delta),
                    sample: self.sample,
                    lingers: 0,
                };
                self.processes.insert(pid, tracked);
            }
            Err(Errno::SRCH) => {}
            Err(_) => self.unreadable(group),
        }
    }

    /// Reads the processes that their groups no longer list: they ended, are zombies, or moved away. Their
    /// I/O since the last look still counts, once.
    ///
    /// A group that was not looked at matters only if a process of a group that was looked at may have waited
    /// for one of its processes: those that ended are then debts.
    fn look_after_the_missing(&mut self) {
        let looked = |tracked: &Tracked| {
            let place = self.places.get(&tracked.group);
            place.is_some_and(|&at| self.accounts[at].sample == self.sample)
        };
        let of_a_parent = |child: &&Tracked| {
            !looked(child) && self.processes.get(&child.parent).is_some_and(looked)
        };
        let children = self.processes.values().filter(of_a_parent);
        let owing: HashSet<GroupId> = children.map(|child| child.group).collect();
        let mut ended = Vec::new();
        for (&pid, tracked) in &mut self.processes {
            let looked = looked(tracked);
            if tracked.sample == self.sample || !(looked || owing.contains(&tracked.group)) {
                continue;
            }
            match tracked.process.io(&mut self.buffer) {
                Err(Errno::SRCH) => ended.push(pid),
                _ if !looked => {}
                io => {
                    if let (Ok(io), 0) = (io, tracked.lingers) {
                        tracked.delta = Some(difference(io, tracked.last));
                        tracked.last = io;
                    }
                    tracked.lingers += 1;
                }
            }
        }
        // Children first: their debts are handed up when their parent ended, too.
        ended.sort_unstable_by(|a, b| b.cmp(a));
        for pid in ended {
            self.end(pid);
        }
        self.processes
            .retain(|_, tracked| tracked.lingers <= LINGER);
    }

    /// Forgets a process that ended. Its parent may now owe us its counters.
    fn end(&mut self, pid: u32) {
        if let Some(tracked) = self.processes.remove(&pid) {
            self.debts.ended(pid, tracked.parent, tracked.last);
            self.ended.insert(pid);
        }
    }

    /// Looks up the new parent of each process whose parent ended.
    fn find_new_parents(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        for child in self.processes.values_mut() {
            if self.ended.contains(&child.parent) {
                if let Ok(parent) = child.process.parent(&mut self.buffer) {
                    child.parent = parent;
                }
            }
        }
        self.ended.clear();
    }

    fn unreadable(&mut self, group: GroupId) {
        if let Some(&at) = self.places.get(&group) {
            self.accounts[at].unreadable = true;
        }
    }

    /// Adds the processes' differences to their groups' accounts.
    fn book(&mut self) {
        let processes = &mut self.processes;
        let mut deltas: HashMap<u32, Option<ProcessIo>> = self
            .debts
            .debtors()
            .filter_map(|pid| Some((pid, processes.get(&pid)?.delta)))
            .collect();
        self.debts.settle(&mut deltas);
        for (pid, delta) in deltas {
            if let Some(tracked) = processes.get_mut(&pid) {
                tracked.delta = delta;
            }
        }
        for tracked in self.processes.values_mut() {
            let Some(delta) = tracked.delta.take() else {
                continue;
            };
            if let Some(&at) = self.places.get(&tracked.group) {
                let account = &mut self.accounts[at];
                account.read = account.read.saturating_add(delta.rchar);
                account.written = account.written.saturating_add(delta.wchar);
            }
        }
    }

    /// Adds what devices delivered. A group's `io.stat` includes its descendants, so the bytes of other
    /// listed groups below it are subtracted.
    fn book_missed(&mut self, groups: &[Watched<'_>]) {
        let mut deltas = vec![None; groups.len()];
        let accounts = self.accounts.iter_mut();
        for ((watched, account), delta) in groups.iter().zip(accounts).zip(&mut deltas) {
            if watched.active {
                *delta = account
                    .devices
                    .advance(watched.group, &*self.fs, &mut self.stacks, &mut self.buffer)
                    .unwrap_or(None);
            }
        }
        let mut own = deltas.clone();
        for (index, above) in self.above.iter().enumerate() {
            if let (Some(above), Some(inner)) = (above, deltas[index]) {
                own[*above] = own[*above].map(|sum: u64| sum.saturating_sub(inner));
            }
        }
        for ((watched, account), own) in groups.iter().zip(&mut self.accounts).zip(own) {
            if watched.active {
                account.missed_known = own.is_some();
                account.missed = account.missed.saturating_add(own.unwrap_or(0));
            }
        }
    }
}

impl TrafficSource for ProcIo {
    fn sample(&mut self, groups: &[Watched<'_>], out: &mut Vec<Sample>) {
        self.sample += 1;
        self.list(groups);
        let now = self.fs.now_boottime();
        let mut found = Vec::new();
        for (at, watched) in groups.iter().enumerate() {
            if watched.active {
                let account = &mut self.accounts[at];
                account.unreadable = false;
                account.sample = self.sample;
                if !self.find(watched.group, &mut found) {
                    self.unreadable(watched.group.id());
                }
            }
        }
        // Parents before children: a child that was waited for is then found missing no later than its
        // parent's jump is seen. Pids ascend, except where they wrap around.
        found.sort_unstable();
        for (pid, group) in found {
            self.look(pid, group);
        }
        self.look_after_the_missing();
        self.find_new_parents();
        self.book();
        self.book_missed(groups);
        out.clear();
        for (watched, account) in groups.iter().zip(&mut self.accounts) {
            if watched.active {
                account.looked_at = Some(now);
            }
            let known = account.looked_at.is_some() && !account.unreadable;
            let traffic = Traffic {
                read_bytes: known.then_some(account.read),
                write_bytes: known.then_some(account.written),
                missed_bytes: account.missed_known.then_some(account.missed),
            };
            out.push(Sample {
                traffic,
                ..Sample::default()
            });
        }
    }

    fn name(&self) -> &'static str {
        "proc"
    }
}
