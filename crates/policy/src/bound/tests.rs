use std::time::Duration;

use proptest::prelude::*;

use crate::config::Config;
use crate::plan::{Knob, Plan, Reason, Value};
use crate::snapshot::{GroupId, SharedFile, Snapshot};
use crate::step::{step, State};
use crate::tests::testing::{self, apply, group};
use crate::units::{Bytes, Limit, Weight};
use crate::worth::{Curve, Point};

const SECOND: Duration = Duration::from_secs(1);
const TENANT: usize = 1;
const MADE: usize = 2;
const HONEST: usize = 3;

/// A host of 1000 MiB with the tenant's directory, one group that the tenant made, and an honest group. The
/// directory and the honest group have weight 100. Each holds some page cache; the rest is free.
fn beside(honest_mib: u64) -> Snapshot {
    let mut slice = group(1, None, "/user.slice");
    slice.weight = None;
    let mut made = group(3, Some(2), "/user.slice/user@1000.service/docker-1.scope");
    made.delegated = true;
    let tenant = group(2, Some(1), "/user.slice/user@1000.service");
    let mut snapshot = testing::snapshot(1000, vec![slice, tenant, made, group(4, None, "/app")]);
    hold(&mut snapshot, HONEST, 0, honest_mib);
    hold(&mut snapshot, MADE, 0, 10);
    hold(&mut snapshot, TENANT, 0, 10);
    snapshot
}

/// Sets a group's other memory and page cache, and gives the rest to the host.
fn hold(snapshot: &mut Snapshot, at: usize, other_mib: u64, file_mib: u64) {
    let memory = &mut snapshot.groups[at].memory;
    memory.anon = Some(Bytes::mib(other_mib));
    memory.file = Some(Bytes::mib(file_mib));
    memory.current = Some(Bytes::mib(other_mib + file_mib));
    let top = [TENANT, HONEST].map(|at| snapshot.groups[at].memory);
    let file: Bytes = top.iter().filter_map(|memory| memory.file).sum();
    let all: Bytes = top.iter().filter_map(|memory| memory.current).sum();
    snapshot.host.file = Some(file);
    snapshot.host.free = Some(Bytes::mib(1000) - all);
}

/// The honest group stalls and has this many refaults per second.
fn lack(snapshot: &mut Snapshot, refaults: u64) {
    let honest = &mut snapshot.groups[HONEST];
    honest.pressure.io_some_us = honest.pressure.io_some_us.map(|us| us + 900_000);
    honest.traffic.read_bytes = honest.traffic.read_bytes.map(|b| b + 9_000_000);
    honest.traffic.missed_bytes = honest.traffic.missed_bytes.map(|b| b + 9_000_000);
    let pages = &mut honest.memory.refault_pages;
    *pages = pages.map(|pages| pages + refaults);
}

/// The same, and the honest group writes as much as it reads, so it demands all it can get.
fn write(snapshot: &mut Snapshot) {
    let traffic = &mut snapshot.groups[HONEST].traffic;
    traffic.write_bytes = traffic.write_bytes.map(|b| b + 9_000_000);
    lack(snapshot, 1000);
}

/// Makes a few such steps and returns the last plan.
fn settled(snapshot: &mut Snapshot, refaults: u64) -> Plan {
    settled_from(&State::default(), snapshot, refaults)
}

fn settled_from(state: &State, snapshot: &mut Snapshot, refaults: u64) -> Plan {
    let config = Config::default();
    let (mut state, mut plan) = step(state, snapshot, &config, Duration::ZERO);
    for _ in 0..3 {
        apply(snapshot, &plan);
        lack(snapshot, refaults);
        (state, plan) = step(&state, snapshot, &config, SECOND);
    }
    apply(snapshot, &plan);
    plan
}

/// Makes steps in each of which the second group misses this many bytes, and the honest group lacks memory.
fn settled_missing(state: &State, snapshot: &mut Snapshot, missed: u64) -> Plan {
    let (mut state, mut last) = (state.clone(), Plan::default());
    for _ in 0..30 {
        let traffic = &mut snapshot.groups[TENANT].traffic;
        for bytes in [&mut traffic.read_bytes, &mut traffic.missed_bytes] {
            *bytes = bytes.map(|bytes| bytes + missed);
        }
        lack(snapshot, 1000);
        (state, last) = step(&state, snapshot, &Config::default(), SECOND);
        apply(snapshot, &last);
    }
    last
}

fn high(snapshot: &Snapshot, at: usize) -> Limit {
    snapshot.groups[at].knobs.high.unwrap()
}

#[test]
fn a_tenants_bound_stands_at_its_share_before_it_grows_past_it() {
    let mut snapshot = beside(400);
    settled(&mut snapshot, 1000);
    let Limit::Bytes(bound) = high(&snapshot, TENANT) else {
        panic!("no bound")
    };
    // Half of memory by weight, plus what the other group, a reader, does not demand yet.
    assert!(
        bound > Bytes::mib(490) && bound < Bytes::mib(640),
        "{bound}"
    );
}

#[test]
fn a_group_has_no_bound_where_others_leave_it_all() {
    for memory in [(0, 10), (700, 10), (0, 900)] {
        let mut snapshot = beside(0);
        hold(&mut snapshot, TENANT, memory.0, memory.1);
        snapshot.groups.truncate(HONEST);
        let config = Config::default();
        let (state, plan) = step(&State::default(), &snapshot, &config, SECOND);
        apply(&mut snapshot, &plan);
        let (_, plan) = step(&state, &snapshot, &config, SECOND);
        apply(&mut snapshot, &plan);
        assert_eq!(high(&snapshot, TENANT), Limit::Max, "{memory:?}");
    }
}

#[test]
fn a_bound_leaves_room_for_all_that_others_do_not_demand() {
    let mut snapshot = beside(100);
    snapshot.groups[HONEST].weight = Some(Weight::new(900).unwrap());
    snapshot.host.swap = Some(Bytes::mib(1000));
    let config = Config::default();
    let (_, plan) = step(&State::default(), &snapshot, &config, SECOND);
    apply(&mut snapshot, &plan);
    assert_eq!(lent(high(&snapshot, TENANT)), None);
}

/// Checks the bound of a tenant beside an idle neighbor, which demands what it holds plus some room to grow.
/// Returns the bound if it is wrong.
fn lent(bound: Limit) -> Option<Limit> {
    let all = bound > Limit::Bytes(Bytes::mib(860)) && bound < Limit::Max;
    (!all).then_some(bound)
}

#[test]
fn a_tenant_gets_what_others_do_not_demand_little_by_little_where_the_kernel_cannot_take_it_back() {
    let mut snapshot = beside(100);
    snapshot.groups[HONEST].weight = Some(Weight::new(900).unwrap());
    let config = Config::default();
    let mut state = State::default();
    let mut bounds = Vec::new();
    for _ in 0..60 {
        let plan;
        (state, plan) = step(&state, &snapshot, &config, SECOND);
        apply(&mut snapshot, &plan);
        let Limit::Bytes(bound) = high(&snapshot, TENANT) else {
            panic!("no bound")
        };
        bounds.push(bound);
        hold(&mut snapshot, TENANT, bound.0 >> 20, 1);
    }
    assert!(bounds[0] < Bytes::mib(130), "a tenth by weight: {bounds:?}");
    let steps = bounds.windows(2).map(|two| two[1] - two[0]);
    assert!(steps.max() < Some(Bytes::mib(65)), "{bounds:?}");
    assert_eq!(lent(Limit::Bytes(bounds[59])), None);
}

#[test]
fn a_bound_does_not_follow_what_a_tenant_gains_while_it_stands_above_its_share() {
    let mut snapshot = beside(100);
    let config = Config::default();
    let mut state = State::default();
    let mut bounds = Vec::new();
    for second in 0..30 {
        hold(&mut snapshot, TENANT, 700 + 2 * second, 1);
        hold(&mut snapshot, HONEST, 0, 100);
        write(&mut snapshot);
        let plan;
        (state, plan) = step(&state, &snapshot, &config, SECOND);
        apply(&mut snapshot, &plan);
        bounds.push(high(&snapshot, TENANT));
    }
    let first = bounds[3].bytes().unwrap();
    assert!(
        first >= Bytes::mib(700) && first < Bytes::mib(730),
        "{first}"
    );
    assert!(
        bounds[3..].iter().all(|bound| *bound == bounds[3]),
        "{bounds:?}"
    );
    snapshot.host.swap = Some(Bytes::mib(500));
    for _ in 0..60 {
        write(&mut snapshot);
        let plan;
        (state, plan) = step(&state, &snapshot, &config, SECOND);
        apply(&mut snapshot, &plan);
        let held = high(&snapshot, TENANT).bytes().unwrap().0 >> 20;
        hold(&mut snapshot, TENANT, held.min(730), 1);
    }
    let swapped = high(&snapshot, TENANT).bytes().unwrap();
    assert!(
        swapped < Bytes::mib(640),
        "what can be swapped out is taken: {swapped}"
    );
}

#[test]
fn a_bound_stays_above_what_a_tenant_took_before_others_demanded_theirs_and_follows_no_more() {
    let mut snapshot = beside(100);
    let (config, mut state) = (Config::default(), State::default());
    let mut bounds = Vec::new();
    for second in 0..60 {
        // Below its share it takes 20 MiB a second, and above it, once the other group demands half of memory, 2.
        let held = if second <= 30 {
            100 + 20 * second
        } else {
            640 + 2 * second
        };
        hold(&mut snapshot, TENANT, held, 1);
        if second >= 30 {
            write(&mut snapshot);
        }
        let plan;
        (state, plan) = step(&state, &snapshot, &config, SECOND);
        apply(&mut snapshot, &plan);
        bounds.push(high(&snapshot, TENANT));
    }
    let first = bounds[31].bytes().unwrap();
    assert!(
        first > Bytes::mib(700) && first < Bytes::mib(730),
        "{first}"
    );
    assert!(
        bounds[31..].iter().all(|bound| *bound == bounds[31]),
        "{bounds:?}"
    );
}

#[test]
fn a_long_step_lends_a_tenant_no_more_than_two_seconds_do() {
    let bound = |elapsed_s: u64| {
        let mut snapshot = beside(100);
        snapshot.groups[HONEST].weight = Some(Weight::new(900).unwrap());
        hold(&mut snapshot, TENANT, 200, 1);
        let elapsed = Duration::from_secs(elapsed_s);
        let (_, plan) = step(&State::default(), &snapshot, &Config::default(), elapsed);
        apply(&mut snapshot, &plan);
        high(&snapshot, TENANT)
    };
    assert!(bound(1) < bound(2));
    assert_eq!(bound(30), bound(2));
}

/// The limit of a group of root's that holds 700 MiB of anonymous memory, beside the honest group.
fn database(refaults: u64, honest_mib: u64) -> (Limit, Plan) {
    let mut snapshot = beside(honest_mib);
    snapshot.groups.truncate(TENANT);
    let mut database = group(2, None, "/database");
    database.memory.anon = Some(Bytes::mib(700));
    snapshot.groups.push(database);
    snapshot.groups.push(group(3, None, "/idle"));
    snapshot.groups.push(group(4, None, "/app"));
    hold(&mut snapshot, HONEST, 0, honest_mib);
    hold(&mut snapshot, TENANT, 700, 300 - honest_mib);
    let plan = settled(&mut snapshot, refaults);
    (high(&snapshot, TENANT), plan)
}

#[test]
fn a_database_beside_groups_that_lack_nothing_has_no_bound() {
    assert_eq!(database(0, 100).0, Limit::Max);
    let (bound, plan) = database(1000, 100);
    assert!(
        bound >= Limit::Bytes(Bytes::mib(700)) && bound < Limit::Max,
        "{bound}"
    );
    assert!(plan
        .writes
        .iter()
        .all(|write| write.knob != Knob::MemoryHigh || write.group != GroupId(4)));
}

#[test]
fn a_bound_rises_with_what_a_group_is_entitled_to_whatever_limited_it_before() {
    let mut snapshot = beside(290);
    snapshot.groups.truncate(TENANT);
    snapshot.groups.push(group(2, None, "/database"));
    snapshot.groups.push(group(3, None, "/idle"));
    snapshot.groups.push(group(4, None, "/app"));
    hold(&mut snapshot, HONEST, 0, 290);
    hold(&mut snapshot, TENANT, 700, 10);
    snapshot.groups[TENANT].memory.file_dirty = Some(Bytes::mib(5));
    let low = Limit::Bytes(Bytes::mib(715));
    snapshot.groups[TENANT].knobs.high = Some(low);
    let config = Config::default();
    let (mut state, mut plan) = (State::default(), Plan::default());
    for _ in 0..10 {
        let traffic = &mut snapshot.groups[TENANT].traffic;
        traffic.write_bytes = traffic.write_bytes.map(|bytes| bytes + 9_000_000);
        let stall = &mut snapshot.groups[TENANT].pressure.io_some_us;
        *stall = stall.map(|us| us + 900_000);
        write(&mut snapshot);
        (state, plan) = step(&state, &snapshot, &config, SECOND);
        apply(&mut snapshot, &plan);
    }
    let verdict = plan.verdicts.iter().find(|v| v.group == GroupId(2));
    let entitled = verdict.unwrap().entitlement;
    assert!(entitled > Bytes::mib(50), "{entitled}");
    let bound = high(&snapshot, TENANT).bytes().unwrap();
    assert!(bound > Bytes::mib(700) + entitled, "{bound} {entitled}");
}

/// A state in which the watch has withdrawn limits by weight.
fn withdrawn() -> State {
    let watch = r#"{"watch": {"trials": {"limits": {"withdrawn_s": 1e6}}}}"#;
    serde_json::from_str(watch).unwrap()
}

#[test]
fn while_limits_are_withdrawn_a_tenants_bound_stays_and_another_groups_is_at_least_an_equal_part() {
    let bounds = |state: &State| {
        let mut tenants = beside(400);
        tenants.groups[TENANT].weight = Some(Weight::new(10).unwrap());
        tenants.host.swap = Some(Bytes::mib(500));
        settled_from(state, &mut tenants, 1000);
        (high(&tenants, TENANT), payer(state, 200, 0, 0))
    };
    let (tenant, light) = bounds(&State::default());
    let (tenant_without, light_without) = bounds(&withdrawn());
    assert_eq!(tenant_without, tenant);
    assert_ne!(tenant, Limit::Max);
    assert!(light < light_without, "{light} {light_without}");
    assert!(
        light_without < Limit::Bytes(Bytes::mib(500)),
        "{light_without}"
    );
}

#[test]
fn a_bound_that_a_group_cannot_reach_in_a_step_is_not_written() {
    let far = |own_mib, missed| payer(&withdrawn(), own_mib, 0, missed) == Limit::Max;
    let near =
        [(100, 0), (200, 0), (100, 300 << 20)].map(|(own_mib, missed)| !far(own_mib, missed));
    assert_eq!(near, [false, true, true]);
}

/// The limit of a light group while a third group lacks memory. The light group holds `own_mib` of page cache
/// of its own and `for_others_mib` of a file that the group beside it uses, and misses `missed` bytes in a step.
fn payer(state: &State, own_mib: u64, for_others_mib: u64, missed: u64) -> Limit {
    let mut snapshot = beside(400);
    snapshot.groups.truncate(TENANT);
    let mut payer = group(2, None, "/payer");
    payer.weight = Some(Weight::new(10).unwrap());
    snapshot.groups.push(payer);
    snapshot.groups.push(group(3, None, "/user"));
    snapshot.groups.push(group(4, None, "/app"));
    hold(&mut snapshot, MADE, 0, 10);
    hold(&mut snapshot, HONEST, 0, 300);
    hold(&mut snapshot, TENANT, 0, own_mib + for_others_mib);
    snapshot.host.free = Some(Bytes::ZERO);
    snapshot.shared = Some(vec![SharedFile {
        users: vec![GroupId(2), GroupId(3)],
        held: vec![(GroupId(2), Bytes::mib(for_others_mib))],
    }]);
    settled_missing(state, &mut snapshot, missed);
    high(&snapshot, TENANT)
}

#[test]
fn a_bound_leaves_room_for_what_is_held_for_others() {
    let [with, without] =
        [300, 0].map(|for_others| payer(&State::default(), 100, for_others, 0).bytes());
    let (with, without) = (with.expect("a bound"), without.expect("a bound"));
    assert!(with >= without + Bytes::mib(250), "{with} {without}");
}

/// The limit of a group that reads through 2000 MiB, beside a group of equal weight that lacks memory, and what it is
/// granted. `curve`: it is known that less than 2000 MiB are of no use to it.
fn scan(curve: bool, held_mib: u64, read_per_s: u64) -> (Limit, Bytes) {
    let worth = |hits: &[(u64, f64)]| {
        let point = |&(mib, hit_ratio): &(u64, f64)| Point {
            cache: Bytes::mib(mib),
            hit_ratio,
        };
        Curve::new(hits.iter().map(point).collect(), 40e6)
    };
    let mut snapshot = beside(400);
    snapshot.groups.truncate(TENANT);
    let mut scan = group(2, None, "/scan");
    scan.worth = worth(&[(1999, 0.0), (2000, 1.0)]).filter(|_| curve);
    snapshot.groups.push(scan);
    snapshot.groups.push(group(3, None, "/idle"));
    let mut app = group(4, None, "/app");
    app.worth = worth(&[(450, 0.5), (900, 1.0)]);
    snapshot.groups.push(app);
    hold(&mut snapshot, HONEST, 0, (980 - held_mib).min(930));
    hold(&mut snapshot, TENANT, 0, held_mib);
    let plan = settled_missing(&State::default(), &mut snapshot, read_per_s);
    let mut verdicts = plan.verdicts.iter();
    let granted = verdicts
        .find(|v| v.group == GroupId(2))
        .unwrap()
        .entitlement;
    (high(&snapshot, TENANT), granted)
}

#[test]
fn a_group_that_lends_page_cache_is_bounded_at_what_it_is_granted() {
    let ((lends, granted), (keeps, _)) = (scan(true, 400, 20 << 20), scan(false, 400, 20 << 20));
    assert!(keeps >= Limit::Bytes(Bytes::mib(450)), "{keeps}");
    let descent = Bytes::mib(400).scale(0.75) + Bytes::mib(1);
    assert!(granted < descent, "{granted}");
    assert!(lends <= Limit::Bytes(descent), "{lends}");
    let (lends, granted) = scan(true, granted.0 >> 20, 20 << 20);
    assert!(
        lends <= Limit::Bytes(granted + Bytes::mib(1)),
        "{lends} {granted}"
    );
}

#[test]
fn a_reader_in_lending_that_misses_nothing_has_no_bound_although_it_holds_nearly_its_grant() {
    let (few, granted) = scan(true, 20, 1 << 10);
    let (many, _) = scan(true, 20, 8 << 20);
    assert!(
        granted > Bytes::mib(20) && granted < Bytes::mib(33),
        "{granted}"
    );
    assert_eq!((few, many != Limit::Max), (Limit::Max, true), "{granted}");
}

#[test]
fn a_synced_log_is_bounded_at_what_it_demands_and_stays_so() {
    let mut snapshot = beside(400);
    snapshot.groups.truncate(TENANT);
    snapshot.groups.push(group(2, None, "/log"));
    snapshot.groups.push(group(3, None, "/idle"));
    snapshot.groups.push(group(4, None, "/app"));
    hold(&mut snapshot, MADE, 0, 10);
    let (mut state, config) = (State::default(), Config::default());
    let mut held_mib = 560;
    for at in 0..60 {
        hold(&mut snapshot, HONEST, 0, 980 - held_mib);
        hold(&mut snapshot, TENANT, 0, held_mib);
        let log = &mut snapshot.groups[TENANT];
        log.memory.file_dirty = Some(Bytes::mib(1));
        log.memory.file_mapped = Some(Bytes::mib(1));
        log.pressure.io_some_us = log.pressure.io_some_us.map(|us| us + 900_000);
        log.traffic.write_bytes = log.traffic.write_bytes.map(|bytes| bytes + 9_000_000);
        lack(&mut snapshot, 1000);
        let (next, plan) = step(&state, &snapshot, &config, SECOND);
        apply(&mut snapshot, &plan);
        state = next;
        if let Some(most) = high(&snapshot, TENANT).bytes() {
            held_mib = held_mib.min(most.0 >> 20);
        }
        assert!(at < 40 || held_mib <= 24, "{at} {held_mib}");
    }
}

#[test]
fn unknown_values_move_no_bound() {
    let mut snapshot = beside(400);
    settled(&mut snapshot, 1000);
    let stands = high(&snapshot, TENANT);
    assert_ne!(stands, Limit::Max);
    for unread in [true, false] {
        let mut blind = snapshot.clone();
        if unread {
            blind.groups[TENANT].memory.current = None;
        } else {
            blind.host.file = None;
        }
        let (_, plan) = step(&State::default(), &blind, &Config::default(), SECOND);
        apply(&mut blind, &plan);
        assert_eq!(high(&blind, TENANT), stands);
    }
}

proptest! {
    #[test]
    fn no_bound_is_below_its_share_or_what_it_holds_and_more_weight_never_gives_a_lower_one(
        weights in prop::array::uniform2(1u32..1000),
        heavier in 1u32..1000,
        other_mib in 0u64..600,
        file_mib in 0u64..100,
        honest_mib in 0u64..300,
        refaults in 0u64..2000,
    ) {
        let bound = |weight: u32| {
            let mut snapshot = beside(honest_mib);
            hold(&mut snapshot, TENANT, other_mib, file_mib);
            hold(&mut snapshot, MADE, 0, file_mib);
            snapshot.groups[TENANT].weight = Some(Weight::new(weight).unwrap());
            snapshot.groups[HONEST].weight = Some(Weight::new(weights[1]).unwrap());
            let plan = settled(&mut snapshot, refaults);
            for write in plan.writes.iter().filter(|write| write.knob == Knob::MemoryHigh) {
                let bounded = write.reason == Reason::ShareOfMemory;
                prop_assert!(!bounded || matches!(write.value, Value::Limit(Limit::Bytes(_))));
            }
            Ok(high(&snapshot, TENANT))
        };
        let got = bound(weights[0])?;
        prop_assert!(got >= Limit::Bytes(Bytes::mib(other_mib)));
        let all = Bytes::mib(1000).scale(0.93);
        let share = all.scale(f64::from(weights[0]) / f64::from(weights[0] + weights[1]));
        prop_assert!(got >= Limit::Bytes(share), "{got} {share}");
        let more = bound(weights[0].saturating_add(heavier))?;
        // A change of less than 1/25 is not written.
        let about = got.bytes().map_or(got, |bytes| Limit::Bytes(bytes.scale(0.95)));
        prop_assert!(more >= about, "{more} {got}");
    }
}
