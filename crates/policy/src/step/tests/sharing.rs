//! Steps on hosts whose groups share files: how ownership changes plans.

use super::*;
use crate::snapshot::SharedFile;

/// Idle groups with these weights and this many MiB of page cache, IDs from 1.
fn holding(groups: &[(u32, u64)], total_mib: u64) -> Snapshot {
    let mut snapshot = testing::snapshot(total_mib, Vec::new());
    for (i, &(weight, mib)) in groups.iter().enumerate() {
        let mut g = group(i as u64 + 1, None, &format!("/g{i}"));
        g.weight = Some(Weight::new(weight).unwrap());
        g.memory.file = Some(Bytes::mib(mib));
        g.memory.current = Some(Bytes::mib(mib));
        snapshot.groups.push(g);
    }
    snapshot
}

fn shared(users: &[u64], payer: u64, mib: u64) -> SharedFile {
    SharedFile {
        users: users.iter().map(|&id| GroupId(id)).collect(),
        held: vec![(GroupId(payer), Bytes::mib(mib))],
    }
}

fn plan(snapshot: &Snapshot) -> Plan {
    step(&State::default(), snapshot, &Config::default(), SECOND).1
}

#[test]
fn a_light_payer_is_protected_for_what_a_heavy_user_owns() {
    // The light group touched first 200 MiB that both use, and 100 MiB of its own. The heavy group holds 50
    // MiB. A third group holds enough to make memory scarce.
    let mut snapshot = holding(&[(100, 300), (800, 50), (100, 650)], 1000);
    let alone = plan(&snapshot);
    snapshot.shared = Some(vec![shared(&[1, 2], 1, 200)]);
    let with = plan(&snapshot);
    let (payer, owner) = (&with.verdicts[0], &with.verdicts[1]);
    assert_eq!(payer.held_for_others, Bytes::mib(200));
    assert_eq!(owner.held_by_others, Bytes::mib(200));
    assert!(payer.threshold >= Bytes::mib(200));
    assert!(payer.threshold - payer.held_for_others <= alone.verdicts[0].threshold);
    assert!(owner.threshold >= Bytes::mib(50), "its own pages too");
    let low = with.writes.iter().find(|w| w.group == GroupId(1)).unwrap();
    assert_eq!(low.knob, Knob::MemoryLow);
}

#[test]
fn entitlements_are_those_of_a_kernel_that_charges_the_owner() {
    let mut snapshot = holding(&[(100, 300), (800, 50), (300, 450)], 800);
    snapshot.shared = Some(vec![shared(&[1, 2], 1, 200)]);
    let charged_to_owner = holding(&[(100, 100), (800, 250), (300, 450)], 800);
    let (here, there) = (plan(&snapshot), plan(&charged_to_owner));
    for (here, there) in here.verdicts.iter().zip(&there.verdicts) {
        assert_eq!(here.entitlement, there.entitlement);
        assert_eq!(
            here.threshold + here.held_by_others,
            there.threshold + here.held_for_others
        );
    }
}

#[test]
fn files_that_need_no_shift_leave_the_plan_as_it_is() {
    let mut snapshot = holding(&[(100, 300), (800, 300)], 500);
    let alone = plan(&snapshot);
    snapshot.shared = Some(vec![
        shared(&[1], 1, 200),
        shared(&[1, 2], 2, 200),
        shared(&[1, 77], 77, 9),
    ]);
    assert_eq!(plan(&snapshot), alone);
}

#[test]
fn a_limited_writer_has_room_for_what_it_holds_for_others() {
    let limit = |held_for_others: u64| {
        let mut snapshot = holding(&[(100, 250), (400, 250), (800, 50)], 600);
        snapshot.devices.push(testing::disk());
        if held_for_others > 0 {
            snapshot.shared = Some(vec![shared(&[1, 3], 1, held_for_others)]);
        }
        let config = Config::default();
        let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
        for _ in 0..20 {
            apply(&mut snapshot, &plan);
            for g in &mut snapshot.groups[..2] {
                g.traffic.write_bytes = g.traffic.write_bytes.map(|b| b + 10_000_000);
                g.pressure.io_some_us = g.pressure.io_some_us.map(|us| us + 900_000);
            }
            (state, plan) = step(&state, &snapshot, &config, SECOND);
        }
        snapshot.groups[0].knobs.high.unwrap().bytes().unwrap()
    };
    // Its own share is equally small in both cases: sharing only adds room for the owner.
    let (alone, sharing) = (limit(0), limit(230));
    assert!(alone < Bytes::mib(230), "{alone}");
    assert!(sharing >= Bytes::mib(230), "{sharing}");
}
