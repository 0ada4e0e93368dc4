//! Weights for the kernel module's gate: the weight of each leaf, times its gain.
//!
//! The gate (`docs/gate.md`) knows cgroups and numbers, but no tree. A leaf's number is its share of all
//! weight down the hierarchy, so that the children of an inner group divide what that group's weight earns.
//! The number is scaled to the weights of the topmost groups, so that without inner groups it is the group's
//! own weight, and so that the largest fits the module. The order `stride` uses only ratios. The order
//! `aging` compares differences, for which the owner's numbers matter.
//!
//! Writers that belong to no leaf would pass the gate and use up what it divides. The root cgroup therefore
//! has the default weight and stands for all writers without a group. An inner group stands for what is in it
//! and in none of its leaves, like one more child of the default weight.
//!
//! Properties: a change of a gain that is too small to show is not fed; a group that was fed and is no longer
//! managed is removed; without a gate nothing is fed.
//!
//! While the gate is closed, it orders writers at once and by pages. `memory.high` at the share does the same
//! in seconds and by limits, and is left alone for these writers ([`orders`]): both would correct the same
//! error, and a limit below a writer's dirty pages makes it wait a second time.
//!
//! Left out: if children of an inner group are idle, their part goes to all groups, not to their siblings.
//! The gain moves it back.

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::Member;
use crate::plan::Feed;
use crate::snapshot::{GateSeen, GroupId};
use crate::units::Weight;

/// Largest weight of a group in the gate (`kmod/abi.h`).
const HEAVIEST: f64 = 10_000.0;
/// Changes smaller than this part of a weight are not fed.
const WORTH: f64 = 0.02;

pub(crate) fn orders(gate: Option<&GateSeen>) -> bool {
    gate.is_some_and(|gate| gate.closed)
}

/// The weights that the gate does not have already.
pub(crate) fn feeds(gate: Option<&GateSeen>, members: &[Member]) -> Vec<Feed> {
    let Some(gate) = gate else {
        return Vec::new();
    };
    let wanted = wanted(gate.root, members);
    let most = wanted.iter().map(|w| w.weight).fold(0.0, f64::max);
    let scale = HEAVIEST / most.max(HEAVIEST);
    let fed: BTreeMap<GroupId, u32> = gate.fed.iter().copied().collect();
    let stays: BTreeSet<GroupId> = wanted.iter().map(|w| w.group).collect();
    let gone = fed.keys().filter(|id| !stays.contains(id));
    let mut feeds: Vec<Feed> = gone
        .map(|&group| Feed {
            group,
            weight: None,
            gain: 1.0,
        })
        .collect();
    for Wanted {
        group,
        weight,
        gain,
    } in wanted
    {
        let target = (weight * scale).round().clamp(1.0, HEAVIEST);
        // A gain of exactly 1 restores the owner's weight.
        let exact = (gain - 1.0).abs() < f64::EPSILON;
        let tolerance = if exact { 0.5 } else { WORTH * target };
        let near = |&now: &u32| (f64::from(now) - target).abs() < tolerance;
        if !fed.get(&group).is_some_and(near) {
            feeds.push(Feed {
                group,
                weight: Some(target as u32),
                gain,
            });
        }
    }
    feeds
}

/// The weight of a group before it is scaled to fit the module.
struct Wanted {
    group: GroupId,
    weight: f64,
    gain: f64,
}

fn wanted(root: Option<GroupId>, members: &[Member]) -> Vec<Wanted> {
    let all = topmost_weight(members);
    let mut children = vec![0.0; members.len()];
    for member in members {
        if let (Some(p), Some(weight)) = (member.parent, member.group.weight) {
            children[p] += weight.as_f64();
        }
    }
    let mut wanted: Vec<Wanted> = Vec::new();
    for (member, children) in members.iter().zip(children) {
        let weight = member.decision.proportion * all;
        let (weight, gain) = if member.leaf {
            (weight * member.decision.gain, member.decision.gain)
        } else if member.group.weight.is_some() && children > 0.0 {
            (weight * Weight::DEFAULT.as_f64() / children, 1.0)
        } else {
            continue;
        };
        wanted.push(Wanted {
            group: member.group.id,
            weight,
            gain,
        });
    }
    let root = root.filter(|&root| !wanted.iter().any(|w| w.group == root));
    wanted.extend(root.map(|group| Wanted {
        group,
        weight: Weight::DEFAULT.as_f64(),
        gain: 1.0,
    }));
    wanted
}

/// Sum of the weights of the topmost groups that have one.
fn topmost_weight(members: &[Member]) -> f64 {
    let mut below_one = vec![false; members.len()];
    let mut sum = 0.0;
    for (i, member) in members.iter().enumerate() {
        let weighted = |p: usize| below_one[p] || members[p].weight.is_some();
        below_one[i] = member.parent.is_some_and(weighted);
        if let (Some(weight), false) = (member.weight, below_one[i]) {
            sum += weight.as_f64();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Memo;
    use crate::snapshot::Group;
    use crate::tests::testing::{self, group};
    use proptest::prelude::*;

    fn seen(fed: &[(u64, u32)]) -> GateSeen {
        GateSeen {
            closed: true,
            root: None,
            fed: fed
                .iter()
                .map(|&(id, weight)| (GroupId(id), weight))
                .collect(),
        }
    }

    /// Weights that the gate is fed for groups `(id, parent, weight)` with these gains.
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
        let snapshot = testing::of_groups(groups);
        let mut members = Member::all(&snapshot, Memo::new);
        crate::share::weigh(&mut members);
        for (member, &gain) in members.iter_mut().zip(gains) {
            member.decision.gain = gain;
        }
        let feeds = feeds(Some(gate), &members);
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
    fn gains_multiply_and_negligible_changes_are_not_fed() {
        let tree = [(2, None, 100), (3, None, 800)];
        let gate = seen(&[(2, 100), (3, 800)]);
        assert_eq!(fed(&gate, &tree, &[1.5, 1.01]), [(2, Some(150))]);
        // A gain of exactly 1 makes the weights the owner's again.
        let gate = seen(&[(2, 100), (3, 808)]);
        assert_eq!(fed(&gate, &tree, &[]), [(3, Some(800))]);
    }

    #[test]
    fn a_group_that_is_gone_is_taken_out() {
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
        // Writers in the parent and in none of its children count like one more child of weight 100.
        let own = (1, Some(200));
        assert_eq!(
            weights,
            [own, (2, Some(200)), (3, Some(600)), (4, Some(100))]
        );
    }

    #[test]
    fn writers_of_no_leaf_have_the_weight_of_the_root() {
        let tree = [(2, None, 100), (3, None, 800)];
        let mut gate = GateSeen {
            root: Some(GroupId(1)),
            ..seen(&[(2, 100), (3, 800)])
        };
        assert_eq!(fed(&gate, &tree, &[]), [(1, Some(100))]);
        gate.fed.push((GroupId(1), 100));
        assert!(fed(&gate, &tree, &[]).is_empty(), "and keeps it");
    }

    #[test]
    fn without_a_gate_nothing_is_fed() {
        let groups = [group(2, None, "/2")].into();
        let snapshot = testing::of_groups(groups);
        let members = Member::all(&snapshot, Memo::new);
        assert!(feeds(None, &members).is_empty());
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
