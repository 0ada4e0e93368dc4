//! Groups are ordered only against groups that use the same disk.

use super::*;

const FAST: u64 = 1;
const SLOW: u64 = 2;

/// The limits of four equal writers that write this fast after 60 s, and the last plan. Each uses these disks.
fn limits(devices: [&[u64]; 4], bytes_per_s: [u64; 4]) -> (Vec<Limit>, Plan) {
    limits_with(devices, &[], bytes_per_s)
}

/// The same if the disks of a group with several carry these parts of its bytes.
fn limits_with(devices: [&[u64]; 4], parts: &[f64], bytes_per_s: [u64; 4]) -> (Vec<Limit>, Plan) {
    let (config, mut snapshot) = (Config::default(), contended());
    // An inner group with much dirty memory must not be taken for one that competes.
    snapshot.groups[0].memory.file = Some(Bytes::mib(596));
    snapshot.groups[0].memory.file_dirty = Some(Bytes::mib(80));
    for (group, devices) in snapshot.groups[1..].iter_mut().zip(devices) {
        group.weight = Some(Weight::DEFAULT);
        group.devices = devices.to_vec();
        if devices.len() > 1 {
            group.device_parts = parts.to_vec();
        }
    }
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    for _ in 0..60 {
        apply(&mut snapshot, &plan);
        pass_a_second(&mut snapshot, bytes_per_s, 900_000);
        (state, plan) = step(&state, &snapshot, &config, SECOND);
    }
    apply(&mut snapshot, &plan);
    let limits = snapshot.groups[1..].iter().map(|group| group.knobs.high);
    (limits.map(Option::unwrap).collect(), plan)
}

#[test]
fn a_writer_alone_on_its_disk_is_not_ordered_against_writers_on_another() {
    let mb_per_s = [500_000_000, 10_000_000, 10_000_000, 10_000_000];
    let (apart, plan) = limits([&[FAST], &[SLOW], &[SLOW], &[SLOW]], mb_per_s);
    assert_eq!(apart[0], Limit::Max);
    assert!(
        apart[1..].iter().all(|limit| *limit != Limit::Max),
        "{apart:?}"
    );
    assert!(plan.pv < Some(0.01), "equal on each disk: {:?}", plan.pv);
    for together in [[&[SLOW][..]; 4], [&[FAST, SLOW], &[SLOW], &[SLOW], &[SLOW]]] {
        let (together, plan) = limits(together, mb_per_s);
        assert!(together[0] < together[1], "{together:?}");
        assert!(plan.pv > Some(0.5), "{:?}", plan.pv);
    }
}

#[test]
fn writers_on_two_disks_are_ordered_on_each_of_them() {
    let (limits, plan) = limits(
        [&[FAST], &[FAST], &[SLOW], &[SLOW]],
        [400_000_000, 200_000_000, 10_000_000, 20_000_000],
    );
    assert!(limits[0] < limits[1] && limits[2] > limits[3], "{limits:?}");
    let of_ideal: Vec<f64> = plan
        .verdicts
        .iter()
        .filter_map(|verdict| verdict.of_ideal)
        .collect();
    for (of_ideal, ideal) in of_ideal
        .iter()
        .zip([4.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0, 4.0 / 3.0])
    {
        assert!((of_ideal - ideal).abs() < 0.01, "{of_ideal} of {ideal}");
    }
    let gains = plan.verdicts.iter().map(|verdict| verdict.gain.ln());
    let gains: Vec<f64> = gains.collect();
    assert!((gains[0] + gains[1]).abs() < 0.5, "{gains:?}");
    assert!((gains[2] + gains[3]).abs() < 0.5, "{gains:?}");
}

#[test]
fn a_group_is_ordered_on_the_first_of_its_disks_that_another_uses() {
    let devices: [&[u64]; 6] = [&[1], &[2], &[3], &[1, 3], &[4, 3], &[]];
    let mut snapshot = contended();
    snapshot
        .groups
        .extend((6..9).map(|id| group(id, Some(1), "/app/d")));
    for (group, devices) in snapshot.groups[1..].iter_mut().zip(devices) {
        group.devices = devices.to_vec();
    }
    let members = Member::all(&snapshot, Memo::new);
    let sets = order::on_one_disk(&members, &[1, 2, 3, 4, 5, 6]);
    let sets: Vec<(Option<u64>, Vec<usize>)> =
        sets.into_iter().map(|on| (on.disk, on.groups)).collect();
    let on = |disk: u64, groups: &[usize]| (Some(disk), groups.to_vec());
    let nowhere = (None, vec![6]);
    assert_eq!(sets, [nowhere, on(1, &[1, 4]), on(2, &[2]), on(3, &[3, 5])]);
}

#[test]
fn a_group_on_two_disks_is_ordered_by_its_bandwidth_on_one_of_them() {
    // It moves 100 MB/s alone on the fast disk and as much as each of the others on the slow one.
    let mb_per_s = [110_000_000, 10_000_000, 10_000_000, 10_000_000];
    let devices: [&[u64]; 4] = [&[FAST, SLOW], &[SLOW], &[SLOW], &[SLOW]];
    let (limits, plan) = limits_with(devices, &[10.0 / 11.0, 1.0 / 11.0], mb_per_s);
    assert_eq!(limits[0], limits[1], "{limits:?}");
    assert!(plan.pv < Some(0.01), "{:?}", plan.pv);
}

#[test]
fn a_writer_is_not_held_back_for_groups_that_share_a_disk_with_its_neighbor_only() {
    // The second group writes 90 MB/s beside the first on the fast disk, and 5 MB/s to the slow one.
    let mb_per_s = [90_000_000, 95_000_000, 5_000_000, 5_000_000];
    let devices: [&[u64]; 4] = [&[FAST], &[FAST, SLOW], &[SLOW], &[SLOW]];
    let (limits, plan) = limits_with(devices, &[90.0 / 95.0, 5.0 / 95.0], mb_per_s);
    assert_eq!(limits[0], limits[1], "{limits:?}");
    assert_eq!(limits[2], limits[3], "{limits:?}");
    assert!(plan.pv < Some(0.01), "{:?}", plan.pv);
}

#[test]
fn a_contender_whose_disks_are_not_known_is_ordered_against_all() {
    let mb_per_s = [500_000_000, 10_000_000, 10_000_000, 10_000_000];
    let (limits, _) = limits([&[FAST], &[SLOW], &[SLOW], &[]], mb_per_s);
    assert!(limits[0] < limits[1], "{limits:?}");
}
