//! What the gate of the kernel module is fed: a weight for each leaf, times its gain.
//!
//! The gate (`docs/gate.md`) knows cgroups and numbers, no tree: a leaf's number is its share of all
//! weight down the hierarchy, so that the children of an inner group divide what that group's weight
//! earned it. It is scaled to the weights of the topmost groups, so that without inner groups it is
//! the group's own weight; and so that the largest fits the module. Only ratios count for the order
//! `stride`; `aging` compares differences, for which the owner's numbers matter.
//!
//! Properties: a change of a gain that would not show is not fed; what is fed and no longer managed
//! is taken out; without a gate nothing is fed.
//!
//! While the gate is closed it orders writers at once and by pages. `memory.high` at the share, which
//! does the same in seconds and by limits, is left alone for them ([`orders`]): both would
//! correct the same error, and a limit below what a writer has dirty makes it wait a second time.
//!
//! Left out: an inner group's part that its idle children leave goes to everybody, not to their
//! siblings; the gain moves it back.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::plan::Feed;
use crate::share::entitlement::Tree;
use crate::snapshot::{GateSeen, Group, GroupId};
use crate::step::Decided;

/// The heaviest a group can be (`kmod/abi.h`).
const HEAVIEST: f64 = 10_000.0;
/// Changes smaller than this part of a weight are not fed.
const WORTH: f64 = 0.02;

/// Whether writers wait in the gate's order now.
pub(crate) fn orders(gate: Option<&GateSeen>) -> bool {
    gate.is_some_and(|gate| gate.closed)
}

/// What to tell the gate, that it does not know already; nothing in a mode that knows no weights.
pub(crate) fn feeds(
    gate: Option<&GateSeen>,
    config: &Config,
    groups: &[Group],
    tree: &Tree,
    proportions: &[f64],
    decided: &[Decided],
) -> Vec<Feed> {
    let (Some(gate), true) = (gate, config.mode.knows_weights()) else {
        return Vec::new();
    };
    let all = topmost_weight(groups, tree);
    let leaves: Vec<usize> = (0..groups.len()).filter(|&i| tree.leaf[i]).collect();
    let wanted = |i: usize| proportions[i] * all * decided[i].gain;
    let most = leaves.iter().map(|&i| wanted(i)).fold(0.0, f64::max);
    let scale = HEAVIEST / most.max(HEAVIEST);
    let fed: BTreeMap<GroupId, u32> = gate.fed.iter().copied().collect();
    let mut feeds = Vec::new();
    for &id in fed.keys() {
        if !leaves.iter().any(|&i| groups[i].id == id) {
            feeds.push(Feed {
                group: id,
                weight: None,
                gain: 1.0,
            });
        }
    }
    for i in leaves {
        let target = (wanted(i) * scale).round().clamp(1.0, HEAVIEST);
        let near = |now: f64| {
            let exact = (decided[i].gain - 1.0).abs() < f64::EPSILON;
            (now - target).abs() < if exact { 0.5 } else { WORTH * target }
        };
        if fed
            .get(&groups[i].id)
            .is_some_and(|&now| near(f64::from(now)))
        {
            continue;
        }
        feeds.push(Feed {
            group: groups[i].id,
            weight: Some(target as u32),
            gain: decided[i].gain,
        });
    }
    feeds
}

/// The weights of the topmost groups that have one.
fn topmost_weight(groups: &[Group], tree: &Tree) -> f64 {
    let mut below_one = vec![false; groups.len()];
    let mut sum = 0.0;
    for (i, group) in groups.iter().enumerate() {
        let parent = tree.parent[i];
        below_one[i] = parent.is_some_and(|p| below_one[p] || groups[p].weight.is_some());
        if let (Some(weight), false) = (group.weight, below_one[i]) {
            sum += weight.as_f64();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::water::proportions;
    use crate::snapshot::Snapshot;
    use crate::testing::group;
    use crate::units::Weight;
    use proptest::prelude::*;

    fn seen(fed: &[(u64, u32)]) -> GateSeen {
        GateSeen {
            closed: true,
            fed: fed
                .iter()
                .map(|&(id, weight)| (GroupId(id), weight))
                .collect(),
        }
    }

    /// Groups `(id, parent, weight)` with these gains.
    fn fed(
        gate: &GateSeen,
        tree: &[(u64, Option<u64>, u32)],
        gains: &[f64],
    ) -> Vec<(u64, Option<u32>)> {
        let groups: Vec<Group> = tree
            .iter()
            .map(|&(id, parent, weight)| {
                let mut group = group(id, parent, &format!("/{id}"));
                group.weight = (weight > 0).then(|| Weight::new(weight).unwrap());
                group
            })
            .collect();
        let snapshot = Snapshot {
            groups,
            ..Snapshot::default()
        };
        let tree = Tree::of(&snapshot);
        let groups = &snapshot.groups;
        let shares = proportions(&tree.nodes(groups, |_| true, |_| None));
        let decided: Vec<Decided> = (0..groups.len())
            .map(|i| Decided {
                gain: gains.get(i).copied().unwrap_or(1.0),
                ..Decided::default()
            })
            .collect();
        let feeds = feeds(
            Some(gate),
            &Config::default(),
            groups,
            &tree,
            &shares,
            &decided,
        );
        feeds
            .iter()
            .map(|feed| (feed.group.0, feed.weight))
            .collect()
    }

    #[test]
    fn a_flat_host_is_fed_the_owners_weights_once() {
        let tree = [(1, None, 0), (2, Some(1), 100), (3, Some(1), 800)];
        let first = fed(&seen(&[]), &tree, &[]);
        assert_eq!(first, [(2, Some(100)), (3, Some(800))]);
        assert!(fed(&seen(&[(2, 100), (3, 800)]), &tree, &[]).is_empty());
    }

    #[test]
    fn gains_multiply_and_what_would_not_show_is_not_fed() {
        let tree = [(2, None, 100), (3, None, 800)];
        let gate = seen(&[(2, 100), (3, 800)]);
        assert_eq!(fed(&gate, &tree, &[1.5, 1.01]), [(2, Some(150))]);
        // Back at one exactly, so that the weights are the owner's again.
        let gate = seen(&[(2, 100), (3, 808)]);
        assert_eq!(fed(&gate, &tree, &[]), [(3, Some(800))]);
    }

    #[test]
    fn who_is_gone_is_taken_out() {
        let gate = seen(&[(2, 100), (7, 50)]);
        assert_eq!(fed(&gate, &[(2, None, 100)], &[]), [(7, None)]);
    }

    #[test]
    fn children_divide_what_their_parent_earned() {
        let tree = [
            (1, None, 800),
            (2, Some(1), 100),
            (3, Some(1), 300),
            (4, None, 100),
        ];
        let weights = fed(&seen(&[]), &tree, &[]);
        assert_eq!(weights, [(2, Some(200)), (3, Some(600)), (4, Some(100))]);
    }

    #[test]
    fn without_a_gate_nothing_is_fed() {
        let config = Config::default();
        assert!(feeds(
            None,
            &config,
            &[],
            &Tree::of(&Snapshot::default()),
            &[],
            &[]
        )
        .is_empty());
    }

    proptest! {
        #[test]
        fn weights_fit_the_module_and_keep_their_ratio(
            weights in prop::collection::vec((1u32..=10_000, 0.125f64..8.0), 1..12),
        ) {
            let tree: Vec<_> = (2..).zip(&weights).map(|(id, &(weight, _))| (id, None, weight)).collect();
            let gains: Vec<f64> = weights.iter().map(|&(_, gain)| gain).collect();
            let told = fed(&seen(&[]), &tree, &gains);
            prop_assert_eq!(told.len(), weights.len());
            let wanted: Vec<f64> = weights.iter().map(|&(w, g)| f64::from(w) * g).collect();
            let most = wanted.iter().copied().fold(0.0, f64::max);
            let scale = (10_000.0 / most).min(1.0);
            for ((_, weight), wanted) in told.iter().zip(&wanted) {
                let weight = f64::from(weight.unwrap());
                prop_assert!((1.0..=10_000.0).contains(&weight));
                prop_assert!((weight - wanted * scale).abs() <= 1.0, "{} {}", weight, wanted * scale);
            }
        }
    }
}
