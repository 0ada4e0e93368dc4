//! Waits for time, memory events, stalls and other threads.
//!
//! One epoll set. Kernel interfaces: `POLLPRI` on `memory.events` (re-armed by reading it), PSI triggers on
//! pressure files (one event per window), eventfd. A removed cgroup is reported once and is then no longer
//! watched.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use justitia_policy::snapshot::GroupId;
use rustix::event::{epoll, eventfd, EventfdFlags, Timespec};
use rustix::io::Errno;

use crate::parse::memory::{events as parse_events, MemoryEvents};
use crate::{Buffer, CgroupFs, Error, File, Group, PsiTrigger, Resource, Watch, WatchKind};

/// Key of the eventfd in the epoll set; watches count up from 1.
const WAKER: u64 = 0;

/// The event that ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Somebody called [`Waker::wake`], once or more often.
    Waker,
    /// A counter of the group's `memory.events` moved; these are the totals now.
    MemoryEvents(GroupId, MemoryEvents),
    /// A PSI trigger fired, of a group or (`None`) of the host.
    Pressure(Option<GroupId>, Resource),
    /// A descriptor given to [`Events::watch_fd`] is readable.
    Fd(u64),
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
enum Source {
    Memory(Group, Watch),
    Pressure(Option<GroupId>, Resource, Watch),
    Fd(u64, OwnedFd),
}

impl Source {
    fn group(&self) -> Option<GroupId> {
        match self {
            Source::Memory(group, _) => Some(group.id()),
            Source::Pressure(group, ..) => *group,
            Source::Fd(..) => None,
        }
    }

    fn fd(&self) -> &OwnedFd {
        match self {
            Source::Memory(_, watch) | Source::Pressure(_, _, watch) => &watch.fd,
            Source::Fd(_, fd) => fd,
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
        let watch = group
            .directory()
            .watch(file, None)
            .and_then(|watch| {
                // Earlier events do not count: reading the file consumes them.
                self.rearm(&watch)?;
                Ok(watch)
            })
            .map_err(|errno| group.error(file.name(), errno))?;
        let flags = flags(watch.kind);
        self.add(Source::Memory(group.clone(), watch), flags)
            .map_err(|errno| group.error(file.name(), errno))
    }

    /// Watches a group's stalls. Without `CAP_SYS_RESOURCE` the window becomes a multiple of 2 s
    /// and the stall grows with it.
    pub fn watch_pressure(
        &mut self,
        group: &Group,
        resource: Resource,
        trigger: PsiTrigger,
    ) -> Result<(), Error> {
        let file = resource.file();
        group
            .directory()
            .watch(file, Some(trigger))
            .and_then(|watch| {
                let flags = flags(watch.kind);
                self.add(Source::Pressure(Some(group.id()), resource, watch), flags)
            })
            .map_err(|errno| group.error(file.name(), errno))
    }

    /// Watches the host's stalls.
    pub fn watch_host_pressure(
        &mut self,
        fs: &dyn CgroupFs,
        resource: Resource,
        trigger: PsiTrigger,
    ) -> Result<(), Error> {
        fs.watch_host_pressure(resource, trigger)
            .and_then(|watch| {
                let flags = flags(watch.kind);
                self.add(Source::Pressure(None, resource, watch), flags)
            })
            .map_err(|errno| host_error(resource.file().name(), errno))
    }

    /// Watches any descriptor, such as a listening socket, for input. The watch is level-triggered: it ends
    /// every wait until the caller reads the descriptor.
    pub fn watch_fd(&mut self, fd: OwnedFd, token: u64) -> Result<(), Error> {
        self.add(Source::Fd(token, fd), epoll::EventFlags::IN)
            .map_err(|errno| host_error("descriptor", errno))
    }

    /// Forgets everything about a group.
    pub fn unwatch(&mut self, group: GroupId) {
        let epoll = &self.epoll;
        self.sources.retain(|_, source| {
            let keep = source.group() != Some(group);
            if !keep {
                let _ = epoll::delete(epoll, source.fd());
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
            let mut counter = [0; 8];
            let _ = rustix::io::read(&*self.waker.0, &mut counter);
            return Some(Wake::Waker);
        }
        match self.sources.get(&key)? {
            Source::Fd(token, _) => Some(Wake::Fd(*token)),
            Source::Pressure(group, resource, watch) => {
                let (group, resource) = (*group, *resource);
                let gone = flags.contains(epoll::EventFlags::ERR);
                if watch.kind == WatchKind::Counter {
                    let _ = rustix::io::read(&watch.fd, &mut [0; 8]);
                }
                if gone {
                    self.forget(key);
                    return group.map(Wake::Gone);
                }
                Some(Wake::Pressure(group, resource))
            }
            Source::Memory(group, watch) => {
                let (id, group) = (group.id(), group.clone());
                let counters = match watch.kind {
                    WatchKind::Priority => self
                        .buffer
                        .pread(&watch.fd, false)
                        .map(|()| parse_events(self.buffer.bytes())),
                    WatchKind::Counter => {
                        let _ = rustix::io::read(&watch.fd, &mut [0; 8]);
                        group
                            .memory_events(&mut self.buffer)
                            .map_err(|_| Errno::NODEV)
                    }
                };
                if let Ok(counters) = counters {
                    return Some(Wake::MemoryEvents(id, counters));
                }
                self.forget(key);
                Some(Wake::Gone(id))
            }
        }
    }

    fn rearm(&mut self, watch: &Watch) -> Result<(), Errno> {
        match watch.kind {
            WatchKind::Priority => self.buffer.pread(&watch.fd, false),
            WatchKind::Counter => Ok(()),
        }
    }

    fn add(&mut self, source: Source, flags: epoll::EventFlags) -> Result<(), Errno> {
        self.last_key += 1;
        let key = epoll::EventData::new_u64(self.last_key);
        epoll::add(&self.epoll, source.fd(), key, flags)?;
        self.sources.insert(self.last_key, source);
        Ok(())
    }

    fn forget(&mut self, key: u64) {
        if let Some(source) = self.sources.remove(&key) {
            let _ = epoll::delete(&self.epoll, source.fd());
        }
    }
}

fn flags(kind: WatchKind) -> epoll::EventFlags {
    match kind {
        WatchKind::Priority => epoll::EventFlags::PRI,
        WatchKind::Counter => epoll::EventFlags::IN,
    }
}

fn host_error(what: &'static str, errno: Errno) -> Error {
    Error::from_errno("/", what, errno)
}

#[cfg(test)]
mod tests;
