//! Restores knobs to their prior values.
//!
//! A knob that holds a value of ours is restored. A knob that holds its prior value needs nothing. Any other
//! value is the user's and stays. A group that vanished is forgotten, and so is one that was recreated under
//! the same path, because it has another cgroup id.
//!
//! Order ([`Turn`]): throttles first (`memory.high`), then the block layer's knobs, then protection
//! (`memory.low`) from the leaves up, so that no group is throttled without its protection and no
//! parent gives protection that its children do not claim yet.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use justitia_cgroup::{Error, Fs, Group, WriteResult};
use justitia_policy::knob::{Knob, Turn, Value};
use justitia_policy::snapshot::GroupId;
use serde::Serialize;

use crate::apply::writers::Writers;
use crate::journal::{Journal, Key};
use crate::record::same;
use crate::status::Problem;

/// Time that all writes together may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for which protection waits for limits to rise. Raising reclaims nothing, and takes microseconds.
const RAISED: Duration = Duration::from_millis(200);

/// The outcome of a restore, and the JSON of `justitia restore`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Written back.
    pub restored: usize,
    /// Held their prior value already.
    pub unchanged: usize,
    /// Their group is gone.
    pub vanished: usize,
    /// Belong to somebody else by now: path and file.
    pub foreign: Vec<String>,
    /// Could not be put back, and stay in the journal.
    pub problems: Vec<Problem>,
}

impl Restored {
    /// In words, for a log line.
    pub fn summary(&self) -> String {
        let mut text = format!("{} knobs restored", self.restored);
        for (count, what) in [
            (self.unchanged, "already as before"),
            (self.foreign.len(), "left to somebody else"),
            (self.vanished, "gone with their group"),
            (self.problems.len(), "could not be restored"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        text
    }
}

/// A knob on its way back.
#[derive(Debug, Clone)]
pub(crate) struct Return {
    pub(crate) group: Group,
    pub(crate) knob: Knob,
    pub(crate) prior: Value,
    /// Time at which its write was submitted.
    pub(crate) since: Instant,
}

/// State of a knob on its way back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It holds its prior value.
    Back,
    /// Its group is gone.
    Vanished,
    /// Not yet back; its present value, if that can be read.
    Pending(Option<Value>),
}

impl Return {
    /// Reads the knob.
    pub(crate) fn look(&self) -> Arrival {
        match self.group.read_knob(self.knob) {
            Ok(Some(present)) if same(present, self.prior) => Arrival::Back,
            Ok(present) => Arrival::Pending(present),
            Err(error) if error.is_gone() => Arrival::Vanished,
            Err(_) => Arrival::Pending(None),
        }
    }

    /// The problem that it did not come back.
    pub(crate) fn problem(&self) -> Problem {
        let path = self.group.path();
        let Return { knob, prior, .. } = self;
        Problem {
            group: Some(path.to_owned()),
            cause: format!("{path} {knob} could not be set back to {prior}"),
            remedy: "run justitia restore again".into(),
        }
    }
}

/// Restores every knob in the journal, and waits for the kernel up to a bound. The journal need not be
/// writable.
pub fn restore(fs: &Fs, journal: &mut Journal, writers: &Writers) -> Restored {
    let mut restored = Restored::default();
    let returns = begin(fs, journal, writers, |_| true, |_| false, &mut restored);
    writers.drain(PATIENCE);
    writers.drain_disks();
    let mut failures = failures(writers);
    let mut done = Vec::new();
    for back in returns {
        let key = (back.group.id(), back.knob);
        match back.look() {
            Arrival::Back => restored.restored += 1,
            Arrival::Vanished => restored.vanished += 1,
            // Somebody set it while our write waited.
            Arrival::Pending(Some(present)) if !journal.is_ours(key, present) => {
                let path = back.group.path();
                restored.foreign.push(format!("{path} {}", back.knob));
            }
            Arrival::Pending(_) => {
                let failure = failures.remove(&key);
                restored
                    .problems
                    .push(failure.unwrap_or_else(|| back.problem()));
                continue;
            }
        }
        done.push(key);
    }
    forget(journal, &done, &mut restored.problems);
    restored
}

/// Forgets knobs that need nothing more. A failed write of the journal is a problem.
pub(crate) fn forget(journal: &mut Journal, keys: &[Key], problems: &mut Vec<Problem>) {
    if let Err(error) = journal.forget(keys) {
        problems.push(Problem::general(&error));
    }
}

/// Submits the writes that restore knobs. Returns without waiting for them, except for limits that rise.
/// `in_flight` tells whether a write of ours to a knob may still arrive; such a knob is restored even if it holds its
/// prior value now, and the caller looks again when that write has ended. A value that somebody else set stays, also
/// one that they set while the write waits. A disk's knob with a write in flight is restored whatever it holds.
pub(crate) fn begin(
    fs: &Fs,
    journal: &mut Journal,
    writers: &Writers,
    concerns: impl Fn(Key) -> bool,
    in_flight: impl Fn(Key) -> bool,
    restored: &mut Restored,
) -> Vec<Return> {
    let mut held: Vec<_> = journal.entries().iter().collect();
    held.retain(|(&key, _)| concerns(key));
    held.sort_by_key(|(&(group, knob), entry)| {
        let depth = entry.path.matches('/').count();
        (knob.restored(), std::cmp::Reverse(depth), group)
    });
    let mut done = Vec::with_capacity(held.len());
    let mut returns = Vec::new();
    let mut raised = false;
    let mut groups: HashMap<GroupId, Result<Option<Group>, Error>> = HashMap::new();
    for (&key, entry) in held {
        let (id, knob) = key;
        let group = groups
            .entry(id)
            .or_insert_with(|| find(fs, &entry.path, id));
        let group = match group {
            Ok(Some(group)) => group,
            Ok(None) => {
                restored.vanished += 1;
                done.push(key);
                continue;
            }
            Err(error) => {
                restored.problems.push(Problem::of(&entry.path, error));
                continue;
            }
        };
        if knob.restored() != Turn::Throttle && !std::mem::replace(&mut raised, true) {
            writers.drain_raises(RAISED);
        }
        let flying = in_flight(key);
        match group.read_knob(knob) {
            Ok(Some(present)) if same(present, entry.prior) && !flying => {
                restored.unchanged += 1;
                done.push(key);
            }
            // A write of io.cost.qos sets its value late: the kernel first waits for the disk's requests.
            Ok(Some(present))
                if entry.is_ours(present)
                    || flying && (same(present, entry.prior) || knob.is_disks()) =>
            {
                if flying && knob.is_disks() {
                    writers.submit(group, knob, present, entry.prior);
                } else {
                    writers.submit_over(group, knob, present, entry.prior);
                }
                returns.push(Return {
                    group: group.clone(),
                    knob,
                    prior: entry.prior,
                    since: Instant::now(),
                });
            }
            Ok(Some(_)) => {
                restored.foreign.push(format!("{} {knob}", entry.path));
                done.push(key);
            }
            // Without the file (io.bfq.weight after the scheduler changed) there is nothing to restore.
            Ok(None) => match group.has_knob(knob) {
                Ok(false) => {
                    restored.vanished += 1;
                    done.push(key);
                }
                Ok(true) => restored.problems.push(Problem {
                    group: Some(group.path().to_owned()),
                    cause: format!(
                        "{} {knob} holds a value that is not understood",
                        group.path()
                    ),
                    remedy: "run justitia restore again".into(),
                }),
                Err(error) => restored.problems.push(Problem::of(&entry.path, &error)),
            },
            Err(error) if error.is_gone() => {
                restored.vanished += 1;
                done.push(key);
            }
            Err(error) => restored.problems.push(Problem::of(&entry.path, &error)),
        }
    }
    forget(journal, &done, &mut restored.problems);
    returns
}

/// The group with this id. `None`: it is gone, or another one has its path. A group that cannot be opened for
/// another reason (no descriptors left, no permission) may still exist.
pub(crate) fn find(fs: &Fs, path: &str, id: GroupId) -> Result<Option<Group>, Error> {
    match fs.open(path) {
        Ok(group) => Ok(Some(group).filter(|group| group.id() == id)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The failed writes.
fn failures(writers: &Writers) -> HashMap<Key, Problem> {
    let mut outcomes = Vec::new();
    writers.outcomes(&mut outcomes);
    let failed = outcomes
        .into_iter()
        .filter_map(|outcome| match outcome.result {
            WriteResult::Failed(error) | WriteResult::Late(Err(error)) => {
                let key = (outcome.group, outcome.knob);
                Some((key, Problem::of(&error.path, &error)))
            }
            _ => None,
        });
    failed.collect()
}
