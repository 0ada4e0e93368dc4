//! Waits for time, memory events, stalls and other threads.
//!
//! One epoll set. Kernel interfaces: `POLLPRI` on `memory.events` (re-armed by reading it), a PSI trigger of
//! the host (one event per window), eventfd. The kernel does not signal the removal of a cgroup. A cgroup whose
//! file cannot be read after an event is reported once and is then no longer watched.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use justitia_policy::snapshot::GroupId;
use rustix::event::{epoll, eventfd, EventfdFlags, Timespec};
use rustix::io::Errno;

use crate::{Buffer, CgroupFs, Error, File, Group, Watch, WatchKind};

/// Key of the eventfd in the epoll set; watches count up from 1.
const WAKER: u64 = 0;

/// The event that ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Somebody called [`Waker::wake`], once or more often.
    Waker,
    /// A counter of the group's `memory.events` moved.
    MemoryEvents(GroupId),
    /// Tasks of the host stalled for memory.
    HostPressure,
    /// A watched group was removed.
    Gone(GroupId),
}

/// Ends a wait from any thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // Fails only when the counter is full, and then the waiter is awake anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// A watched descriptor.
#[derive(Debug)]
struct Source {
    /// The group whose `memory.events` this is; `None`: the host's stalls.
    group: Option<Group>,
    watch: Watch,
}

impl Source {
    fn id(&self) -> Option<GroupId> {
        self.group.as_ref().map(Group::id)
    }

    /// Takes in what was signaled, so that the next event is signaled too. An error if the group is gone.
    fn hear(&self, buffer: &mut Buffer) -> Result<(), Errno> {
        let Watch { fd, kind } = &self.watch;
        if *kind == WatchKind::Counter {
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
        match &self.group {
            Some(_) if *kind == WatchKind::Priority => buffer.pread(fd, false),
            Some(group) if !group.exists() => Err(Errno::NODEV),
            _ => Ok(()),
        }
    }
}

/// The epoll set. The agent waits nowhere else.
#[derive(Debug)]
pub struct Events {
    epoll: OwnedFd,
    waker: Waker,
    sources: HashMap<u64, Source>,
    last_key: u64,
    buffer: Buffer,
}

impl Events {
    /// An empty set.
    pub fn new() -> Result<Events, Error> {
        let set_up = || {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let key = epoll::EventData::new_u64(WAKER);
            epoll::add(&epoll, &waker, key, epoll::EventFlags::IN)?;
            Ok((epoll, waker))
        };
        let (epoll, waker) = set_up().map_err(|errno| host_error("epoll", errno))?;
        Ok(Events {
            epoll,
            waker: Waker(Arc::new(waker)),
            sources: HashMap::new(),
            last_key: WAKER,
            buffer: Buffer::new(),
        })
    }

    /// A handle to end waits with.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Watches `memory.events` of a group.
    pub fn watch_memory_events(&mut self, group: &Group) -> Result<(), Error> {
        let file = File::MemoryEvents;
        let watched = group.directory().watch(file).and_then(|watch| {
            let group = Some(group.clone());
            let source = Source { group, watch };
            // Earlier events do not count: reading the file consumes them.
            source.hear(&mut self.buffer)?;
            self.add(source)
        });
        watched.map_err(|errno| group.error(file.name(), errno))
    }

    /// Watches the host for stalls for memory.
    pub fn watch_host_pressure(&mut self, fs: &dyn CgroupFs) -> Result<(), Error> {
        fs.watch_host_pressure()
            .and_then(|watch| self.add(Source { group: None, watch }))
            .map_err(|errno| host_error(File::MemoryPressure.name(), errno))
    }

    /// Forgets everything about a group.
    pub fn unwatch(&mut self, group: GroupId) {
        let epoll = &self.epoll;
        self.sources.retain(|_, source| {
            let keep = source.id() != Some(group);
            if !keep {
                let _ = epoll::delete(epoll, &source.watch.fd);
            }
            keep
        });
    }

    /// Waits. Appends nothing to `out` on timeout, or when a signal ends the wait.
    pub fn wait(&mut self, timeout: Duration, out: &mut Vec<Wake>) -> Result<(), Error> {
        let mut ready = [MaybeUninit::<epoll::Event>::uninit(); 64];
        let timeout = Timespec::try_from(timeout).ok();
        let ready = match epoll::wait(&self.epoll, &mut ready, timeout.as_ref()) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(host_error("epoll", errno)),
        };
        for event in ready {
            let (key, flags) = (event.data.u64(), event.flags);
            out.extend(self.heard(key, flags));
        }
        Ok(())
    }

    fn heard(&mut self, key: u64, flags: epoll::EventFlags) -> Option<Wake> {
        if key == WAKER {
            let _ = rustix::io::read(&*self.waker.0, &mut [0; 8]);
            return Some(Wake::Waker);
        }
        let source = self.sources.get(&key)?;
        let id = source.id();
        let broken = id.is_none() && flags.contains(epoll::EventFlags::ERR);
        let heard = source.hear(&mut self.buffer).is_ok() && !broken;
        if !heard {
            self.forget(key);
        }
        match id {
            Some(id) if heard => Some(Wake::MemoryEvents(id)),
            Some(id) => Some(Wake::Gone(id)),
            None => heard.then_some(Wake::HostPressure),
        }
    }

    fn add(&mut self, source: Source) -> Result<(), Errno> {
        let flags = match source.watch.kind {
            WatchKind::Priority => epoll::EventFlags::PRI,
            WatchKind::Counter => epoll::EventFlags::IN,
        };
        self.last_key += 1;
        let key = epoll::EventData::new_u64(self.last_key);
        epoll::add(&self.epoll, &source.watch.fd, key, flags)?;
        self.sources.insert(self.last_key, source);
        Ok(())
    }

    fn forget(&mut self, key: u64) {
        if let Some(source) = self.sources.remove(&key) {
            let _ = epoll::delete(&self.epoll, &source.watch.fd);
        }
    }
}

fn host_error(what: &'static str, errno: Errno) -> Error {
    Error::from_errno("/", what, errno)
}

#[cfg(test)]
mod tests;
