//! The last ten minutes for the page's figures: the values of each group, and the decisions.
//!
//! The web thread samples each step even if no page is open, so a page opened after an incident shows it. A
//! sample takes about 0.1 ms at 1,000 groups.
//!
//! Memory is bounded whatever the number of groups, to about 1 MB: at most [`POINTS`] points, at most one a
//! second, each with the [`GROUPS`] groups of most bandwidth (then of most page cache) and the sum of all
//! others. A group with a place keeps it until another group has twice as much, so that groups of equal size
//! do not alternate. The last [`DECISIONS`] different decisions are kept. Another write to the same knob for
//! the same kind of reason counts as a repetition of a decision.
//!
//! Internally an unknown value is NaN (JSON: `null`). It is left out of sums.

mod answer;

use std::collections::{HashMap, VecDeque};
use std::mem::{discriminant, size_of};
use std::sync::Arc;
use std::time::{Duration, Instant};

use justitia_policy::plan::{Knob, Reason};
use justitia_report::status::{GroupStatus, Report, VerdictStatus};
use serde::Serialize;

/// Maximum number of points.
pub(super) const POINTS: usize = 600;
/// Groups with their own place in each point.
pub(super) const GROUPS: usize = 32;
/// Maximum number of different decisions.
pub(super) const DECISIONS: usize = 200;
/// Age at which a point is dropped.
const AGE: Duration = Duration::from_secs(600);
/// Minimum distance of two points: a second, less a margin for jitter.
const SPACING: Duration = Duration::from_millis(900);
/// Writes of one step that are considered: in a step that writes to thousands of groups the later writes add
/// little.
const WRITES_PER_STEP: usize = 100;

const _: () = assert!(size_of::<Sample>() * (GROUPS + 1) * POINTS < 1_200_000);

/// The values of one group in one tick.
#[derive(Debug, Clone)]
struct Sample {
    id: u64,
    path: Arc<str>,
    proportion: f32,
    bytes_per_s: f32,
    file_bytes: f32,
    threshold_bytes: f32,
    hit_ratio: f32,
    of_ideal: f32,
    contending: bool,
}

/// Sums over the groups without their own place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct Rest {
    groups: usize,
    proportion: f32,
    bytes_per_s: f32,
    file_bytes: f32,
    threshold_bytes: f32,
    /// Sum over the contending groups.
    contending_proportion: f32,
    contending_bytes_per_s: f32,
}

#[derive(Debug)]
struct Point {
    tick: u64,
    at: Instant,
    pv: f32,
    share_error: f32,
    free_bytes: f32,
    groups: Box<[Sample]>,
    rest: Rest,
}

/// Writes to one knob for one kind of reason.
#[derive(Debug)]
struct Decision {
    /// The cgroup ID; `None`: not a group, and `path` identifies it.
    id: Option<u64>,
    path: Arc<str>,
    knob: Knob,
    prior: Option<String>,
    value: String,
    reason: Reason,
    times: u64,
    first: Instant,
    last: Instant,
    tick: u64,
}

#[derive(Debug, Default)]
pub(super) struct History {
    points: VecDeque<Point>,
    /// The newest last.
    decisions: VecDeque<Decision>,
}

impl History {
    /// Adds a step that arrived at this time.
    pub(super) fn push(&mut self, report: &Report, at: Instant) {
        self.decide(report, at);
        let early = |last: &Point| at.duration_since(last.at) < SPACING;
        if self.points.back().is_some_and(early) {
            return;
        }
        let old = |first: &Point| at.duration_since(first.at) > AGE;
        while self.points.len() >= POINTS || self.points.front().is_some_and(old) {
            self.points.pop_front();
        }
        let point = self.point(report, at);
        self.points.push_back(point);
    }

    fn point(&self, report: &Report, at: Instant) -> Point {
        let last = self.points.back().into_iter().flat_map(|last| &last.groups);
        let placed: HashMap<u64, &Arc<str>> = last.map(|had| (had.id, &had.path)).collect();
        // Only groups without groups below them have a verdict. The page cache of the others, such as pods,
        // is that of the groups below: with both, the figures would count it twice.
        let ranked = report.groups.iter().filter_map(|group| {
            let factor = f64::from(1 + u8::from(placed.contains_key(&group.id)));
            let bytes_per_s = group.verdict.as_ref()?.bytes_per_s.unwrap_or(0.0);
            let file_bytes = float(group.file_bytes).unwrap_or(0.0);
            Some((bytes_per_s * factor, file_bytes * factor, group))
        });
        let mut ranked: Vec<Ranked> = ranked.collect();
        if ranked.len() > GROUPS {
            ranked.select_nth_unstable_by(GROUPS, |a, b| {
                b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
            });
        }
        let (own, others) = ranked.split_at(ranked.len().min(GROUPS));
        let samples = own.iter().map(|(.., group)| {
            let path = placed.get(&group.id).copied();
            let path = path.filter(|path| ***path == *group.path);
            let path = path.map_or_else(|| group.path.as_str().into(), Arc::clone);
            sample(group, path)
        });
        let mut groups: Box<[Sample]> = samples.collect();
        groups.sort_unstable_by_key(|sample| sample.id);
        Point {
            tick: report.ticks_total,
            at,
            pv: known(report.pv),
            share_error: known(report.share_error),
            free_bytes: known(float(report.host.free_bytes)),
            groups,
            rest: rest(others),
        }
    }

    fn decide(&mut self, report: &Report, at: Instant) {
        for write in report.writes.iter().take(WRITES_PER_STEP) {
            let group = report.groups.iter().find(|group| group.path == write.path);
            let id = group.map(|group| group.id);
            let same = self.decisions.iter().position(|old| {
                old.id == id
                    && (id.is_some() || *old.path == *write.path)
                    && old.knob == write.knob
                    && discriminant(&old.reason) == discriminant(&write.reason)
            });
            let old = same.and_then(|at| self.decisions.remove(at));
            let path = old.as_ref().map(|old| Arc::clone(&old.path));
            if self.decisions.len() >= DECISIONS {
                self.decisions.pop_front();
            }
            self.decisions.push_back(Decision {
                id,
                path: path.unwrap_or_else(|| write.path.as_str().into()),
                knob: write.knob,
                prior: write.now.clone(),
                value: write.value.clone(),
                reason: write.reason,
                times: old.as_ref().map_or(0, |old| old.times) + 1,
                first: old.as_ref().map_or(at, |old| old.first),
                last: at,
                tick: report.ticks_total,
            });
        }
    }
}

/// The ranking of a group for a place: bandwidth, then page cache, both doubled if it has a place already.
type Ranked<'a> = (f64, f64, &'a GroupStatus);

fn sample(group: &GroupStatus, path: Arc<str>) -> Sample {
    let verdict = group.verdict.as_ref();
    let of = |get: fn(&VerdictStatus) -> Option<f64>| known(verdict.and_then(get));
    Sample {
        id: group.id,
        path,
        proportion: of(|v| Some(v.proportion)),
        bytes_per_s: of(|v| v.bytes_per_s),
        file_bytes: known(float(group.file_bytes)),
        threshold_bytes: of(|v| Some(v.threshold_bytes as f64)),
        hit_ratio: of(|v| v.cache.hit_ratio),
        of_ideal: of(|v| v.of_ideal),
        contending: verdict.is_some_and(|verdict| verdict.contending),
    }
}

fn float(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn rest(others: &[Ranked]) -> Rest {
    let mut rest = Rest::default();
    let nameless: Arc<str> = "".into();
    for (.., group) in others {
        let add = |sum: &mut f32, value: f32| {
            if !value.is_nan() {
                *sum += value;
            }
        };
        let sample = sample(group, Arc::clone(&nameless));
        rest.groups += 1;
        add(&mut rest.proportion, sample.proportion);
        add(&mut rest.bytes_per_s, sample.bytes_per_s);
        add(&mut rest.file_bytes, sample.file_bytes);
        add(&mut rest.threshold_bytes, sample.threshold_bytes);
        if sample.contending {
            add(&mut rest.contending_proportion, sample.proportion);
            add(&mut rest.contending_bytes_per_s, sample.bytes_per_s);
        }
    }
    rest
}

fn known(value: Option<f64>) -> f32 {
    value.map_or(f32::NAN, |value| value as f32)
}

#[cfg(test)]
mod tests;
