//! The fake host: the tree, and the methods by which tests change it.
//!
//! Methods that name a path panic when no such group exists: that is a mistake in the test.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use justitia_policy::snapshot::{GroupId, Host};
use justitia_policy::units::Bytes;
use rustix::event::{eventfd, EventfdFlags};
use rustix::io::Errno;

use super::directory::{known, lock, normal, FakeDirectory, Journal};
use super::process::{self, FakeProcess, Life};
use super::{FakeGate, FakeGroup, Fault};
use crate::file::{cost_path, directory_id, disk_name, disk_path};
use crate::gate::{GateDevice, GateError};
use crate::parse::memory::MemoryEvents;
use crate::parse::proc::ProcessIo;
use crate::{
    CgroupFs, Child, Device, Error, File, Group, Owner, Process, Quirks, Watch, WatchKind,
};

/// A host in memory.
#[derive(Debug)]
pub struct FakeFs {
    state: Mutex<State>,
    quirks: Arc<Quirks>,
    journal: Journal,
}

#[derive(Debug)]
struct State {
    groups: BTreeMap<String, Arc<FakeDirectory>>,
    last_id: u64,
    host: Host,
    processes: BTreeMap<u32, process::Shared>,
    stacked: BTreeSet<Device>,
    now: Duration,
    host_watches: Vec<OwnedFd>,
    multi_generational: bool,
    gate: Option<FakeGate>,
}

impl FakeFs {
    /// A host of 1 GiB with only the root group. The clock stands at 1000 s after boot.
    pub fn new() -> Arc<FakeFs> {
        let fs = Arc::new(FakeFs {
            state: Mutex::new(State {
                groups: BTreeMap::new(),
                last_id: 0,
                host: Host {
                    total: Some(Bytes::mib(1024)),
                    free: Some(Bytes::mib(512)),
                    file: Some(Bytes::mib(256)),
                    high_watermark: Some(Bytes::mib(16)),
                    ..Host::default()
                },
                processes: BTreeMap::new(),
                stacked: BTreeSet::new(),
                now: Duration::from_secs(1000),
                host_watches: Vec::new(),
                multi_generational: false,
                gate: None,
            }),
            quirks: Arc::default(),
            journal: Journal::default(),
        });
        fs.mkdir("/");
        fs
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn directory(&self, path: &str) -> Arc<FakeDirectory> {
        match self.lock().groups.get(path) {
            Some(directory) => Arc::clone(directory),
            None => panic!("no fake cgroup {path}"),
        }
    }

    /// Makes a group and its missing ancestors. An existing group stays as it is.
    pub fn mkdir(&self, path: &str) -> GroupId {
        let mut state = self.lock();
        let ends = path.match_indices('/').map(|(end, _)| end.max(1));
        for end in ends.chain([path.len()]) {
            let ancestor = &path[..end];
            if !state.groups.contains_key(ancestor) {
                let directory = self.new_directory(&mut state, ancestor);
                state.groups.insert(ancestor.to_owned(), directory);
            }
        }
        state.groups[path].id
    }

    /// Makes a disk that BFQ schedules. Its path, `block:NAME`, is valid wherever a group's is.
    pub fn add_disk(&self, name: &str, low_latency: bool) -> GroupId {
        let id = self.mkdir(&disk_path(name));
        self.update(&disk_path(name), |disk| {
            disk.low_latency = Some(low_latency);
        });
        id
    }

    /// Makes a disk that BFQ does not schedule, on a kernel with io.cost. Its path, `cost:NAME`, is valid
    /// wherever a group's is.
    pub fn add_cost_disk(&self, name: &str) -> GroupId {
        let id = self.mkdir(&cost_path(name));
        self.update(&cost_path(name), |disk| {
            disk.io_cost_qos = Some(String::new());
            disk.io_cost_model = Some(String::new());
            disk.disk_stat = Some("0 0 0 0 0 0 0 0 0 0 0".to_owned());
        });
        id
    }

    fn new_directory(&self, state: &mut State, path: &str) -> Arc<FakeDirectory> {
        state.last_id += 1;
        Arc::new(FakeDirectory {
            id: directory_id(path, state.last_id),
            path: path.to_owned(),
            gone: AtomicBool::new(false),
            state: Mutex::default(),
            quirks: Arc::clone(&self.quirks),
            journal: Arc::clone(&self.journal),
        })
    }

    /// Removes a group and all below it, with their processes.
    pub fn rmdir(&self, path: &str) {
        let below = format!("{path}/");
        let mut state = self.lock();
        let state = &mut *state;
        state.groups.retain(|name, directory| {
            let keep = name != path && !name.starts_with(&below);
            if !keep {
                directory.gone.store(true, Ordering::Release);
                let inner = directory.lock();
                FakeDirectory::notify(&inner, File::MemoryEvents);
                for pid in &inner.pids {
                    if let Some(life) = state.processes.remove(pid) {
                        lock(&life).ended = true;
                    }
                }
            }
            keep
        });
    }

    /// Removes a group and makes an empty one under the same path.
    pub fn recreate(&self, path: &str) -> GroupId {
        self.rmdir(path);
        self.mkdir(path)
    }

    /// Switches the multi-generational LRU.
    pub fn set_multi_generational(&self, on: bool) {
        self.lock().multi_generational = on;
    }

    /// Loads the kernel module, or unloads it.
    pub fn set_gate(&self, gate: Option<FakeGate>) {
        self.lock().gate = gate;
    }

    /// Changes a group's state.
    pub fn update(&self, path: &str, change: impl FnOnce(&mut FakeGroup)) {
        change(&mut self.directory(path).lock().group);
    }

    /// A copy of a group's state.
    pub fn group(&self, path: &str) -> FakeGroup {
        self.directory(path).lock().group.clone()
    }

    /// Sets the host's memory.
    pub fn set_host(&self, host: Host) {
        self.lock().host = host;
    }

    /// Declares a device to be stacked on others.
    pub fn set_stacked(&self, device: Device) {
        self.lock().stacked.insert(device);
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        self.lock().now += time;
    }

    /// The text of a file as a reader sees it without faults; `None` when the file is missing.
    pub fn text(&self, path: &str, file_name: &str) -> Option<String> {
        let directory = self.directory(path);
        let state = directory.lock();
        let mut text = Vec::new();
        let file = File::from_name(file_name)?;
        state.group.show(file, &state.pids, &mut text).ok()?;
        String::from_utf8(text).ok()
    }

    /// Writes a file as another program would: without faults and without a record in the journal.
    pub fn foreign_write(&self, path: &str, file_name: &str, text: &str) {
        let file = known(file_name);
        let directory = self.directory(path);
        let result = directory.lock().group.store(file, text, false);
        assert_eq!(result, Ok(()), "foreign write of {text:?} to {file_name}");
    }

    /// Injects a fault into a file of a group. It replaces the file's previous fault.
    pub fn inject(&self, path: &str, file_name: &str, fault: Fault) {
        let file = known(file_name);
        self.directory(path).lock().faults.insert(file, fault);
    }

    /// Makes opening a group fail, or (`None`) succeed again.
    pub fn shut(&self, path: &str, why: Option<Errno>) {
        self.directory(path).lock().shut = why;
    }

    /// Delegates a group to a user: the directory, and with `files` its interface files too.
    pub fn delegate(&self, path: &str, uid: u32, files: bool) {
        let directory = self.directory(path);
        let mut state = directory.lock();
        state.owner.uid = uid;
        if files {
            state.file_owner.uid = uid;
        }
    }

    /// Lifts all faults of a group.
    pub fn clear_faults(&self, path: &str) {
        self.directory(path).lock().faults.clear();
    }

    /// Reads of each file of a group by name, refused ones included.
    pub fn reads(&self, path: &str) -> BTreeMap<&'static str, u32> {
        let directory = self.directory(path);
        let state = directory.lock();
        let reads = state.reads.iter();
        reads.map(|(file, count)| (file.name(), *count)).collect()
    }

    /// Every write by us that reached a file, in order: path, file, text.
    pub fn writes(&self) -> Vec<(String, String, String)> {
        lock(&self.journal).clone()
    }

    /// Forgets the writes so far.
    pub fn clear_writes(&self) {
        lock(&self.journal).clear();
    }

    /// Changes a group's `memory.events` and wakes its watchers.
    pub fn memory_event(&self, path: &str, change: impl FnOnce(&mut MemoryEvents)) {
        let directory = self.directory(path);
        let mut state = directory.lock();
        change(&mut state.group.events);
        FakeDirectory::notify(&state, File::MemoryEvents);
    }

    /// Fires the host's PSI trigger.
    pub fn stall_host(&self) {
        for fd in &self.lock().host_watches {
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }

    /// Starts a process in a group, now, as a child of pid 1.
    pub fn spawn(&self, pid: u32, path: &str) {
        self.spawn_child(pid, path, 1);
    }

    /// Starts a process in a group, now.
    pub fn spawn_child(&self, pid: u32, path: &str, parent: u32) {
        self.directory(path).lock().pids.push(pid);
        let mut state = self.lock();
        let life = Life {
            started: state.now,
            parent,
            io: ProcessIo::default(),
            ended: false,
            denied: false,
        };
        state.processes.insert(pid, Arc::new(Mutex::new(life)));
    }

    fn life(&self, pid: u32) -> process::Shared {
        match self.lock().processes.get(&pid) {
            Some(life) => Arc::clone(life),
            None => panic!("no fake process {pid}"),
        }
    }

    fn change_life(&self, pid: u32, change: impl FnOnce(&mut Life)) {
        change(&mut lock(&self.life(pid)));
    }

    /// Sets a process's byte totals and counts one more system call for each further 64 KiB. As in the
    /// kernel, no counter falls, except bytes that the caller lowers.
    pub fn process_io(&self, pid: u32, read: u64, written: u64) {
        self.change_life(pid, |life| {
            let calls = |now: u64, before: u64| now.saturating_sub(before).div_ceil(65536);
            life.io = ProcessIo {
                rchar: read,
                wchar: written,
                syscr: life.io.syscr + calls(read, life.io.rchar),
                syscw: life.io.syscw + calls(written, life.io.wchar),
            };
        });
    }

    /// Sets whether reads of a process are refused.
    pub fn deny_process(&self, pid: u32, denied: bool) {
        self.change_life(pid, |life| life.denied = denied);
    }

    /// A process ends and nobody waits for it.
    pub fn exit(&self, pid: u32) {
        self.end(pid);
    }

    /// A process ends and its parent waits for it: its counters are added to the parent's.
    pub fn reap(&self, pid: u32) {
        let child = self.end(pid);
        let parent = self.lock().processes.get(&child.parent).cloned();
        if let Some(parent) = parent {
            let mut parent = lock(&parent);
            parent.io.rchar += child.io.rchar;
            parent.io.wchar += child.io.wchar;
            parent.io.syscr += child.io.syscr;
            parent.io.syscw += child.io.syscw;
        }
    }

    fn end(&self, pid: u32) -> Life {
        let life = self.life(pid);
        let mut life = lock(&life);
        life.ended = true;
        self.leave(pid);
        self.lock().processes.remove(&pid);
        *life
    }

    /// A process moves to another group.
    pub fn move_process(&self, pid: u32, path: &str) {
        self.leave(pid);
        self.directory(path).lock().pids.push(pid);
    }

    fn leave(&self, pid: u32) {
        for directory in self.lock().groups.values() {
            directory.lock().pids.retain(|&other| other != pid);
        }
    }
}

impl CgroupFs for FakeFs {
    fn open(&self, path: &str) -> Result<Group, Error> {
        match self.lock().groups.get(normal(path)) {
            Some(directory) => match directory.lock().shut {
                Some(errno) => Err(Error::from_errno(path, "directory", errno)),
                None => Ok(Group::new(Arc::clone(directory) as _)),
            },
            None => Err(Error::from_errno(path, "directory", Errno::NODEV)),
        }
    }

    fn children(&self, path: &str, most: usize, out: &mut Vec<Child>) -> Result<(), Error> {
        let path = normal(path);
        let state = self.lock();
        if !state.groups.contains_key(path) {
            return Err(Error::from_errno(path, "directory", Errno::NODEV));
        }
        let below = if path == "/" {
            "/".to_owned()
        } else {
            format!("{path}/")
        };
        let subtree = state.groups.range(below.clone()..);
        let subtree = subtree.take_while(|(name, _)| name.starts_with(&below));
        let children = subtree.filter_map(|(name, directory)| {
            let name = &name[below.len()..];
            (!name.is_empty() && !name.contains('/')).then(|| Child {
                name: name.to_owned(),
                id: directory.id,
            })
        });
        out.extend(children.take(most));
        Ok(())
    }

    fn owner(&self, path: &str, file: Option<File>) -> Result<Owner, Error> {
        let state = self.lock();
        let Some(directory) = state.groups.get(normal(path)) else {
            return Err(Error::from_errno(path, "directory", Errno::NODEV));
        };
        let directory = directory.lock();
        if let Some(errno) = directory.shut {
            return Err(Error::from_errno(path, "directory", errno));
        }
        Ok(match file {
            Some(_) => directory.file_owner,
            None => directory.owner,
        })
    }

    fn read_host(&self) -> Host {
        self.lock().host
    }

    fn process(&self, pid: u32) -> Result<Box<dyn Process>, Errno> {
        let state = self.lock();
        let life = state.processes.get(&pid).ok_or(Errno::SRCH)?;
        Ok(Box::new(FakeProcess::open(life)?))
    }

    fn stacked(&self, device: Device) -> bool {
        self.lock().stacked.contains(&device)
    }

    fn block_devices(&self, _all: bool, out: &mut Vec<String>) {
        let state = self.lock();
        let paths = state.groups.keys();
        out.extend(paths.filter(|path| disk_name(path).is_some()).cloned());
    }

    fn watch_host_pressure(&self) -> Result<Watch, Errno> {
        let ours = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let theirs = ours.try_clone().map_err(|_| Errno::MFILE)?;
        self.lock().host_watches.push(ours);
        Ok(Watch {
            fd: theirs,
            kind: WatchKind::Counter,
        })
    }

    fn multi_generational(&self) -> Option<bool> {
        Some(self.lock().multi_generational)
    }

    fn gate(&self, hold: bool) -> Result<Box<dyn GateDevice>, GateError> {
        let gate = self.lock().gate.clone();
        gate.ok_or(GateError::Absent)?.open(hold)
    }

    fn now_boottime(&self) -> Duration {
        self.lock().now
    }
}
