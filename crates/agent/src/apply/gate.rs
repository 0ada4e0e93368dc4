//! The kernel module's gate: the agent holds it while it is wanted, feeds it the plan's weights and sends
//! heartbeats.
//!
//! The open file is the hold. When it is closed, by a crash too, the module opens the gate and forgets
//! weights and settings. So the journal has nothing to keep, and nothing is undone one by one.
//!
//! The heartbeat comes from a thread that does nothing else ([`Pulse`]): a step may have to wait for the
//! memory of a process that waits at the gate. The thread stops after a long time without a step: a loop that
//! hangs must not hold writers by weights that nobody updates.
//!
//! A missing module is a problem in the report and is tried again each step; nothing else waits for it. A
//! weight that the module refuses is a problem too: its group passes, and the others are still ordered. This
//! module decides nothing: the plan says what to feed.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use justitia_cgroup::gate::{Config, GateDevice, GateError, State};
use justitia_cgroup::Fs;
use justitia_policy::plan::Feed;
use justitia_policy::snapshot::{GateSeen, GroupId};

use crate::config::GateSettings;
use crate::log::Log;
use crate::status::{Problem, Reading};

/// Time for which the gate stays closed without a heartbeat: a thread that is late on a busy host does not
/// open it.
const OPENS_AFTER: Duration = Duration::from_secs(5);
const BEATS_EVERY: Duration = Duration::from_secs(1);
/// Heartbeats stop after this many intervals, and at least [`LEAST_HANG`], without a step.
const STEPS_MISSED: u32 = 4;
const LEAST_HANG: Duration = Duration::from_secs(30);

/// The gate, if it is wanted and available.
#[derive(Default)]
pub(crate) struct Gate {
    device: Option<Arc<dyn GateDevice>>,
    root: Option<GroupId>,
    wanted: Option<Config>,
    pulse: Option<Pulse>,
    /// Time without a step after which heartbeats stop.
    hang: Duration,
    fed: BTreeMap<GroupId, u32>,
}

impl Gate {
    /// Holds it with these settings (`None`: releases it), before the step decides. Returns a problem
    /// if that fails.
    pub(crate) fn hold(
        &mut self,
        fs: &Fs,
        settings: Option<&GateSettings>,
        interval: Duration,
        log: &Log,
    ) -> Option<Problem> {
        let Some(settings) = settings else {
            self.let_go(log);
            return None;
        };
        self.try_hold(fs, settings, interval, log)
            .err()
            .map(|error| {
                // A gate that takes only part of its settings is not held.
                self.let_go(log);
                problem(&error)
            })
    }

    fn try_hold(
        &mut self,
        fs: &Fs,
        settings: &GateSettings,
        interval: Duration,
        log: &Log,
    ) -> Result<(), GateError> {
        let device = if let Some(device) = &self.device {
            Arc::clone(device)
        } else {
            let device: Arc<dyn GateDevice> = Arc::from(fs.gate(true)?);
            log.info("holds the gate of the kernel module");
            self.root = fs.open("/").ok().map(|root| root.id());
            self.device = Some(Arc::clone(&device));
            device
        };
        self.hang = (interval * STEPS_MISSED).max(LEAST_HANG);
        let before = match self.wanted {
            Some(wanted) => wanted,
            None => device.config()?,
        };
        let wanted = Config {
            order: settings.order as u32,
            aging: settings.aging,
            heartbeat_ms: OPENS_AFTER.as_millis() as u32,
            ..before
        };
        if self.wanted != Some(wanted) {
            device.set_config(&wanted)?;
            self.wanted = Some(wanted);
        }
        if let Some(pulse) = &self.pulse {
            if pulse.step(self.hang) {
                return Ok(());
            }
            // This heartbeat returns the reason why the thread stopped, or shows that the reason has passed.
            self.pulse = None;
            device.beat()?;
        }
        Ok(())
    }

    /// The gate as the policy sees it. `None`: it is not held.
    pub(crate) fn seen(&self) -> Option<GateSeen> {
        let device = self.device.as_ref()?;
        let closed = device
            .info()
            .is_ok_and(|info| info.state() == State::Closed);
        Some(GateSeen {
            closed,
            root: self.root,
            fed: self.fed.iter().map(|(&id, &weight)| (id, weight)).collect(),
        })
    }

    /// Feeds it, and closes it the first time.
    pub(crate) fn apply(&mut self, feeds: &[Feed], log: &Log) -> Vec<Problem> {
        let mut problems = self.feed(feeds);
        if let (Some(device), None) = (&self.device, &self.pulse) {
            match device.enable(true) {
                Ok(()) => {
                    let pulse = Pulse::start(Arc::clone(device), BEATS_EVERY, self.hang);
                    self.pulse = Some(pulse);
                }
                Err(error) => {
                    self.let_go(log);
                    problems.push(problem(&error));
                }
            }
        }
        problems
    }

    fn feed(&mut self, feeds: &[Feed]) -> Vec<Problem> {
        let Some(device) = &self.device else {
            return Vec::new();
        };
        let mut refused = Vec::new();
        for feed in feeds {
            match device.feed(feed.group, feed.weight) {
                Ok(()) => match feed.weight {
                    Some(weight) => {
                        self.fed.insert(feed.group, weight);
                    }
                    None => {
                        self.fed.remove(&feed.group);
                    }
                },
                Err(error) => refused.push(error),
            }
        }
        // One problem, however many weights were refused.
        let first = refused.first().map(|error| Problem {
            cause: format!(
                "gate: {} of {} weights were refused, the first because {error}",
                refused.len(),
                feeds.len()
            ),
            ..problem(error)
        });
        first.into_iter().collect()
    }

    /// Closes the file, which opens the gate and removes all groups at once.
    pub(crate) fn let_go(&mut self, log: &Log) {
        if std::mem::take(self).device.is_some() {
            log.info("released the gate of the kernel module");
        }
    }

    /// A reading of its state. `None`: it is not held.
    pub(crate) fn read(&self) -> Option<Reading> {
        let device = self.device.as_ref()?;
        Some(Reading::of(device.as_ref(), true).unwrap_or_default())
    }
}

/// Sends heartbeats until it is dropped, until one is refused, or until steps stop.
struct Pulse {
    alive_until: Arc<Mutex<Instant>>,
    /// Dropped to end it.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    fn start(device: Arc<dyn GateDevice>, every: Duration, hang: Duration) -> Pulse {
        let alive_until = Arc::new(Mutex::new(Instant::now() + hang));
        let (end, ended) = mpsc::channel();
        let until = Arc::clone(&alive_until);
        let beat = move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
                if until < Instant::now() || device.beat().is_err() {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("gate-pulse".into()).spawn(beat);
        Pulse {
            alive_until,
            end: Some(end),
            thread: thread.ok(),
        }
    }

    /// Notes that a step began, so that heartbeats go on for `hang`. Returns whether they still do.
    fn step(&self, hang: Duration) -> bool {
        let mut until = self
            .alive_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *until = Instant::now() + hang;
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.end = None;
        // The thread holds the file.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A problem of the whole host.
pub(crate) fn problem(error: &GateError) -> Problem {
    Problem {
        group: None,
        cause: format!("gate: {error}"),
        remedy: error.remedy().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use justitia_cgroup::fake::FakeGate;
    use justitia_cgroup::gate::GateDevice;
    use justitia_cgroup::{CgroupFs, FakeFs};

    const EVERY: Duration = Duration::from_millis(2);

    fn rig() -> (FakeGate, Arc<dyn GateDevice>) {
        let (fake, gate) = (FakeFs::new(), FakeGate::loaded());
        fake.set_gate(Some(gate.clone()));
        (gate, Arc::from(fake.gate(true).unwrap()))
    }

    fn until(what: &str, condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
            thread::sleep(EVERY);
        }
    }

    #[test]
    fn heartbeats_go_on_while_a_step_hangs_and_end_when_it_hangs_for_long() {
        let (gate, device) = rig();
        let pulse = Pulse::start(device, EVERY, Duration::from_secs(600));
        until("it beats without a step", || gate.heartbeats() > 5);
        assert!(pulse.step(Duration::ZERO));
        until("it ends", || !pulse.step(Duration::ZERO));
        let beats = gate.heartbeats();
        thread::sleep(10 * EVERY);
        assert_eq!(gate.heartbeats(), beats);
    }

    #[test]
    fn a_pulse_that_is_dropped_gives_the_file_back() {
        let (gate, device) = rig();
        let pulse = Pulse::start(device, EVERY, Duration::from_secs(600));
        assert!(gate.is_held());
        drop(pulse);
        assert!(!gate.is_held());
    }

    #[test]
    fn a_refused_heartbeat_ends_it() {
        let (gate, device) = rig();
        gate.refuse(true);
        let pulse = Pulse::start(device, EVERY, Duration::from_secs(600));
        until("it ends", || !pulse.step(Duration::from_secs(600)));
    }
}
