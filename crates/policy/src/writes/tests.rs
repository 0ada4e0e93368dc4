//! Block weights: what is written where a weight does not fit into the file.

use proptest::prelude::*;

use super::*;
use crate::decision::Memo;
use crate::snapshot::Snapshot;
use crate::testing::group;
use crate::units::Weight;

/// What `io.bfq.weight` of each leaf below `/a` and `/b` is to hold, by path.
fn bfq_weights(leaves: &[(&str, u32)]) -> Vec<(String, u32)> {
    bfq_weights_at(1.0, leaves)
}

/// The same where all have this gain.
fn bfq_weights_at(gain: f64, leaves: &[(&str, u32)]) -> Vec<(String, u32)> {
    bfq_weights_with(&vec![gain; leaves.len()], leaves)
}

/// The same where each leaf has a gain of its own.
fn bfq_weights_with(gains: &[f64], leaves: &[(&str, u32)]) -> Vec<(String, u32)> {
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
    let snapshot = Snapshot {
        groups,
        ..Snapshot::default()
    };
    let mut members = Member::all(&snapshot, Memo::new);
    for (member, &gain) in members.iter_mut().zip([1.0, 1.0].iter().chain(gains)) {
        member.decision.high = Some((Limit::Max, Reason::NoContention));
        member.decision.gain = gain;
    }
    let writes = plan(&members, None, true);
    let written = |write: &Write| {
        let mut groups = snapshot.groups.iter();
        let group = groups.find(|group| group.id == write.group).unwrap();
        match write.value {
            Value::Weight(weight) => (group.path.clone(), weight),
            value => panic!("{value:?}"),
        }
    };
    writes.iter().map(written).collect()
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
