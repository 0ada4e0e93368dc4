//! Putting knobs back to what they held before us.
//!
//! A knob goes back if it holds something we wrote; if it holds what it held before us there is
//! nothing to do; anything else is the user's and stays. A group that vanished is forgotten, and
//! so is one that was made anew under the same path: it has another cgroup id.
//!
//! Order: throttles first (`memory.high`), then the block layer's weights, then protection
//! (`memory.low`) from the leaves up, so that no group is throttled without its protection and no
//! parent gives protection that its children do not claim yet.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use justitia_cgroup::{Error, Fs, Group, WriteResult, Writer};
use justitia_policy::plan::Knob;
use justitia_policy::snapshot::GroupId;

use crate::error::Result as AgentResult;
use crate::journal::Journal;
use crate::record::same;
use crate::status::Problem;

/// How long all writes together may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What became of the knobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// Written back.
    pub restored: usize,
    /// Held their prior value already.
    pub unchanged: usize,
    /// Belong to somebody else by now: path and file.
    pub foreign: Vec<String>,
    /// Their group is gone.
    pub vanished: usize,
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

/// Puts back every knob in the journal whose group `concerns` picks.
pub fn restore(
    fs: &Fs,
    journal: &mut Journal,
    writer: &Writer,
    concerns: impl Fn(GroupId) -> bool,
) -> AgentResult<Restored> {
    let mut restored = Restored::default();
    let mut keys: Vec<_> = journal.entries().keys().copied().collect();
    keys.retain(|&(group, _)| concerns(group));
    keys.sort_by_key(|&(group, knob)| {
        let depth = journal
            .get(group, knob)
            .map_or(0, |entry| entry.path.matches('/').count());
        (rank(knob), std::cmp::Reverse(depth), group)
    });
    let mut done = Vec::with_capacity(keys.len());
    let mut written = Vec::new();
    let mut groups: HashMap<GroupId, Result<Option<Group>, Error>> = HashMap::new();
    for key @ (id, knob) in keys {
        let Some(entry) = journal.get(id, knob) else {
            continue;
        };
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
        match group.read_knob(knob) {
            Ok(Some(present)) if same(present, entry.prior) => {
                restored.unchanged += 1;
                done.push(key);
            }
            Ok(Some(present)) if entry.is_ours(present) => {
                writer.submit(group, knob, entry.prior);
                written.push((key, group.clone(), entry.prior));
            }
            Ok(Some(_)) => {
                restored.foreign.push(format!("{} {knob}", entry.path));
                done.push(key);
            }
            // Without the file (io.bfq.weight after the scheduler changed) there is nothing left.
            Ok(None) => match group.has_knob(knob) {
                Ok(false) => {
                    restored.vanished += 1;
                    done.push(key);
                }
                Ok(true) => restored.problems.push(Problem {
                    group: Some(group.path().to_owned()),
                    cause: format!("{} {knob} holds no value that is understood", group.path()),
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
    writer.drain(PATIENCE);
    let mut failures = failures(writer, concerns);
    for (key @ (id, knob), group, prior) in written {
        match group.read_knob(knob) {
            Ok(Some(present)) if same(present, prior) => {
                restored.restored += 1;
                done.push(key);
            }
            Err(error) if error.is_gone() => {
                restored.vanished += 1;
                done.push(key);
            }
            _ => restored
                .problems
                .push(failures.remove(&(id, knob)).unwrap_or_else(|| Problem {
                    group: Some(group.path().to_owned()),
                    cause: format!("{} {knob} could not be set back to {prior}", group.path()),
                    remedy: "run justitia restore again".into(),
                })),
        }
    }
    journal.forget(&done)?;
    Ok(restored)
}

fn rank(knob: Knob) -> u8 {
    match knob {
        Knob::MemoryHigh => 0,
        Knob::IoWeight | Knob::IoBfqWeight | Knob::BfqLowLatency => 1,
        Knob::MemoryLow => 2,
        Knob::MemoryReclaim => 3,
    }
}

/// The group of this id; `None` if it is gone, or another one has its path. What cannot be opened
/// for another reason (no descriptors left, no permission) may well be there.
pub(crate) fn find(fs: &Fs, path: &str, id: GroupId) -> Result<Option<Group>, Error> {
    match fs.open(path) {
        Ok(group) => Ok(Some(group).filter(|group| group.id() == id)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What failed for these groups; how the writes of others went somebody else wants to know.
fn failures(
    writer: &Writer,
    concerns: impl Fn(GroupId) -> bool,
) -> HashMap<(GroupId, Knob), Problem> {
    let mut outcomes = Vec::new();
    writer.outcomes_of(concerns, &mut outcomes);
    let failed = outcomes
        .into_iter()
        .filter_map(|outcome| match outcome.result {
            WriteResult::Failed(error) | WriteResult::Late(Err(error)) => {
                let key = (outcome.group, outcome.knob);
                Some((
                    key,
                    Problem {
                        group: None,
                        cause: error.to_string(),
                        remedy: error.remedy().to_owned(),
                    },
                ))
            }
            _ => None,
        });
    failed.collect()
}
