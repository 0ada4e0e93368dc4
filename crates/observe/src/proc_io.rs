//! Traffic from `/proc/PID/io`, on every kernel, without privileges beyond reading it.
//!
//! A group's bytes read are the sum of `rchar` of its processes, bytes written of `wchar`. What
//! this can and cannot tell:
//!
//! - `rchar` and `wchar` count every read-like and write-like system call: pipes, sockets and
//!   terminals too. Mapped files are not seen at all.
//! - Processes that ended keep what they contributed. What one did after our last look is lost,
//!   unless its parent in a watched group waited for it (see [`crate::account`]); so is a process
//!   that lived only between two looks.
//! - A process that moved keeps what it had brought to its old group; what it did since the last
//!   look counts for the new one.
//! - A process that was there before its group was first looked at counts from then on; one that
//!   started later counts from its start.
//! - One process that cannot be read makes its group's traffic unknown, not smaller.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use justitia_cgroup::{Buffer, Child, Fs, Group, GroupId, Process, ProcessIo};
use justitia_policy::snapshot::Traffic;
use rustix::io::Errno;

use crate::account::{difference, Debts};
use crate::missed::{DeviceBytes, Stacks};
use crate::{is_list_of, Sample, TrafficSource, Watched};

/// Samples for which a process that left its group is kept, to learn when its parent waited.
const LINGER: u16 = 60;
/// Start times are in ticks of 10 ms.
const TICK: Duration = Duration::from_millis(10);
/// Cgroups below a group that are looked through for its processes: a container can make any number.
const MOST_BELOW: usize = 1000;

/// Counts from `/proc/PID/io` and `io.stat`.
pub struct ProcIo {
    fs: Fs,
    accounts: HashMap<GroupId, Account>,
    processes: HashMap<u32, Tracked>,
    debts: Debts,
    stacks: Stacks,
    /// The groups of the last sample, and which of them each lies below.
    listed: Vec<GroupId>,
    above: Vec<Option<usize>>,
    /// Processes found in this sample.
    found: Vec<(u32, GroupId)>,
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
    /// The io controller is there.
    missed_known: bool,
    devices: DeviceBytes,
    /// When it was last looked at; `None`: never.
    looked_at: Option<Duration>,
    /// Some process could not be read in the last look.
    unreadable: bool,
    /// Last sample in which it was looked at.
    sample: u64,
}

/// One process.
struct Tracked {
    process: Box<dyn Process>,
    group: GroupId,
    parent: u32,
    last: ProcessIo,
    /// What it did since the look before; `None`: not read in this sample.
    delta: Option<ProcessIo>,
    /// Last sample in which its group listed it.
    sample: u64,
    /// It left its group this many samples ago.
    lingers: u16,
}

impl ProcIo {
    /// A source for the groups of one host.
    pub fn new(fs: Fs) -> ProcIo {
        ProcIo {
            fs,
            accounts: HashMap::new(),
            processes: HashMap::new(),
            debts: Debts::default(),
            stacks: Stacks::default(),
            listed: Vec::new(),
            above: Vec::new(),
            found: Vec::new(),
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
        self.listed = groups.iter().map(|watched| watched.group.id()).collect();
        let ids: HashSet<GroupId> = self.listed.iter().copied().collect();
        self.accounts.retain(|id, _| ids.contains(id));
        self.processes
            .retain(|_, tracked| ids.contains(&tracked.group));
        let by_path: HashMap<&str, usize> = groups
            .iter()
            .enumerate()
            .map(|(index, watched)| (watched.group.path(), index))
            .collect();
        self.above = groups
            .iter()
            .map(|watched| {
                let mut path = watched.group.path();
                loop {
                    let slash = path.rfind('/')?;
                    path = &path[..slash];
                    if let Some(index) = by_path.get(path) {
                        return Some(*index);
                    }
                }
            })
            .collect();
    }

    /// Finds the processes of a group's subtree, without the subtrees of other listed groups. False where
    /// it cannot, or where the group has more cgroups below it than are looked at.
    fn find(&mut self, group: &Group, listed: &HashSet<GroupId>) -> bool {
        let id = group.id();
        let mut pids = Vec::new();
        if group.pids(&mut self.buffer, &mut pids).is_err() {
            return false;
        }
        let mut left = MOST_BELOW;
        let mut below: Vec<Child> = Vec::new();
        let mut open = vec![group.path().to_owned()];
        while let Some(path) = open.pop() {
            // A subtree that vanishes under our hands has no processes any more.
            if self.fs.children(&path, left + 1, &mut below).is_err() {
                continue;
            }
            if below.len() > left {
                return false;
            }
            left -= below.len();
            for child in below.drain(..) {
                if listed.contains(&child.id) {
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
        self.found.extend(pids.into_iter().map(|pid| (pid, id)));
        true
    }

    /// Looks at a process that its group lists.
    fn look(&mut self, pid: u32, group: GroupId) {
        if let Some(tracked) = self.processes.get_mut(&pid) {
            match tracked.process.io(&mut self.buffer) {
                Ok(io) => {
                    tracked.delta = Some(difference(io, tracked.last));
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
                let since = self.accounts.get(&group).and_then(|a| a.looked_at);
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

    /// Looks after the processes that their groups no longer list: ended, waiting to be waited
    /// for, or moved away. What they did since the last look still counts, once.
    fn look_after_the_missing(&mut self) {
        let mut ended = Vec::new();
        for (&pid, tracked) in &mut self.processes {
            let looked = self.accounts.get(&tracked.group);
            if tracked.sample == self.sample || looked.is_none_or(|a| a.sample != self.sample) {
                continue;
            }
            match tracked.process.io(&mut self.buffer) {
                Ok(io) => {
                    if tracked.lingers == 0 {
                        tracked.delta = Some(difference(io, tracked.last));
                        tracked.last = io;
                    }
                    tracked.lingers += 1;
                }
                Err(_) => ended.push(pid),
            }
        }
        // Children first: what they owe is handed up when their parent ended too.
        ended.sort_unstable_by(|a, b| b.cmp(a));
        for pid in ended {
            self.end(pid);
        }
        self.processes
            .retain(|_, tracked| tracked.lingers <= LINGER);
    }

    /// Forgets a process that ended; its parent may owe us its counters now.
    fn end(&mut self, pid: u32) {
        if let Some(tracked) = self.processes.remove(&pid) {
            self.debts.ended(pid, tracked.parent, tracked.last);
            self.ended.insert(pid);
        }
    }

    /// Children of processes that ended have another parent now.
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
        if let Some(account) = self.accounts.get_mut(&group) {
            account.unreadable = true;
        }
    }

    /// Puts the processes' differences on their groups' accounts.
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
            if let Some(account) = self.accounts.get_mut(&tracked.group) {
                account.read = account.read.saturating_add(delta.rchar);
                account.written = account.written.saturating_add(delta.wchar);
            }
        }
    }

    /// Adds up what devices delivered. A group's file shows its descendants' bytes too: those of
    /// other listed groups are taken off.
    fn book_missed(&mut self, groups: &[Watched<'_>]) {
        let mut deltas = vec![None; groups.len()];
        for (watched, delta) in groups.iter().zip(&mut deltas) {
            let Some(account) = self.accounts.get_mut(&watched.group.id()) else {
                continue;
            };
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
        for (watched, own) in groups.iter().zip(own) {
            if let Some(account) = self.accounts.get_mut(&watched.group.id()) {
                if watched.active {
                    account.missed_known = own.is_some();
                    account.missed = account.missed.saturating_add(own.unwrap_or(0));
                }
            }
        }
    }
}

impl TrafficSource for ProcIo {
    fn sample(&mut self, groups: &[Watched<'_>], out: &mut Vec<Sample>) {
        self.sample += 1;
        self.list(groups);
        let listed: HashSet<GroupId> = self.listed.iter().copied().collect();
        let now = self.fs.now_boottime();
        self.found.clear();
        for watched in groups {
            let account = self.accounts.entry(watched.group.id()).or_default();
            if watched.active {
                account.unreadable = false;
                account.sample = self.sample;
                if !self.find(watched.group, &listed) {
                    self.unreadable(watched.group.id());
                }
            }
        }
        // Parents before children, so that a child that was waited for is found missing no later
        // than its parent's jump is seen. Pids ascend but for a wrap-around.
        let mut found = std::mem::take(&mut self.found);
        found.sort_unstable();
        for &(pid, group) in &found {
            self.look(pid, group);
        }
        self.found = found;
        self.look_after_the_missing();
        self.find_new_parents();
        self.book();
        self.book_missed(groups);
        out.clear();
        for watched in groups {
            let account = self.accounts.entry(watched.group.id()).or_default();
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
