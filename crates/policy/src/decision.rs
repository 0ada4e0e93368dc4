//! One group in one step: what was seen of it, what is remembered of it, what is decided for it.

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

/// What is remembered of one group. Records hold it under these names and those in `rename`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memo {
    pub counters: Counters,
    pub rates: Rates,
    #[serde(rename = "habits")]
    pub activity: Activity,
    pub demand: Option<Bytes>,
    pub non_file: Option<Bytes>,
    /// Seconds for which too little was known of it.
    pub blind_s: f64,
    pub controller: Controller,
    /// Page cache it may hold while it gives to others.
    pub cap: Option<Bytes>,
    pub was_capped: bool,
    /// Seconds for which it still counts as lacking memory.
    pub lacks_s: f64,
    pub working_set: WorkingSet,
    #[serde(rename = "pace")]
    pub backoff: Backoff,
    /// What it needs and was lent, while its curve says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lent: Option<Lent>,
}

impl Memo {
    /// Of a group that was not there before.
    pub(crate) fn new(group: &Group) -> Memo {
        Memo {
            counters: Counters::of(group),
            non_file: group.non_file(),
            ..Memo::default()
        }
    }
}

/// What a group whose curve is known was given ([`crate::share::lend`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lent {
    /// What it needs to hit as often as with its plain share.
    pub need: Bytes,
    /// That, and what it was lent.
    pub size: Bytes,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Decision {
    /// Share of all weight, down the hierarchy.
    pub proportion: f64,
    /// Page cache it should have the use of (equation 1 and lending), whoever is charged.
    pub entitlement: Bytes,
    pub shift: Shift,
    /// What the division by weight among all would give it, where its curve decides what it gets.
    pub plain: Option<Bytes>,
    /// What a limit leaves it in any case.
    pub least: Least,
    /// The limit it is to get, and why; `None`: no opinion.
    pub high: Option<(Limit, Reason)>,
    /// Memory other than page cache grew by this since the last step.
    pub grew: Bytes,
    /// Smoothed bandwidth over ideal.
    pub of_ideal: Option<f64>,
    pub gain: f64,
    /// It takes part in the feedback.
    pub participant: bool,
}

impl Decision {
    /// Page cache charged to it that should be kept.
    pub(crate) fn threshold(&self) -> Bytes {
        self.shift.threshold(self.entitlement)
    }

    /// What it is entitled to of the page cache that is charged to it.
    pub(crate) fn own(&self) -> Bytes {
        self.entitlement - self.shift.by_others
    }

    /// Why a group that contends is limited.
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

/// What sharing files means for one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shift {
    /// Page cache charged to it that belongs to others.
    pub for_others: Bytes,
    /// Page cache of its own that is charged to others.
    pub by_others: Bytes,
}

impl Shift {
    /// From what it holds (or may hold) to what it needs (or may need).
    pub(crate) fn need(self, held: Bytes) -> Bytes {
        held + self.by_others - self.for_others
    }

    /// From what it is entitled to to what is to be protected where it is charged.
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
    /// What it was given; `None`: an inner group that counts with the sum of what is below it.
    pub weight: Option<Weight>,
    pub memo: Memo,
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
                memo: memo(group),
                decision: Decision {
                    gain: 1.0,
                    ..Decision::default()
                },
            });
        }
        members
    }

    /// Has this group below it. Without a weight of its own it counts with the sum of what is below, unless
    /// that is a tenant's, who would enlarge the sum.
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

    /// The color that it declares, if that counts.
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

    /// The limit that leaves it this much page cache. `None` where it could not be read.
    pub(crate) fn limit_for(&self, file: Bytes) -> Option<Limit> {
        limits::limit(self.group, &self.decision.least, file, self.decision.grew)
    }

    /// The limit while too little is known of it.
    pub(crate) fn blind_limit(&self) -> Option<Limit> {
        limits::blind_limit(self.group, &self.decision.least, self.memo.blind_s)
    }

    /// Decides its limit. One that rises although nothing moves it, or no faster than other memory
    /// grew, makes room.
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

    /// An inner group may have been a leaf, and limited: it gets the operator's limit back.
    pub(crate) fn limit_as_before(&mut self) {
        if let Some(high) = self.group.knobs.operator.high {
            self.limit_at(high, Reason::AtEntitlement);
        }
    }

    /// What it needs, lends and borrows, where its curve says so.
    fn stake(&self) -> Option<Stake> {
        let (lent, plain) = (self.memo.lent?, self.decision.plain?);
        Some(Stake {
            needs: lent.need,
            lends: plain - self.decision.entitlement,
            borrows: self.decision.entitlement - plain,
        })
    }

    /// Notes by how much its memory other than page cache grew since the last step.
    pub(crate) fn note_growth(&mut self) {
        let other = self.group.non_file();
        let grown = other.zip(self.memo.non_file);
        self.decision.grew = grown.map_or(Bytes::ZERO, |(now, then)| now - then);
        self.memo.non_file = other.or(self.memo.non_file);
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
