//! The properties in the module's header.

use proptest::prelude::*;

use super::*;
use crate::decision::Memo;
use crate::snapshot::Snapshot;
use crate::tests::testing::group;
use crate::units::Weight;

/// Leaves with these weights and this much page cache, IDs from 1, all below the root.
fn leaves(weights: &[u32], file: &[u64]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (i, (&weight, &file)) in weights.iter().zip(file).enumerate() {
        let mut leaf = group(i as u64 + 1, None, &format!("/g{i}"));
        leaf.weight = Some(Weight::new(weight).unwrap());
        leaf.memory.file = Some(Bytes(file));
        leaf.memory.current = Some(Bytes(file));
        snapshot.groups.push(leaf);
    }
    snapshot
}

fn file(users: &[u64], held: &[(u64, u64)]) -> SharedFile {
    SharedFile {
        users: users.iter().map(|&id| GroupId(id)).collect(),
        held: held
            .iter()
            .map(|&(id, bytes)| (GroupId(id), Bytes(bytes)))
            .collect(),
    }
}

fn charges(snapshot: &Snapshot) -> Charges {
    let mut members = Member::all(snapshot, Memo::new);
    crate::share::weigh(&mut members);
    Charges::of(&members, snapshot.shared.as_deref().unwrap_or_default())
}

/// (for others, by others) of every group, in bytes.
fn shifts(snapshot: &Snapshot, entitled: &[u64]) -> Vec<(u64, u64)> {
    let entitled: Vec<Bytes> = entitled.iter().map(|&b| Bytes(b)).collect();
    let granted = charges(snapshot).granted(&entitled);
    granted
        .iter()
        .map(|s| (s.for_others.0, s.by_others.0))
        .collect()
}

#[test]
fn protection_follows_the_owner_to_the_payer() {
    let mut snapshot = leaves(&[100, 800], &[300, 50]);
    snapshot.shared = Some(vec![file(&[1, 2], &[(1, 200), (2, 10)])]);
    assert_eq!(shifts(&snapshot, &[90, 720]), [(200, 0), (0, 200)]);
}

#[test]
fn the_heaviest_does_not_pay_for_a_program_that_all_run() {
    let mut snapshot = leaves(&[100, 800], &[300, 50]);
    snapshot.shared = Some(vec![file(&[1, 2], &[(1, 80)])]);
    snapshot.groups[0].memory.file_mapped = Some(Bytes(80));
    assert_eq!(shifts(&snapshot, &[90, 720]), [(0, 0), (0, 0)]);
    // A file beside the mapped program counts.
    snapshot.shared = Some(vec![file(&[1, 2], &[(1, 80)]), file(&[1, 2], &[(1, 120)])]);
    assert_eq!(shifts(&snapshot, &[90, 720]), [(120, 0), (0, 120)]);
}

#[test]
fn a_payer_that_is_no_user_counts_and_an_owner_that_pays_itself_does_not() {
    let mut snapshot = leaves(&[100, 200, 400], &[300, 300, 300]);
    snapshot.shared = Some(vec![file(&[2, 3], &[(1, 70), (3, 50)])]);
    assert_eq!(
        shifts(&snapshot, &[500; 3]),
        [(70, 0), (0, 0), (0, 70)],
        "the third's own 50 stay its own"
    );
}

#[test]
fn an_owner_gives_no_more_than_it_is_entitled_to() {
    let mut snapshot = leaves(&[100, 100, 800], &[300, 300, 0]);
    snapshot.shared = Some(vec![file(&[1, 2, 3], &[(1, 300), (2, 100)])]);
    assert_eq!(
        shifts(&snapshot, &[0, 0, 200]),
        [(150, 0), (50, 0), (0, 200)]
    );
}

#[test]
fn a_payer_holds_no_more_for_others_than_its_page_cache() {
    let mut snapshot = leaves(&[100, 400, 800], &[90, 0, 0]);
    snapshot.shared = Some(vec![
        file(&[1, 2], &[(1, 100)]),
        file(&[1, 3], &[(1, 200), (1, 100)]),
    ]);
    assert_eq!(
        shifts(&snapshot, &[500; 3]),
        [(90, 0), (0, 23), (0, 67)],
        "in proportion to the charges"
    );
}

#[test]
fn among_groups_of_equal_weight_the_larger_holder_then_the_lower_id_owns() {
    let mut snapshot = leaves(&[100, 100, 100], &[300; 3]);
    snapshot.shared = Some(vec![file(&[3, 2, 1], &[(1, 10), (2, 20), (3, 20)])]);
    assert_eq!(shifts(&snapshot, &[500; 3]), [(10, 0), (0, 30), (20, 0)]);
}

#[test]
fn absurd_amounts_do_not_overflow() {
    let mut snapshot = leaves(&[100, 100, 800], &[u64::MAX, u64::MAX, 0]);
    let held = [(1, u64::MAX), (2, u64::MAX), (1, u64::MAX)];
    snapshot.shared = Some(vec![file(&[1, 3], &held), file(&[2, 3], &held)]);
    let granted = shifts(&snapshot, &[0, 0, u64::MAX]);
    assert_eq!(granted[2].1, 2 << 48);
}

#[test]
fn the_weight_down_the_hierarchy_decides_between_slices() {
    // 800 in a slice of 100 is less than 100 in a slice of 900.
    let mut snapshot = Snapshot::default();
    for (id, parent, weight) in [
        (1, None, 100),
        (2, None, 900),
        (3, Some(1), 800),
        (4, Some(2), 100),
        (5, Some(1), 200),
    ] {
        let mut node = group(id, parent, &format!("/{id}"));
        node.weight = Some(Weight::new(weight).unwrap());
        node.memory.file = Some(Bytes(100));
        snapshot.groups.push(node);
    }
    snapshot.shared = Some(vec![file(&[3, 4], &[(3, 60), (4, 1)])]);
    assert_eq!(shifts(&snapshot, &[500; 5])[2..4], [(60, 0), (0, 60)]);
}

#[test]
fn equal_weights_under_unweighted_slices_are_equal_despite_rounding() {
    // 100 of 100 + 200 + 300 + 400 however they are nested: rounding must not choose the owner.
    let mut snapshot = Snapshot::default();
    let mut slice = group(1, None, "/a");
    slice.weight = None;
    snapshot.groups.push(slice.clone());
    slice.id = GroupId(2);
    snapshot.groups.push(slice);
    for (id, parent, weight) in [
        (3, Some(1), 100),
        (4, Some(1), 200),
        (5, Some(2), 100),
        (6, Some(2), 700),
    ] {
        let mut node = group(id, parent, &format!("/{id}"));
        node.weight = Some(Weight::new(weight).unwrap());
        node.memory.file = Some(Bytes(100));
        snapshot.groups.push(node);
    }
    snapshot.shared = Some(vec![file(&[3, 5], &[(3, 10), (5, 11)])]);
    assert_eq!(shifts(&snapshot, &[500; 6])[4], (0, 10), "who holds more");
}

#[test]
fn unknown_and_inner_groups_neither_own_nor_pay() {
    let mut snapshot = leaves(&[100, 800], &[300, 50]);
    snapshot.groups[1].parent = None;
    let mut below = group(9, Some(2), "/g1/below");
    below.memory.file = Some(Bytes(50));
    snapshot.groups.push(below);
    snapshot.shared = Some(vec![
        file(&[1, 2], &[(1, 200)]),
        file(&[77, 78], &[(1, 100)]),
        file(&[1, 9], &[(77, 100), (2, 100)]),
        file(&[], &[(1, 5)]),
    ]);
    assert_eq!(shifts(&snapshot, &[500; 3]), [(0, 0); 3]);
}

#[test]
fn a_payer_that_cannot_be_protected_holds_nothing_for_others() {
    let mut snapshot = leaves(&[100, 800], &[300, 50]);
    snapshot.shared = Some(vec![file(&[1, 2], &[(1, 200)])]);
    let mut blind = snapshot.clone();
    blind.groups[0].memory.file = None;
    let mut foreign = snapshot.clone();
    foreign.groups[0].knobs.foreign.low = true;
    let mut absent = snapshot.clone();
    absent.groups[0].knobs.low = None;
    for snapshot in [blind, foreign, absent] {
        assert_eq!(shifts(&snapshot, &[500; 2]), [(0, 0); 2]);
    }
}

/// Hosts of up to eight leaves that share up to eight files, and the entitlement of each leaf. IDs 9 and 10
/// are unknown.
fn hosts() -> impl Strategy<Value = (Snapshot, Vec<u64>)> {
    let amount = || prop_oneof![Just(0u64), 0u64..1 << 20, 0u64..1 << 40];
    let files = prop::collection::vec(
        (
            prop::collection::vec(1u64..=10, 0..6),
            prop::collection::vec((1u64..=10, amount()), 0..6),
        ),
        0..8,
    );
    let groups = prop::collection::vec((1u32..=1000, amount(), amount()), 1..8);
    (groups, files).prop_map(move |(groups, files)| {
        let weights: Vec<u32> = groups.iter().map(|g| g.0).collect();
        let held: Vec<u64> = groups.iter().map(|g| g.1).collect();
        let mut snapshot = leaves(&weights, &held);
        snapshot.shared = Some(files.iter().map(|(u, h)| file(u, h)).collect());
        (snapshot, groups.iter().map(|g| g.2).collect())
    })
}

proptest! {
    #[test]
    fn payers_get_to_the_byte_as_much_as_owners_give((snapshot, entitled) in hosts()) {
        let granted = shifts(&snapshot, &entitled);
        let given: u128 = granted.iter().map(|s| u128::from(s.1)).sum();
        let got: u128 = granted.iter().map(|s| u128::from(s.0)).sum();
        prop_assert_eq!(given, got);
        for (i, &(for_others, by_others)) in granted.iter().enumerate() {
            prop_assert!(by_others <= entitled[i]);
            prop_assert!(for_others <= snapshot.groups[i].memory.file.unwrap().0);
        }
    }

    #[test]
    fn private_pages_are_protected_by_the_groups_own_weight_only((snapshot, entitled) in hosts()) {
        let entitled: Vec<Bytes> = entitled.into_iter().map(Bytes).collect();
        for (shift, &entitled) in charges(&snapshot).granted(&entitled).iter().zip(&entitled) {
            prop_assert!(shift.threshold(entitled) - shift.for_others <= entitled);
        }
    }

    #[test]
    fn the_order_of_files_users_and_holders_does_not_matter(
        (snapshot, entitled) in hosts(),
        turn in 0usize..8,
    ) {
        let mut turned = snapshot.clone();
        let files = turned.shared.get_or_insert_default();
        let count = files.len().max(1);
        files.rotate_left(turn % count);
        for file in files {
            file.users.reverse();
            file.held.reverse();
        }
        prop_assert_eq!(shifts(&snapshot, &entitled), shifts(&turned, &entitled));
    }

    #[test]
    fn more_weight_never_makes_a_group_own_less(
        (snapshot, entitled) in hosts(),
        who in any::<prop::sample::Index>(),
        more in 0u32..9000,
    ) {
        let who = who.index(snapshot.groups.len());
        let mut heavier = snapshot.clone();
        let weight = heavier.groups[who].weight.unwrap().get() + more;
        heavier.groups[who].weight = Some(Weight::new(weight).unwrap());
        let before = shifts(&snapshot, &entitled)[who];
        let after = shifts(&heavier, &entitled)[who];
        // If charges exceed the entitlement, splitting it rounds by up to one byte per charge.
        prop_assert!(after.1 + 8 >= before.1, "{} then {}", before.1, after.1);
    }

    #[test]
    fn a_file_that_one_group_uses_and_pays_changes_nothing(
        (mut snapshot, entitled) in hosts(),
        held in 0u64..1 << 40,
    ) {
        snapshot.shared = Some(vec![file(&[1], &[(1, held)]), SharedFile::default()]);
        prop_assert_eq!(charges(&snapshot), Charges::default());
        prop_assert!(shifts(&snapshot, &entitled).iter().all(|s| *s == (0, 0)));
    }
}
