//! Writes of `memory.reclaim`: threads of their own, started when they are first needed.
//!
//! One write for each group at a time: while the kernel still works on the last one, no new one begins,
//! however late the last one is. A late write is not a problem. Bytes are the requested ones, because the
//! kernel does not say how much a partial reclaim took.

use std::collections::HashMap;

use justitia_cgroup::{Group, Outcome, WriteResult, Writer, WriterConfig, Written};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::GroupId;

use super::writers::start_writer;
use crate::observe::Observer;
use crate::status::{Problem, Reclaimed};

/// Groups are reclaimed one at a time, and up to three more may hang.
const CONFIG: fn() -> WriterConfig = || WriterConfig {
    workers: 1,
    max_stuck: 3,
    ..WriterConfig::default()
};

/// The threads, and the writes on their way.
#[derive(Debug, Default)]
pub(super) struct Reclaimer {
    writer: Option<Writer>,
    in_flight: HashMap<GroupId, u64>,
    /// The bytes so far.
    pub(super) totals: Reclaimed,
    outcomes: Vec<Outcome>,
}

impl Reclaimer {
    /// Starts a reclaim of a group's page cache. `false`: the last one has not ended.
    pub(super) fn ask(&mut self, group: &Group, value: Value) -> Result<bool, Problem> {
        let Value::Reclaim(bytes) = value else {
            return Ok(false);
        };
        if self.in_flight.contains_key(&group.id()) {
            return Ok(false);
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let started = start_writer(CONFIG());
                none.insert(started.map_err(|error| Problem::general(&error))?)
            }
        };
        writer.submit(group, Knob::MemoryReclaim, value);
        self.in_flight.insert(group.id(), bytes.0);
        Ok(true)
    }

    /// Takes in the outcomes of earlier writes.
    pub(super) fn settle(&mut self, observer: &Observer) -> Vec<Problem> {
        let mut problems = Vec::new();
        let Some(writer) = &self.writer else {
            return problems;
        };
        writer.outcomes(&mut self.outcomes);
        for outcome in self.outcomes.drain(..) {
            let fulfilled = match &outcome.result {
                // It goes on in the kernel; a late outcome follows.
                WriteResult::TimedOut => continue,
                WriteResult::Done | WriteResult::Late(Ok(Written::Done)) => Some(true),
                WriteResult::Partial | WriteResult::Late(Ok(Written::Partial)) => Some(false),
                WriteResult::Failed(error) | WriteResult::Late(Err(error)) => {
                    if !error.is_gone() {
                        let path = observer.group(outcome.group).map_or("", Group::path);
                        problems.push(Problem::of(path, error));
                    }
                    None
                }
                WriteResult::Superseded | WriteResult::Changed => None,
            };
            let asked = self.in_flight.remove(&outcome.group).unwrap_or(0);
            if let Some(fulfilled) = fulfilled {
                self.totals.asked += asked;
                self.totals.taken += if fulfilled { asked } else { 0 };
                self.totals.partial += u64::from(!fulfilled);
            }
        }
        problems
    }
}
