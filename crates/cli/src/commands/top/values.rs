//! A row of the table, and its numbers.
//!
//! SHARE and IDEAL are a group's parts of the contending groups' bandwidth and weight, the same groups as for
//! PV and share error. A group that does not contend has neither.

use justitia_policy::color::Color;
use justitia_policy::plan::Knob;
use justitia_report::status::{source_words, GroupStatus, Report};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Path of the group, by which the selection follows it.
    pub(crate) path: String,
    /// Text of the first column; in the tree, the branch lines and the last component of the path.
    pub(crate) label: String,
    /// ID of a managed group; `None`: an unmanaged ancestor of managed groups.
    pub(crate) id: Option<u64>,
    pub(crate) values: Values,
}

/// The numbers of a row.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Values {
    pub(crate) weight: Option<u32>,
    /// Source of the weight.
    pub(crate) source: Option<&'static str>,
    /// Page cache it is entitled to, bytes.
    pub(crate) entitled: Option<u64>,
    /// Page cache it holds, bytes.
    pub(crate) file: Option<u64>,
    /// The page-cache threshold in force, bytes.
    pub(crate) threshold: Option<u64>,
    /// Application-level bandwidth, bytes per second.
    pub(crate) rate: Option<f64>,
    /// Part of the contenders' bandwidth.
    pub(crate) share: Option<f64>,
    /// Part of the contenders' weight.
    pub(crate) ideal: Option<f64>,
    /// Smoothed bandwidth over its weighted share.
    pub(crate) of_ideal: Option<f64>,
    /// Hit ratio.
    pub(crate) hits: Option<f64>,
    /// Refaults, pages per second.
    pub(crate) refaults: Option<f64>,
    /// Share of the period in which some task waited.
    pub(crate) stalled: Option<f64>,
    /// Seconds per second in direct reclaim.
    pub(crate) reclaim: Option<f64>,
    /// Seconds per second asleep above `memory.high`.
    pub(crate) throttled: Option<f64>,
    pub(crate) color: Option<Color>,
    /// The feedback's gain.
    pub(crate) gain: Option<f64>,
    /// `memory.low` as the kernel prints it.
    pub(crate) low: Option<String>,
    /// `memory.high` as the kernel prints it.
    pub(crate) high: Option<String>,
    /// Page cache charged to it that belongs to others, bytes.
    pub(crate) for_others: Option<u64>,
    /// Its own page cache that is charged to others, bytes.
    pub(crate) by_others: Option<u64>,
}

/// The sort key of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Key<'a> {
    /// In descending order; unknown numbers are last in both directions.
    Number(Option<f64>),
    /// In alphabetical order.
    Text(&'a str),
}

/// The numbers of all groups of a report, in the report's order.
pub(crate) fn values(report: &Report) -> Vec<Values> {
    let contends = |group: &&GroupStatus| group.verdict.as_ref().is_some_and(|v| v.contending);
    let contenders = || report.groups.iter().filter(contends);
    let verdicts = || contenders().filter_map(|group| group.verdict.as_ref());
    let weight: f64 = verdicts().map(|v| v.proportion).sum();
    // One unknown bandwidth makes all shares unknown.
    let moved: Option<f64> = verdicts().map(|v| v.bytes_per_s).sum();
    let of = |part: Option<f64>, whole: Option<f64>| Some(part? / whole.filter(|w| *w > 0.0)?);
    report
        .groups
        .iter()
        .map(|group| {
            let mut values = Values::of(group);
            if let Some(verdict) = group.verdict.as_ref().filter(|v| v.contending) {
                values.share = of(verdict.bytes_per_s, moved);
                values.ideal = of(Some(verdict.proportion), Some(weight));
            }
            values
        })
        .collect()
}

impl Values {
    fn of(group: &GroupStatus) -> Values {
        let verdict = group.verdict.as_ref();
        let cache = verdict.map(|v| v.cache);
        let knob = |knob| {
            let found = group.knobs.iter().find(|status| status.knob == knob);
            found.map(|status| status.now.clone())
        };
        Values {
            weight: Some(group.weight),
            source: Some(source_words(group.weight_source)),
            entitled: verdict.map(|v| v.entitlement_bytes),
            file: group.file_bytes,
            threshold: verdict.map(|v| v.threshold_bytes),
            rate: verdict.and_then(|v| v.bytes_per_s),
            share: None,
            ideal: None,
            of_ideal: verdict.and_then(|v| v.of_ideal),
            hits: cache.and_then(|c| c.hit_ratio),
            refaults: cache.and_then(|c| c.refault_pages_per_s),
            stalled: verdict.and_then(|v| v.stalled),
            reclaim: cache.and_then(|c| c.reclaim_s_per_s),
            throttled: cache.and_then(|c| c.throttled_s_per_s),
            color: verdict.map(|v| v.color),
            gain: verdict.map(|v| v.gain),
            low: knob(Knob::MemoryLow),
            high: knob(Knob::MemoryHigh),
            for_others: verdict.and_then(|v| v.held_for_others_bytes),
            by_others: verdict.and_then(|v| v.held_by_others_bytes),
        }
    }

    /// The sums over groups, for values that can be added. One unknown part makes a sum unknown.
    pub(crate) fn sum<'a>(parts: &(impl Iterator<Item = &'a Values> + Clone)) -> Values {
        fn total<'a, T: std::iter::Sum<T>>(
            parts: impl Iterator<Item = &'a Values>,
            part: impl Fn(&Values) -> Option<T>,
        ) -> Option<T> {
            parts.map(part).sum()
        }
        // Only contenders have shares.
        let contenders = || parts.clone().filter(|v| v.ideal.is_some());
        let contended = contenders().next().is_some();
        let shared =
            |part: fn(&Values) -> Option<f64>| total(contenders(), part).filter(|_| contended);
        Values {
            entitled: total(parts.clone(), |v| v.entitled),
            file: total(parts.clone(), |v| v.file),
            threshold: total(parts.clone(), |v| v.threshold),
            rate: total(parts.clone(), |v| v.rate),
            share: shared(|v| v.share),
            ideal: shared(|v| v.ideal),
            refaults: total(parts.clone(), |v| v.refaults),
            reclaim: total(parts.clone(), |v| v.reclaim),
            throttled: total(parts.clone(), |v| v.throttled),
            ..Values::default()
        }
    }
}
