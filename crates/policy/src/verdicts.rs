//! What a step thought: a verdict for each managed group, and how well bandwidth followed weights.

use crate::color::caps;
use crate::metrics;
use crate::plan::Verdict;
use crate::share::entitlement::Tree;
use crate::snapshot::Group;
use crate::step::{Decided, Memo};

/// What the policy makes of one group.
pub(crate) fn verdict(group: &Group, memo: &Memo, decided: &Decided, proportion: f64) -> Verdict {
    let contending = memo.habits.contending();
    let (color, color_source) = caps::color(group, memo, decided.of_ideal);
    Verdict {
        group: group.id,
        proportion,
        entitlement: decided.entitlement,
        threshold: decided.threshold,
        bytes_per_s: memo.rates.bytes_per_s(),
        transferable_bytes_per_s: memo.rates.transferable_per_s(),
        of_ideal: decided.of_ideal,
        contending: contending == Some(true),
        color,
        color_source,
        gain: decided.gain,
        stalled: memo.rates.stalled,
        cache: memo.rates.cache,
        held_for_others: decided.shift.for_others,
        held_by_others: decided.shift.by_others,
        cap: memo.cap,
        working_set: memo.working_set.estimate(),
    }
}

/// Proportionality variation and share error of those who contend.
pub(crate) fn judge(groups: &[Group], memos: &[Memo], tree: &Tree) -> (Option<f64>, Option<f64>) {
    let (weights, rates): (Vec<u32>, Vec<f64>) = (0..groups.len())
        .filter(|&i| tree.leaf[i] && memos[i].habits.contending() == Some(true))
        .filter_map(|i| Some((groups[i].weight?.get(), memos[i].rates.bytes_per_s()?)))
        .unzip();
    if weights.len() < 2 {
        return (None, None);
    }
    (
        metrics::proportionality_variation(&weights, &rates),
        metrics::share_error(&weights, &rates),
    )
}
