//! Block weights: the share of each level of a tree, and weights that do not fit a file's range.

use proptest::prelude::*;

use super::*;
use crate::decision::Memo;
use crate::feedback::activity::Activity;
use crate::rates::Rates;
use crate::share;
use crate::snapshot::{Group, Snapshot};
use crate::tests::testing::{self, group};
use crate::units::{Limit, Weight};

fn with_gains() -> Served {
    Served {
        gains: true,
        io_cost: false,
        bfq: true,
    }
}

/// The `io.bfq.weight` to write for each leaf below `/a` and `/b`, by path.
fn bfq_weights(leaves: &[(&str, u32)]) -> Vec<(String, u32)> {
    bfq_weights_at(1.0, leaves)
}

/// The same if all leaves have this gain.
fn bfq_weights_at(gain: f64, leaves: &[(&str, u32)]) -> Vec<(String, u32)> {
    bfq_weights_with(&vec![gain; leaves.len()], leaves)
}

/// The same if each leaf has its own gain.
fn bfq_weights_with(gains: &[f64], leaves: &[(&str, u32)]) -> Vec<(String, u32)> {
    bfq_weights_while(true, gains, leaves)
}

/// The same where gains are in force or not.
fn bfq_weights_while(in_force: bool, gains: &[f64], leaves: &[(&str, u32)]) -> Vec<(String, u32)> {
    let mut groups = vec![group(1, None, "/a"), group(2, None, "/b")];
    for parent in &mut groups {
        parent.weight = None;
    }
    for (id, &(path, weight)) in (3..).zip(leaves) {
        let parent = if path.starts_with("/a/") { 1 } else { 2 };
        let mut leaf = group(id, Some(parent), path);
        leaf.weight = Weight::new(weight).ok();
        groups.push(leaf);
    }
    let snapshot = testing::of_groups(groups);
    let mut members = Member::all(&snapshot, Memo::new);
    for (member, &gain) in members.iter_mut().zip([1.0, 1.0].iter().chain(gains)) {
        member.decision.high = Some((Limit::Max, Reason::NoContention));
        member.decision.gain = gain;
    }
    let served = Served {
        gains: in_force,
        ..with_gains()
    };
    weights_of(Knob::IoBfqWeight, &members, served)
}

/// The weights to write to this file, by path.
fn weights_of(knob: Knob, members: &[Member], served: Served) -> Vec<(String, u32)> {
    let writes = super::weights(members, served).filter(|write| write.knob == knob);
    let written = |write: Write| {
        let mut groups = members.iter().map(|member| member.group);
        let group = groups.find(|group| group.id == write.group).unwrap();
        match write.value {
            Value::Weight(weight) => (group.path.clone(), weight),
            value => panic!("{value:?}"),
        }
    };
    writes.map(written).collect()
}

fn owned((path, weight): (&str, u32)) -> (String, u32) {
    (path.to_owned(), weight)
}

#[test]
fn weights_that_fit_are_written_as_they_are() {
    let leaves = [("/a/x", 1000), ("/a/y", 50), ("/b/x", 400)];
    assert_eq!(bfq_weights(&leaves), leaves.map(owned));
}

#[test]
fn a_weight_that_does_not_fit_scales_its_siblings_and_nobody_else() {
    let leaves = [("/a/x", 8000), ("/a/y", 400), ("/b/x", 400), ("/b/y", 200)];
    let expected = [("/a/x", 1000), ("/a/y", 50), ("/b/x", 400), ("/b/y", 200)];
    assert_eq!(bfq_weights(&leaves), expected.map(owned));
}

#[test]
fn both_files_are_written_while_io_cost_serves_a_disk_and_bfq_is_loaded() {
    let group = group(1, None, "/a");
    let snapshot = testing::of_groups(vec![Group {
        weight: Weight::new(2000).ok(),
        ..group
    }]);
    let mut members = Member::all(&snapshot, Memo::new);
    members[0].decision.high = Some((Limit::Max, Reason::NoContention));
    let written = |io_cost| {
        let served = Served {
            io_cost,
            ..with_gains()
        };
        let writes = super::weights(&members, served);
        writes
            .map(|write| (write.knob, write.value))
            .collect::<Vec<_>>()
    };
    let bfq = (Knob::IoBfqWeight, Value::Weight(1000));
    assert_eq!(written(false), [bfq]);
    assert_eq!(written(true), [bfq, (Knob::IoWeight, Value::Weight(2000))]);
}

#[test]
fn gains_act_in_io_cost_alone_where_it_serves_the_disks_of_bfq() {
    let snapshot = testing::of_groups(
        vec![group(1, None, "/a"), group(2, None, "/b")]
            .into_iter()
            .zip([100, 400])
            .map(|(group, weight)| Group {
                weight: Weight::new(weight).ok(),
                ..group
            })
            .collect(),
    );
    let mut members = Member::all(&snapshot, Memo::new);
    for member in &mut members {
        member.decision.high = Some((Limit::Max, Reason::NoContention));
        member.decision.gain = 0.5;
    }
    let written = |knob, bfq| {
        let served = Served {
            gains: true,
            io_cost: true,
            bfq,
        };
        weights_of(knob, &members, served)
    };
    let (half, plain) = ([("/a", 50), ("/b", 200)], [("/b", 400)]);
    assert_eq!(written(Knob::IoWeight, false), half.map(owned));
    assert_eq!(written(Knob::IoBfqWeight, false), plain.map(owned));
    assert_eq!(
        written(Knob::IoBfqWeight, true),
        half.map(owned),
        "BFQ alone serves another disk"
    );
}

#[test]
fn without_gains_the_weights_are_the_owners() {
    let leaves = [("/a/x", 400), ("/b/x", 200)];
    let gains = [0.5, 2.0];
    assert_eq!(bfq_weights_while(false, &gains, &leaves), leaves.map(owned));
    assert_ne!(bfq_weights_while(true, &gains, &leaves), leaves.map(owned));
}

#[test]
fn a_gain_moves_the_block_weight_by_as_much_between_one_and_the_most_there_is() {
    let expected = |written| [("/a/x", written)].map(owned);
    assert_eq!(bfq_weights_at(0.125, &[("/a/x", 400)]), expected(50));
    assert_eq!(bfq_weights_at(0.001, &[("/a/x", 300)]), expected(1));
    assert_eq!(bfq_weights_at(8.0, &[("/a/x", 300)]), expected(1000));
}

#[test]
fn beside_a_group_whose_gain_exceeds_the_file_a_sibling_keeps_its_ratio() {
    let leaves = [("/a/x", 800), ("/a/y", 700)];
    let expected = [("/a/x", 1000), ("/a/y", 438)];
    assert_eq!(bfq_weights_with(&[2.0, 1.0], &leaves), expected.map(owned));
}

proptest! {
    #[test]
    fn siblings_block_weights_are_in_the_ratio_of_weight_times_gain(
        weights in prop::collection::vec((1u32..=10_000, 0.125f64..8.0), 2..8),
    ) {
        let paths: Vec<String> = (0..weights.len()).map(|i| format!("/a/{i}")).collect();
        let leaves: Vec<(&str, u32)> =
            paths.iter().zip(&weights).map(|(path, w)| (path.as_str(), w.0)).collect();
        let gains: Vec<f64> = weights.iter().map(|w| w.1).collect();
        let exact: Vec<f64> = weights.iter().map(|&(weight, gain)| f64::from(weight) * gain).collect();
        let heaviest = exact.iter().copied().fold(1000.0, f64::max);
        let written = bfq_weights_with(&gains, &leaves);
        for (path, exact) in paths.iter().zip(exact) {
            let target = exact * 1000.0 / heaviest;
            // A leaf without a write keeps the 100 that the file holds.
            let got = written.iter().find(|w| w.0 == *path).map_or(100, |w| w.1);
            let tolerance = if target < 1.0 { 1.0 } else { 0.5 };
            prop_assert!((f64::from(got) - target).abs() <= tolerance, "{got} for {target}");
        }
    }
}

/// A group `(parent, weight, gain)`. Weight 0: an inner group without a weight of its own.
type Row = (Option<usize>, u32, f64);

fn snapshot_of(tree: &[Row]) -> Snapshot {
    let groups = tree.iter().enumerate().map(|(i, &(parent, weight, _))| {
        let mut group = group(i as u64, parent.map(|p| p as u64), &format!("/{i}"));
        group.weight = Weight::new(weight).ok();
        group.knobs.bfq_weight = None;
        group.knobs.operator.block_weight = Some(100);
        group
    });
    testing::of_groups(groups.collect())
}

/// Members with these gains, of which all leaves contend.
fn contenders<'a>(snapshot: &'a Snapshot, tree: &[Row]) -> Vec<Member<'a>> {
    let mut members = Member::all(snapshot, Memo::new);
    for (member, row) in members.iter_mut().zip(tree) {
        member.decision.high = Some((Limit::Max, Reason::NoContention));
        let stalled = Rates {
            stalled: Some(1.0),
            ..Rates::default()
        };
        member.memo.activity = Activity::default().after(&stalled, 0.1, 1.0);
        member.decision.gain = if member.leaf { row.2 } else { 1.0 };
    }
    members
}

/// The `io.weight` of each group after the writes.
fn held(snapshot: &Snapshot, members: &[Member]) -> Vec<f64> {
    let mut held = vec![100.0; snapshot.groups.len()];
    for write in super::weights(members, with_gains()) {
        let Value::Weight(weight) = write.value else {
            panic!("{write:?}")
        };
        held[write.group.0 as usize] = f64::from(weight);
    }
    held
}

/// Each group's share of the disk, beside unmanaged siblings whose weights add up to `unmanaged` at each
/// level.
fn served(tree: &[Row], held: &[f64], unmanaged: f64) -> Vec<f64> {
    let mut share = vec![0.0; tree.len()];
    for i in 0..tree.len() {
        let siblings = (0..tree.len()).filter(|&j| tree[j].0 == tree[i].0);
        let all: f64 = siblings.map(|j| held[j]).sum();
        share[i] = tree[i].0.map_or(1.0, |p| share[p]) * held[i] / (all + unmanaged);
    }
    share
}

/// Trees of up to four levels in which each inner group has children.
fn trees() -> impl Strategy<Value = Vec<Row>> {
    let weight = 100u32..=1000;
    let row = (
        any::<prop::sample::Index>(),
        prop_oneof![Just(0), weight.clone()],
        weight,
        0.5f64..2.0,
    );
    prop::collection::vec(row, 1..16).prop_map(|rows| {
        let mut tree: Vec<Row> = Vec::new();
        let mut depth: Vec<usize> = Vec::new();
        for (i, (parent, ..)) in rows.iter().enumerate() {
            let parent = parent.index(i + 1).checked_sub(1).filter(|&p| depth[p] < 3);
            depth.push(parent.map_or(0, |p| depth[p] + 1));
            tree.push((parent, 0, 1.0));
        }
        for (i, (_, inner, leaf, gain)) in rows.into_iter().enumerate() {
            let is_leaf = tree.iter().all(|row| row.0 != Some(i));
            tree[i].1 = if is_leaf { leaf } else { inner };
            tree[i].2 = gain;
        }
        tree
    })
}

/// Two tenants without a weight, one container beside five.
const TENANTS: [Row; 8] = [
    (None, 0, 1.0),
    (Some(0), 400, 1.0),
    (None, 0, 1.0),
    (Some(2), 400, 1.0),
    (Some(2), 400, 1.0),
    (Some(2), 400, 1.0),
    (Some(2), 400, 1.0),
    (Some(2), 400, 1.0),
];

#[test]
fn a_tenant_of_five_weighs_five_times_a_tenant_of_one_and_both_what_two_tenants_weighed() {
    let snapshot = snapshot_of(&TENANTS);
    let held = held(&snapshot, &contenders(&snapshot, &TENANTS));
    assert_eq!(
        held,
        [33.0, 400.0, 167.0, 400.0, 400.0, 400.0, 400.0, 400.0]
    );
}

#[test]
fn only_contenders_count_and_a_group_without_any_is_left_alone() {
    let snapshot = snapshot_of(&TENANTS);
    let mut members = contenders(&snapshot, &TENANTS);
    for idle in &mut members[4..] {
        idle.memo.activity = Activity::default();
    }
    assert_eq!(held(&snapshot, &members)[..3], [100.0, 400.0, 100.0]);
    members[3].memo.activity = Activity::default();
    assert_eq!(held(&snapshot, &members)[..3], [100.0, 400.0, 100.0]);
}

#[test]
fn a_weight_on_an_inner_group_counts_whatever_is_inside_and_a_gain_moves_it_too() {
    let mut tree = TENANTS;
    tree[2].1 = 400;
    tree[0].1 = 200;
    for leaf in &mut tree[3..] {
        leaf.2 = 1.5;
    }
    let snapshot = snapshot_of(&tree);
    assert_eq!(
        held(&snapshot, &contenders(&snapshot, &tree))[..3],
        [200.0, 400.0, 600.0]
    );
}

#[test]
fn a_group_of_a_tenant_does_not_weigh_more_for_the_groups_it_makes() {
    let mut snapshot = snapshot_of(&TENANTS);
    snapshot.groups[2].weight = Some(Weight::DEFAULT);
    for made in &mut snapshot.groups[3..] {
        made.delegated = true;
    }
    let members = contenders(&snapshot, &TENANTS);
    assert_eq!(members[2].weight, Some(Weight::DEFAULT));
    snapshot.groups[3..]
        .iter_mut()
        .for_each(|pod| pod.delegated = false);
    let pods = contenders(&snapshot, &TENANTS);
    let shares = share::proportions(&pods, |_| true);
    assert!(
        (shares[1] - 1.0 / 6.0).abs() < 1e-9,
        "a pod without a weight: {shares:?}"
    );
}

#[test]
fn a_foreign_inner_weight_is_left_alone() {
    let mut snapshot = snapshot_of(&TENANTS);
    snapshot.groups[2].knobs.foreign.io_weight = true;
    let members = contenders(&snapshot, &TENANTS);
    assert!(super::weights(&members, with_gains()).all(|write| write.group.0 != 2));
}

proptest! {
    #[test]
    fn the_disk_serves_each_leaf_by_its_weight_down_the_tree_times_its_gain(tree in trees()) {
        let mut snapshot = snapshot_of(&tree);
        for group in &mut snapshot.groups {
            group.knobs.operator.block_weight = Some(1000);
        }
        let members = contenders(&snapshot, &tree);
        let shares = share::proportions(&members, |_| true);
        let pull = |i: usize| shares[i] * members[i].decision.gain;
        let leaves: Vec<usize> = (0..tree.len()).filter(|&i| members[i].leaf).collect();
        let all: f64 = leaves.iter().map(|&i| pull(i)).sum();
        let served = served(&tree, &held(&snapshot, &members), 0.0);
        for i in leaves {
            // Weights are rounded to whole numbers on up to four levels.
            let of_ideal = served[i] / (pull(i) / all);
            prop_assert!((0.95..1.05).contains(&of_ideal), "{i}: {of_ideal}");
        }
    }

    #[test]
    fn an_unmanaged_sibling_of_groups_without_a_weight_keeps_its_share(tree in trees()) {
        let snapshot = snapshot_of(&tree);
        let members = contenders(&snapshot, &tree);
        let held = held(&snapshot, &members);
        for parent in (0..tree.len()).map(Some).chain([None]) {
            let children: Vec<usize> = (0..tree.len()).filter(|&i| tree[i].0 == parent).collect();
            if children.iter().all(|&i| members[i].weight.is_some()) {
                continue;
            }
            let now: f64 = children.iter().map(|&i| held[i]).sum();
            let stated = |i: &usize| members[*i].weight.map_or(100.0, Weight::as_f64);
            let before: f64 = children.iter().map(stated).sum();
            prop_assert!(now <= before + children.len() as f64, "{now} {before}");
        }
    }
}
