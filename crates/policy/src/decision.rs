//! One group in one step: its snapshot, the state kept for it, and the decision.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::color::{Color, ColorSource};
use crate::feedback::activity::Activity;
use crate::feedback::backoff::Backoff;
use crate::feedback::controller::Controller;
use crate::feedback::limits::{self, Least};
use crate::feedback::working_set::WorkingSet;
use crate::plan::{Reason, Stake, Verdict};
use crate::rates::{Counters, Rates};
use crate::snapshot::{Group, GroupId, Snapshot, WeightSource};
use crate::units::{Bytes, Limit, Weight};

/// State kept for one group. Records hold it under these names and those in `rename`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memo {
    pub counters: Counters,
    pub rates: Rates,
    #[serde(rename = "habits")]
    pub activity: Activity,
    pub demand: Option<Bytes>,
    /// Memory other than page cache, and page cache, as they were last read.
    pub non_file: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Bytes>,
    /// Seconds for which its bandwidth or its contention has been unknown, or the bandwidth of some contender.
    pub blind_s: f64,
    pub controller: Controller,
    /// Its weight, with which the controller learned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// Page cache that it may hold while it gives memory to others.
    pub cap: Option<Bytes>,
    pub was_capped: bool,
    /// Seconds for which it still counts as lacking memory.
    pub lacks_s: f64,
    /// The least memory other than page cache that it held since it stood above its share; `None`: it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_other: Option<Bytes>,
    /// Its limit is a bound.
    pub bounded: bool,
    pub working_set: WorkingSet,
    #[serde(rename = "pace")]
    pub backoff: Backoff,
    /// Its need and its size with loans; `None` unless it takes part in lending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lent: Option<Lent>,
    /// Seconds for which it has kept a loan without a curve.
    pub no_curve_s: f64,
}

impl Memo {
    /// The state of a group that is new.
    pub(crate) fn new(group: &Group) -> Memo {
        Memo {
            counters: Counters::of(group),
            non_file: group.non_file(),
            file: group.memory.file,
            weight: group.weight,
            ..Memo::default()
        }
    }
}

/// The result of lending for a group with a curve ([`crate::share::lend`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lent {
    /// Page cache with which its reads hit as often as with its plain share.
    pub need: Bytes,
    /// The need plus the loan.
    pub size: Bytes,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Decision {
    /// Share of the total weight down the hierarchy, 0 to 1.
    pub proportion: f64,
    /// Page cache that it is entitled to use (equation 1 and lending), whichever group is charged.
    pub entitlement: Bytes,
    pub shift: Shift,
    /// Its share by weight without demands; `None` unless it takes part in lending.
    pub plain: Option<Bytes>,
    /// It syncs what it writes, and has no use for more page cache than it demands.
    pub syncs: bool,
    /// The most page cache that the operator's limits on it and on its ancestors allow; `None`: no such limit.
    pub ceiling: Option<Bytes>,
    /// The floor of its limit.
    pub least: Least,
    /// The limit to set and the reason; `None`: no decision.
    pub high: Option<(Limit, Reason)>,
    /// Growth of memory other than page cache since the last step.
    pub grew: Bytes,
    /// Smoothed bandwidth over ideal bandwidth.
    pub of_ideal: Option<f64>,
    pub gain: f64,
    pub participant: bool,
}

impl Decision {
    /// True if the group has no use for more page cache than it is granted, and others may.
    pub(crate) fn has_enough(&self) -> bool {
        self.plain.is_some() || self.syncs
    }

    /// Page cache charged to it that is to be protected.
    pub(crate) fn threshold(&self) -> Bytes {
        self.shift.threshold(self.entitlement)
    }

    /// The part of its entitlement that is charged to it.
    pub(crate) fn own(&self) -> Bytes {
        self.entitlement - self.shift.by_others
    }

    /// Reason why a group that contends is limited.
    pub(crate) fn reason(&self) -> Reason {
        if !self.participant {
            return Reason::AtEntitlement;
        }
        Reason::AboveShare {
            of_ideal: self.of_ideal.unwrap_or(1.0),
            gain: self.gain,
        }
    }
}

/// Page cache by which shared files move protection to and from one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shift {
    /// Page cache charged to it that belongs to others.
    pub for_others: Bytes,
    /// Page cache of its own that is charged to others.
    pub by_others: Bytes,
}

impl Shift {
    /// Converts page cache that it holds (or may hold) to page cache that it needs (or may need).
    pub(crate) fn need(self, held: Bytes) -> Bytes {
        held + self.by_others - self.for_others
    }

    /// Converts its entitlement to the amount to protect of the page cache charged to it.
    pub(crate) fn threshold(self, entitled: Bytes) -> Bytes {
        entitled - self.by_others + self.for_others
    }
}

/// A group of the snapshot. Ancestors are members too: one may have been a leaf, or become one.
#[derive(Debug, Clone)]
pub(crate) struct Member<'a> {
    pub group: &'a Group,
    /// Index of its parent; `None`: at the top, or the parent is missing or comes later.
    pub parent: Option<usize>,
    /// It is managed, and no other member is below it.
    pub leaf: bool,
    /// Its own weight; `None`: an inner group that counts with the sum of its children's weights.
    pub weight: Option<Weight>,
    /// Boxed because it is large, and moves on to the next state.
    pub memo: Box<Memo>,
    pub decision: Decision,
}

impl<'a> Member<'a> {
    pub(crate) fn all(snapshot: &'a Snapshot, memo: impl Fn(&Group) -> Memo) -> Vec<Member<'a>> {
        let mut index: BTreeMap<GroupId, usize> = BTreeMap::new();
        let mut members: Vec<Member> = Vec::with_capacity(snapshot.groups.len());
        for (i, group) in snapshot.groups.iter().enumerate() {
            let parent = group.parent.and_then(|id| index.get(&id).copied());
            if let Some(p) = parent {
                members[p].adopt(group);
            }
            index.insert(group.id, i);
            members.push(Member {
                group,
                parent,
                leaf: group.weight.is_some(),
                weight: group.weight,
                memo: Box::new(memo(group)),
                decision: Decision {
                    gain: 1.0,
                    ..Decision::default()
                },
            });
        }
        members
    }

    /// Notes a child. A group without a weight of its own counts with the sum of its children's weights,
    /// unless the child is a tenant's: the tenant could enlarge the sum.
    fn adopt(&mut self, child: &Group) {
        self.leaf = false;
        let tenants = child.delegated && !self.group.delegated;
        if self.group.weight_source == WeightSource::Default && !tenants {
            self.weight = self.weight.filter(|&weight| weight != Weight::DEFAULT);
        }
    }

    pub(crate) fn contends(&self) -> bool {
        self.memo.activity.contending() == Some(true)
    }

    /// Its declared color, if that is fresh.
    pub(crate) fn declared(&self) -> Option<Color> {
        self.group.declared.as_ref()?.fresh()
    }

    pub(crate) fn color(&self) -> (Color, ColorSource) {
        let infer = || Color::infer(self.memo.activity.contending(), self.decision.of_ideal);
        match self.declared() {
            Some(color) => (color, ColorSource::Declared),
            None => (infer(), ColorSource::Inferred),
        }
    }

    /// The limit that leaves it this much page cache. `None` if the group could not be read.
    pub(crate) fn limit_for(&self, file: Bytes) -> Option<Limit> {
        limits::limit(self.group, &self.decision.least, file, self.decision.grew)
    }

    /// The limit while too little is known to decide.
    pub(crate) fn blind_limit(&self) -> Option<Limit> {
        limits::blind_limit(self.group, &self.decision.least, self.memo.blind_s)
    }

    /// Sets its limit. The reason becomes [`Reason::MakeRoom`] if the limit rises although neither feedback
    /// nor rebalancing moves it, or rises by less than four times the growth of other memory.
    pub(crate) fn limit_at(&mut self, to: Limit, reason: Reason) {
        let decision = &mut self.decision;
        let before = decision.high.map(|(_, reason)| reason);
        let moved =
            decision.participant || [Some(reason), before].contains(&Some(Reason::Rebalance));
        let reason = match (to, self.group.knobs.high) {
            (Limit::Bytes(to), Some(Limit::Bytes(now)))
                if to > now && (!moved || decision.grew.scale(4.0) > to - now) =>
            {
                Reason::MakeRoom
            }
            (Limit::Max, _) if reason != Reason::Rebalance => Reason::NoContention,
            _ => reason,
        };
        decision.high = Some((to, reason));
    }

    /// Restores the operator's limit. A leaf that cannot be read keeps its limit until it can be.
    pub(crate) fn limit_as_before(&mut self) {
        let unread = self.leaf && self.group.non_file().is_none();
        if let Some(high) = self.group.knobs.operator.high.filter(|_| !unread) {
            self.decision.high = Some((high, Reason::NoContention));
        }
    }

    fn stake(&self) -> Option<Stake> {
        let (lent, plain) = (self.memo.lent?, self.decision.plain?);
        Some(Stake {
            needs: lent.need,
            lends: plain - self.decision.entitlement,
            borrows: self.decision.entitlement - plain,
        })
    }

    /// Its memory other than page cache, as it was last read.
    pub(crate) fn non_file(&self) -> Option<Bytes> {
        self.group.non_file().or(self.memo.non_file)
    }

    /// Its page cache, as it was last read.
    pub(crate) fn file(&self) -> Option<Bytes> {
        self.group.memory.file.or(self.memo.file)
    }

    /// Notes what it holds, and by how much its memory other than page cache grew since the last step.
    pub(crate) fn note_growth(&mut self) {
        let grown = self.group.non_file().zip(self.memo.non_file);
        self.decision.grew = grown.map_or(Bytes::ZERO, |(now, then)| now - then);
        (self.memo.non_file, self.memo.file) = (self.non_file(), self.file());
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let (memo, decision) = (&self.memo, &self.decision);
        let (color, color_source) = self.color();
        Verdict {
            group: self.group.id,
            proportion: decision.proportion,
            entitlement: decision.entitlement,
            threshold: decision.threshold(),
            bytes_per_s: memo.rates.bytes_per_s(),
            transferable_bytes_per_s: memo.rates.transferable_per_s(),
            of_ideal: decision.of_ideal,
            contending: self.contends(),
            color,
            color_source,
            gain: decision.gain,
            stalled: memo.rates.stalled,
            cache: memo.rates.cache,
            held_for_others: decision.shift.for_others,
            held_by_others: decision.shift.by_others,
            cap: memo.cap,
            working_set: memo.working_set.estimate(),
            stake: self.stake(),
        }
    }
}
