//! The data on the screen: the last report, and for each group a short history and the last writes.
//!
//! Groups are identified by cgroup ID, so a recycled path begins a new history. The history has one sample
//! for each report with a new step of the agent; an unknown value stays unknown. Times are steps of the
//! agent: no clock is read.

use std::collections::{BTreeMap, VecDeque};

use justitia_report::status::{GroupStatus, PlannedWrite, Report};

/// Samples in the history: more than the widest sparkline shows.
const SAMPLES: usize = 200;
/// Writes kept for each group.
const WRITES: usize = 8;

#[derive(Debug, Clone)]
pub(crate) struct Picture {
    /// The last report.
    pub(crate) report: Report,
    past: BTreeMap<u64, Past>,
}

/// The history of one group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Past {
    /// Application-level bandwidth, bytes per second.
    pub(crate) rate: Series,
    /// Page cache, bytes.
    pub(crate) file: Series,
    /// Hit ratio, 0 to 1.
    pub(crate) hits: Series,
    /// Share of the period in which it waited, 0 to 1.
    pub(crate) stalls: Series,
    /// Last writes to its knobs, the newest first, each with the step that planned it.
    pub(crate) writes: VecDeque<(u64, PlannedWrite)>,
}

/// Samples, the newest last. Single precision suffices for a sparkline.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series(VecDeque<Option<f32>>);

impl Picture {
    pub(crate) fn new(report: Report) -> Picture {
        let mut picture = Picture {
            report,
            past: BTreeMap::new(),
        };
        picture.remember();
        picture
    }

    /// Takes the next report.
    pub(crate) fn take(&mut self, report: Report) {
        let restarted = report.since_unix_s != self.report.since_unix_s;
        let stepped = restarted || report.ticks_total != self.report.ticks_total;
        if restarted {
            // The new agent counts steps from the beginning, so the old step numbers have no meaning.
            for past in self.past.values_mut() {
                past.writes.clear();
            }
        }
        self.report = report;
        if stepped {
            self.remember();
        }
    }

    pub(crate) fn past(&self, id: u64) -> Option<&Past> {
        self.past.get(&id)
    }

    fn remember(&mut self) {
        let mut old = std::mem::take(&mut self.past);
        let mut writes: BTreeMap<&str, Vec<&PlannedWrite>> = BTreeMap::new();
        for write in &self.report.writes {
            writes.entry(&write.path).or_default().push(write);
        }
        for group in &self.report.groups {
            let mut past = old.remove(&group.id).unwrap_or_default();
            past.sample(group);
            for write in writes.remove(group.path.as_str()).into_iter().flatten() {
                past.writes
                    .push_front((self.report.ticks_total, write.clone()));
            }
            past.writes.truncate(WRITES);
            self.past.insert(group.id, past);
        }
    }
}

impl Past {
    fn sample(&mut self, group: &GroupStatus) {
        let verdict = group.verdict.as_ref();
        self.rate.push(verdict.and_then(|v| v.bytes_per_s));
        self.file.push(group.file_bytes.map(|bytes| bytes as f64));
        self.hits.push(verdict.and_then(|v| v.cache.hit_ratio));
        self.stalls.push(verdict.and_then(|v| v.stalled));
    }
}

impl Series {
    fn push(&mut self, value: Option<f64>) {
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(value.map(|value| value as f32));
    }

    /// Up to `count` of the newest samples, in order of time.
    pub(crate) fn last(&self, count: usize) -> Vec<Option<f32>> {
        let skip = self.0.len().saturating_sub(count);
        self.0.iter().skip(skip).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{group, report};
    use super::*;
    use justitia_policy::plan::{Knob, Reason};

    fn at(tick: u64, id: u64, rate: Option<f64>) -> Report {
        let mut one = group("/app/a", 100);
        one.id = id;
        one.verdict.as_mut().unwrap().bytes_per_s = rate;
        let mut report = report(vec![one]);
        report.ticks_total = tick;
        report
    }

    fn rates(picture: &Picture, id: u64) -> Vec<Option<f32>> {
        picture.past(id).unwrap().rate.last(SAMPLES)
    }

    #[test]
    fn a_step_is_sampled_once_however_often_it_is_asked_for() {
        let mut picture = Picture::new(at(1, 7, Some(1.0)));
        picture.take(at(1, 7, Some(1.0)));
        picture.take(at(2, 7, None));
        assert_eq!(rates(&picture, 7), [Some(1.0), None]);
    }

    #[test]
    fn a_recycled_path_has_no_past_and_a_group_that_is_gone_is_forgotten() {
        let mut picture = Picture::new(at(1, 7, Some(1.0)));
        picture.take(at(2, 8, Some(2.0)));
        assert_eq!(rates(&picture, 8), [Some(2.0)]);
        assert!(picture.past(7).is_none());
    }

    #[test]
    fn the_past_does_not_grow_for_ever() {
        let mut picture = Picture::new(at(0, 7, Some(0.0)));
        for tick in 1..1000 {
            let mut next = at(tick, 7, Some(tick as f64));
            next.writes = vec![write("/app/a")];
            picture.take(next);
        }
        assert_eq!(rates(&picture, 7).len(), SAMPLES);
        assert_eq!(rates(&picture, 7).last(), Some(&Some(999.0)));
        let writes = &picture.past(7).unwrap().writes;
        assert_eq!((writes.len(), writes[0].0), (WRITES, 999));
    }

    #[test]
    fn writes_are_remembered_with_their_group_until_the_agent_restarts() {
        let mut first = at(5, 7, None);
        first.writes = vec![write("/app/a"), write("/app/other")];
        let mut picture = Picture::new(first);
        picture.take(at(6, 7, None));
        assert_eq!(picture.past(7).unwrap().writes.len(), 1);
        let mut restarted = at(1, 7, None);
        restarted.since_unix_s += 100;
        picture.take(restarted);
        assert!(picture.past(7).unwrap().writes.is_empty());
    }

    fn write(path: &str) -> PlannedWrite {
        PlannedWrite {
            path: path.into(),
            knob: Knob::MemoryHigh,
            now: None,
            value: "max".into(),
            because: Reason::NoContention.to_string(),
            reason: Reason::NoContention,
        }
    }
}
