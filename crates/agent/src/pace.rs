//! Times of steps: once an interval, and early when something happened that cannot wait.
//!
//! Early, but at least [`SHORTEST`] after the last step:
//! - memory pressure of the host that begins while nobody was known to contend;
//! - `memory.events` `high` of a group that is not meant to be throttled: its limit was headroom,
//!   and something grew into it;
//! - growth, since the last step, of the anonymous and kernel memory of a group that *is* meant to be
//!   throttled: the limit was made for its page cache. Such a group has `high` events all the time and is not
//!   watched for them. It is polled every [`GUARD_EVERY`], [`GUARD_GROUPS`] groups at a time.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use justitia_cgroup::{Events, Fs, Wake, Waker};
use justitia_policy::plan::{Knob, Plan, Reason, Value};
use justitia_policy::snapshot::GroupId;
use justitia_policy::units::{Bytes, Limit};

use crate::error::{plain, Error, Result};
use crate::log::Log;
use crate::notify::Notifier;
use crate::observe::Observer;

/// Shortest time between two steps.
pub const SHORTEST: Duration = Duration::from_millis(200);
/// Interval at which throttled groups are polled between two steps.
pub const GUARD_EVERY: Duration = Duration::from_millis(250);
/// Number of groups polled at a time: bounds the cost on a host with hundreds.
pub const GUARD_GROUPS: usize = 16;
/// Growth that does not wait for the next step.
const GUARD_BYTES: Bytes = Bytes::mib(1);

/// Controls the loop from outside, for signals and tests.
#[derive(Debug, Clone)]
pub struct Control {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    waker: Waker,
}

impl Control {
    /// Ends the loop.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Makes the loop read the configuration again.
    pub fn reload(&self) {
        self.reload.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// True if it was told to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// True if a reload was requested since the last call.
    pub fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::AcqRel)
    }
}

/// Reason for the end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The interval is over.
    Due,
    /// Something cannot wait for the interval.
    Early,
    /// Told to stop or to reload: no step.
    Told,
}

/// The events that the loop waits for.
pub struct Pace {
    events: Events,
    control: Control,
    /// Some group contended in the last step.
    contended: bool,
    /// Groups held at their share on purpose.
    throttled: BTreeSet<GroupId>,
    /// The last of them that was polled.
    guarded: Option<GroupId>,
    /// Groups whose finite `memory.high` is headroom, so that its events mean something.
    headroom: HashSet<GroupId>,
}

impl Pace {
    /// Waits only for time and memory pressure at first.
    pub fn new(fs: &Fs, log: &Log) -> Result<Pace> {
        let mut events =
            Events::new().map_err(|error| Error::environment(&error, error.remedy()))?;
        if events.watch_host_pressure(&**fs).is_err() {
            log.info("no pressure triggers on this kernel: steps come once an interval only");
        }
        let waker = events.waker();
        let control = Control {
            stop: Arc::default(),
            reload: Arc::default(),
            waker,
        };
        Ok(Pace {
            events,
            control,
            contended: false,
            throttled: BTreeSet::new(),
            guarded: None,
            headroom: HashSet::new(),
        })
    }

    /// The handle that controls the loop.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Takes in a step's plan. `applied` says whether it was also written.
    pub fn learn(&mut self, plan: &Plan, applied: bool, observer: &mut Observer) {
        self.contended = plan.verdicts.iter().any(|verdict| verdict.contending);
        observer.note_contention(self.contended);
        if !applied {
            return;
        }
        let writes = plan.writes.iter();
        for write in writes.filter(|write| write.knob == Knob::MemoryHigh) {
            let id = write.group;
            let finite = matches!(write.value, Value::Limit(Limit::Bytes(_)));
            if !finite {
                self.throttled.remove(&id);
            } else if matches!(
                write.reason,
                Reason::AboveShare { .. }
                    | Reason::AtEntitlement
                    | Reason::Rebalance
                    | Reason::Reserved
                    | Reason::ShareOfMemory
            ) {
                self.throttled.insert(id);
            }
            // A throttle that makes room stays a throttle.
            if finite && !self.throttled.contains(&id) {
                let Some(group) = observer.group(id) else {
                    continue;
                };
                if !self.headroom.contains(&id) && self.events.watch_memory_events(group).is_ok() {
                    self.headroom.insert(id);
                }
            } else if self.headroom.remove(&id) {
                self.events.unwatch(id);
            }
        }
    }

    /// Forgets the limits of all groups but those that stay.
    pub fn retain(&mut self, stays: impl Fn(GroupId) -> bool) {
        self.throttled.retain(|&group| stays(group));
        let events = &mut self.events;
        self.headroom.retain(|&group| {
            let stays = stays(group);
            if !stays {
                events.unwatch(group);
            }
            stays
        });
    }

    /// Waits until a step is due at `due`, or should be made early; `last` is when the last one
    /// began.
    pub fn wait(
        &mut self,
        last: Instant,
        due: Instant,
        observer: &mut Observer,
        notifier: &Notifier,
        log: &Log,
    ) -> Woken {
        let mut wakes = Vec::new();
        let mut early = false;
        let mut alive = Instant::now();
        let mut guard = last + GUARD_EVERY;
        loop {
            if self.control.is_stopped() || self.control.reload.load(Ordering::Acquire) {
                return Woken::Told;
            }
            let now = Instant::now();
            let until = if early { due.min(last + SHORTEST) } else { due };
            if now >= until {
                return if early { Woken::Early } else { Woken::Due };
            }
            let mut timeout = until - now;
            if !self.throttled.is_empty() && due > guard {
                if now >= guard {
                    early |= self.guard(observer);
                    guard = now + GUARD_EVERY;
                    continue;
                }
                timeout = timeout.min(guard - now);
            }
            if let Some(period) = notifier.period() {
                if now.duration_since(alive) >= period {
                    notifier.alive();
                    alive = now;
                }
                timeout = timeout.min(period);
            }
            wakes.clear();
            if let Err(error) = self.events.wait(timeout, &mut wakes) {
                // Without events the interval alone drives the loop.
                log.warn_once(format_args!("cannot wait for events: {}", plain(&error)));
                std::thread::sleep(timeout.min(Duration::from_millis(100)));
            }
            for wake in &wakes {
                match wake {
                    Wake::MemoryEvents(group) => early |= self.headroom.contains(group),
                    Wake::HostPressure => early |= !self.contended,
                    // The watch ended. It begins again with the next limit, if only the controller was gone.
                    Wake::Gone(group) => {
                        self.headroom.remove(group);
                        observer.look_for_groups();
                    }
                    Wake::Waker => {}
                }
            }
        }
    }

    /// True if the memory of a throttled group, other than page cache, grew since the last step.
    fn guard(&mut self, observer: &mut Observer) -> bool {
        let after = self
            .guarded
            .map_or(GroupId(0), |GroupId(id)| GroupId(id.wrapping_add(1)));
        let (first, then) = (self.throttled.range(after..), self.throttled.range(..after));
        for &group in first.chain(then).take(GUARD_GROUPS) {
            self.guarded = Some(group);
            if observer.non_file_growth(group) >= Some(GUARD_BYTES) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use justitia_cgroup::FakeFs;
    use justitia_discover::{DiscoverConfig, RuntimeDirs};
    use justitia_policy::plan::Write;

    use super::*;

    /// A host whose one group has got a limit for this reason.
    fn limited(reason: Reason) -> (Arc<FakeFs>, Observer, Pace, Log) {
        let fake = FakeFs::new();
        let group = fake.mkdir("/app/a");
        let (fs, log): (Fs, _) = (fake.clone(), Log::captured());
        let managing = DiscoverConfig::managing(&["/app/*"]);
        let observer = Observer::new(fs.clone(), managing, RuntimeDirs::none());
        let (mut observer, mut pace) = (observer.unwrap(), Pace::new(&fs, &log).unwrap());
        observer.observe();
        let write = Write {
            group,
            knob: Knob::MemoryHigh,
            value: Value::Limit(Limit::Bytes(Bytes::mib(90))),
            reason,
        };
        let plan = Plan {
            writes: vec![write],
            ..Plan::default()
        };
        pace.learn(&plan, true, &mut observer);
        (fake, observer, pace, log)
    }

    #[test]
    fn throttling_at_the_entitlement_makes_no_early_steps_and_growth_into_headroom_does() {
        for (reason, woken) in [
            (Reason::AtEntitlement, Woken::Due),
            (Reason::MakeRoom, Woken::Early),
        ] {
            let (fake, mut observer, mut pace, log) = limited(reason);
            fake.memory_event("/app/a", |events| events.high = Some(1));
            let (now, notifier) = (Instant::now(), Notifier::to(None, None));
            let due = now + 2 * SHORTEST;
            assert_eq!(pace.wait(now, due, &mut observer, &notifier, &log), woken);
        }
    }

    #[test]
    fn a_group_whose_watch_ended_is_watched_again_with_its_next_limit() {
        let (fake, mut observer, mut pace, log) = limited(Reason::MakeRoom);
        assert_eq!(pace.headroom.len(), 1);
        fake.rmdir("/app/a");
        let (now, notifier) = (Instant::now(), Notifier::to(None, None));
        pace.wait(now, now + SHORTEST, &mut observer, &notifier, &log);
        assert!(pace.headroom.is_empty());
    }
}
