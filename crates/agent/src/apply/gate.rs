//! The kernel module's gate: held while it is wanted, fed what the plan says, told each step that the
//! agent lives.
//!
//! Holding is the open file: when it is closed, by a crash too, the module opens the gate and forgets
//! the weights, so the journal has nothing to keep. The heartbeat comes with the step and not from a
//! thread of its own: a loop that hangs must not hold writers by weights that nobody keeps up.
//!
//! A module that is not there is a problem of the report and tried again each step; nobody else waits
//! for it. Decides nothing: what to feed is the plan's.

use std::collections::BTreeMap;
use std::time::Duration;

use justitia_cgroup::gate::{Config, GateDevice, GateError, State};
use justitia_cgroup::Fs;
use justitia_policy::plan::Feed;
use justitia_policy::snapshot::{GateSeen, GroupId};

use crate::config::GateSettings;
use crate::log::Log;
use crate::status::{Problem, Reading};

/// The gate stays closed for so many steps without a heartbeat, and at least for [`LEAST_BEAT`]: a
/// step that is late on a busy host opens nothing.
const BEATS_MISSED: u32 = 4;
const LEAST_BEAT: Duration = Duration::from_secs(5);
/// The longest that the module waits for one.
const MOST_BEAT: Duration = Duration::from_secs(60);

/// The gate, if it is wanted and there.
#[derive(Default)]
pub(crate) struct Gate {
    device: Option<Box<dyn GateDevice>>,
    wanted: Option<Config>,
    enabled: bool,
    fed: BTreeMap<GroupId, u32>,
}

impl Gate {
    /// Takes hold of it as the settings say (`None`: lets go), before the step decides. Says what is
    /// in the way.
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
        if interval * BEATS_MISSED > MOST_BEAT {
            self.let_go(log);
            return Some(Problem {
                group: None,
                cause: "gate: it opens without a step every 15 s".into(),
                remedy: "shorten the interval, or disable the gate".into(),
            });
        }
        self.try_hold(fs, settings, interval, log)
            .err()
            .map(|error| {
                // What cannot be told what it must know is not held half-told.
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
        if self.device.is_none() {
            self.device = Some(fs.gate(true)?);
            log.info("holds the gate of the kernel module");
        }
        let Some(device) = &self.device else {
            return Ok(());
        };
        let beat = (interval * BEATS_MISSED).max(LEAST_BEAT);
        let before = match self.wanted {
            Some(wanted) => wanted,
            None => device.config()?,
        };
        let wanted = Config {
            order: settings.order as u32,
            aging: settings.aging,
            heartbeat_ms: beat.as_millis() as u32,
            ..before
        };
        if self.wanted != Some(wanted) {
            device.set_config(&wanted)?;
            self.wanted = Some(wanted);
        }
        // Before the step decides, which may take long, too.
        if self.enabled {
            device.beat()?;
        }
        Ok(())
    }

    /// What the policy may know of it; `None`: it is not held.
    pub(crate) fn seen(&self) -> Option<GateSeen> {
        let device = self.device.as_ref()?;
        let closed = device
            .info()
            .is_ok_and(|info| info.state() == State::Closed);
        Some(GateSeen {
            closed,
            fed: self.fed.iter().map(|(&id, &weight)| (id, weight)).collect(),
        })
    }

    /// Feeds it, closes it the first time, and says that we live.
    pub(crate) fn apply(&mut self, feeds: &[Feed], log: &Log) -> Option<Problem> {
        match self.try_apply(feeds) {
            Ok(()) => None,
            Err(error) => {
                self.let_go(log);
                Some(problem(&error))
            }
        }
    }

    fn try_apply(&mut self, feeds: &[Feed]) -> Result<(), GateError> {
        let Some(device) = &self.device else {
            return Ok(());
        };
        let mut refused = None;
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
                // One that it has no room for passes; the others are ordered all the same.
                Err(error) => refused = Some(error),
            }
        }
        if self.enabled {
            device.beat()?;
        } else {
            device.enable(true)?;
            self.enabled = true;
        }
        refused.map_or(Ok(()), Err)
    }

    /// Opens it, takes the groups out and closes the file.
    pub(crate) fn let_go(&mut self, log: &Log) {
        let gate = std::mem::take(self);
        let Some(device) = gate.device else { return };
        // Closing the file does the same. Where one of these is refused, that is left to it.
        let _ = device.enable(false);
        for &group in gate.fed.keys() {
            let _ = device.feed(group, None);
        }
        drop(device);
        log.info("let the gate of the kernel module go");
    }

    /// What it tells now; `None`: it is not held.
    pub(crate) fn read(&self) -> Option<Reading> {
        let device = self.device.as_ref()?;
        Some(Reading::of(device.as_ref(), true).unwrap_or_default())
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate")
            .field("fed", &self.fed)
            .finish_non_exhaustive()
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
