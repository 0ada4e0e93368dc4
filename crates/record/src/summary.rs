//! The results of a replay. For each group: what it got, what it should have got, what the agent did about it
//! and what the replay would have done, and the effect of its page-cache entitlement by its curve.
//!
//! Bandwidth is what happened; a replay does not change it. Means are over time. Unknown is `None`: a group
//! whose bandwidth was never known has none.

use std::collections::BTreeMap;

use justitia_policy::metrics;
use justitia_policy::plan::{Plan, Verdict};
use justitia_policy::snapshot::{Group, GroupId, Snapshot};
use justitia_policy::units::{Bytes, Weight};
use justitia_policy::worth::Curve;
use serde::Serialize;

use crate::replay::{Difference, Step};

/// The results for one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupSummary {
    /// Path relative to the cgroup2 mount.
    pub path: String,
    /// The cgroup id.
    pub id: u64,
    /// Its last weight in the replay.
    pub weight: Option<u32>,
    /// Its last weight in the record.
    pub recorded_weight: Option<u32>,
    /// Its mean bandwidth, over the time in which it was known.
    pub bytes_per_s: Option<f64>,
    /// Its share of all groups' bytes, 0 to 1.
    pub share: Option<f64>,
    /// Its share of the weights, 0 to 1.
    pub ideal_share: Option<f64>,
    /// Mean threshold in the replay.
    pub threshold_bytes: Option<u64>,
    /// Mean threshold in the record.
    pub recorded_threshold_bytes: Option<u64>,
    /// Mean entitlement to page cache in the replay, including what the group has beyond its share.
    pub entitlement_bytes: Option<u64>,
    /// Mean entitlement in the record.
    pub recorded_entitlement_bytes: Option<u64>,
    /// Hit ratio of its reads with that much page cache, by its curve, 0 to 1; `None` if no curve covers it.
    pub hit_ratio: Option<f64>,
    /// The same with the entitlement in the record.
    pub recorded_hit_ratio: Option<f64>,
    /// Bytes per second that its reads would fetch from disks, by its curve.
    pub fetched_bytes_per_s: Option<f64>,
    /// The same with the entitlement in the record.
    pub recorded_fetched_bytes_per_s: Option<f64>,
    /// Mean gain in the replay.
    pub gain: Option<f64>,
    /// Mean gain in the record.
    pub recorded_gain: Option<f64>,
    /// Knob writes in the replay.
    pub writes: u64,
    /// Knob writes in the record.
    pub recorded_writes: u64,
}

/// The results for the whole range.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Ticks in the range.
    pub ticks: u64,
    /// Seconds that the ticks cover, without gaps.
    pub seconds: f64,
    /// Ticks within the range that were not recorded.
    pub missed: u64,
    /// Ticks whose plan is the recorded one.
    pub same: u64,
    /// Time of the first tick whose plan differs, seconds.
    pub first_difference_s: Option<f64>,
    /// Ticks at which the policy began anew, because what it remembered is not known.
    pub began_anew: u64,
    /// A decision differed from the recorded one, so from there on the replay is open loop.
    pub open_loop: bool,
    /// Proportionality variation of what happened, among the groups that contended.
    pub pv: Option<f64>,
    /// Share error of what happened, among the groups that contended.
    pub share_error: Option<f64>,
    /// Knob writes in the replay.
    pub writes: u64,
    /// Knob writes in the record.
    pub recorded_writes: u64,
    /// Knobs that were written differently, counted once a tick.
    pub differences: u64,
    /// The groups, by path.
    pub groups: Vec<GroupSummary>,
    /// The first differences, in order of time.
    pub first_differences: Vec<Difference>,
    #[serde(skip)]
    keep: usize,
    /// By ID and path: after a reboot, another group may have the ID.
    #[serde(skip)]
    sums: BTreeMap<(GroupId, String), Sums>,
}

/// A mean over time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Mean {
    sum: f64,
    seconds: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, seconds: f64) {
        if let Some(value) = value {
            self.sum += value * seconds;
            self.seconds += seconds;
        }
    }

    fn value(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }

    fn bytes(self) -> Option<u64> {
        self.value().map(|mean| Bytes::from_f64(mean).0)
    }
}

/// Sums of one group. Pairs: in the replay and in the record.
#[derive(Debug, Clone, Default, PartialEq)]
struct Sums {
    weight: [Option<u32>; 2],
    bandwidth: Mean,
    ideal: Mean,
    threshold: [Mean; 2],
    entitlement: [Mean; 2],
    hits: [Mean; 2],
    fetched: [Mean; 2],
    gain: [Mean; 2],
    writes: [u64; 2],
    contended: bool,
}

const REPLAYED: usize = 0;
const RECORDED: usize = 1;

impl Summary {
    /// An empty summary; keeps the first `keep` differences.
    pub fn new(keep: usize) -> Summary {
        Summary {
            keep,
            ..Summary::default()
        }
    }

    pub fn add(&mut self, step: &Step) {
        self.ticks += 1;
        self.seconds += step.tick.elapsed().as_secs_f64();
        self.missed += step.tick.missed;
        self.began_anew += u64::from(step.began_anew);
        self.open_loop |= step.given.is_some();
        if step.same() {
            self.same += 1;
        } else {
            self.first_difference_s.get_or_insert(step.at_s);
        }
        self.add_plan(REPLAYED, &step.plan, step.snapshot(), step);
        self.add_plan(RECORDED, &step.tick.plan, &step.tick.snapshot, step);
        let differences = step.differences();
        self.differences += differences.len() as u64;
        let room = self.keep.saturating_sub(self.first_differences.len());
        self.first_differences
            .extend(differences.into_iter().take(room));
    }

    /// Adds one side of a step.
    fn add_plan(&mut self, side: usize, plan: &Plan, snapshot: &Snapshot, step: &Step) {
        // After missed ticks, a replay with other decisions is told the whole gap. The recorded rates are of the
        // last interval only.
        let seconds = step.tick.elapsed().as_secs_f64();
        let groups = snapshot.groups.iter();
        let groups: BTreeMap<GroupId, &Group> = groups.map(|group| (group.id, group)).collect();
        for verdict in &plan.verdicts {
            let Some(group) = groups.get(&verdict.group) else {
                continue;
            };
            let sums = self.sums.entry((group.id, group.path.clone())).or_default();
            sums.weight[side] = group.weight.map(Weight::get);
            sums.add(side, verdict, seconds);
            let more = step.more.get(&group.id).filter(|_| side == REPLAYED);
            let cache = verdict.entitlement + more.copied().unwrap_or_default();
            sums.value(side, cache, group.worth.as_ref(), seconds);
        }
        for write in &plan.writes {
            // Writes to ancestors and disks count only for the whole range.
            let path = groups.get(&write.group).map(|group| group.path.clone());
            let sums = path.and_then(|path| self.sums.get_mut(&(write.group, path)));
            if let Some(sums) = sums {
                sums.writes[side] += 1;
            }
        }
        let writes = plan.writes.len() as u64;
        if side == REPLAYED {
            self.writes += writes;
        } else {
            self.recorded_writes += writes;
        }
    }

    /// Computes the results, after the last step.
    #[must_use]
    pub fn finish(mut self) -> Summary {
        let total: f64 = self.sums.values().map(|sums| sums.bandwidth.sum).sum();
        let groups = self.sums.iter();
        self.groups = groups.map(|(key, sums)| sums.summary(key, total)).collect();
        self.groups
            .sort_by(|a, b| (&a.path, a.id).cmp(&(&b.path, b.id)));
        let contenders = self.sums.values().filter(|sums| sums.contended);
        let (weights, rates): (Vec<u32>, Vec<f64>) = contenders
            .filter_map(|sums| Some((sums.weight[RECORDED]?, sums.bandwidth.value()?)))
            .unzip();
        if weights.len() > 1 {
            self.pv = metrics::proportionality_variation(&weights, &rates);
            self.share_error = metrics::share_error(&weights, &rates);
        }
        self
    }
}

impl Sums {
    fn add(&mut self, side: usize, verdict: &Verdict, seconds: f64) {
        self.threshold[side].add(Some(verdict.threshold.as_f64()), seconds);
        self.gain[side].add(Some(verdict.gain), seconds);
        if side == RECORDED {
            self.bandwidth.add(verdict.bytes_per_s, seconds);
            self.contended |= verdict.contending;
        } else {
            self.ideal.add(Some(verdict.proportion), seconds);
        }
    }

    /// Adds the entitlement to this much page cache, and its effect by the curve.
    fn value(&mut self, side: usize, cache: Bytes, curve: Option<&Curve>, seconds: f64) {
        self.entitlement[side].add(Some(cache.as_f64()), seconds);
        let Some(curve) = curve.filter(|curve| curve.tells(cache)) else {
            return;
        };
        self.hits[side].add(Some(curve.at_least(cache)), seconds);
        let fetched = curve.asked_per_s() - curve.hit_per_s(cache);
        self.fetched[side].add(Some(fetched), seconds);
    }

    fn summary(&self, (id, path): &(GroupId, String), total: f64) -> GroupSummary {
        let bytes_per_s = self.bandwidth.value();
        let known = bytes_per_s.filter(|_| total > 0.0);
        GroupSummary {
            path: path.clone(),
            id: id.0,
            weight: self.weight[REPLAYED],
            recorded_weight: self.weight[RECORDED],
            bytes_per_s,
            share: known.map(|_| self.bandwidth.sum / total),
            ideal_share: self.ideal.value(),
            threshold_bytes: self.threshold[REPLAYED].bytes(),
            recorded_threshold_bytes: self.threshold[RECORDED].bytes(),
            entitlement_bytes: self.entitlement[REPLAYED].bytes(),
            recorded_entitlement_bytes: self.entitlement[RECORDED].bytes(),
            hit_ratio: self.hits[REPLAYED].value(),
            recorded_hit_ratio: self.hits[RECORDED].value(),
            fetched_bytes_per_s: self.fetched[REPLAYED].value(),
            recorded_fetched_bytes_per_s: self.fetched[RECORDED].value(),
            gain: self.gain[REPLAYED].value(),
            recorded_gain: self.gain[RECORDED].value(),
            writes: self.writes[REPLAYED],
            recorded_writes: self.writes[RECORDED],
        }
    }
}
