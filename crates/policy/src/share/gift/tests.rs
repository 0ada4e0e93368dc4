//! The properties in the module's header.

use proptest::prelude::*;

use super::*;
use crate::color::{Channel, Color, Declared, Standing};
use crate::decision::Memo;
use crate::feedback::working_set::{Period, WorkingSet};
use crate::snapshot::Group;
use crate::tests::testing::{self, group};
use crate::units::{Limit, Weight};

const TOTAL: Bytes = Bytes::mib(900);

/// A group as a test describes it.
#[derive(Debug, Clone, Copy)]
struct Tenant {
    weight: u32,
    held: u64,
    cap: Option<u64>,
    /// The footprint with which it was satisfied.
    set: Option<u64>,
    /// The operator's limit.
    max: Option<u64>,
    /// It demands all that it can get, unless it has a cap.
    writes: bool,
}

/// A group without a cap, and without a working set.
fn tenant(weight: u32, held: u64) -> Tenant {
    Tenant {
        weight,
        held,
        cap: None,
        set: None,
        max: None,
        writes: false,
    }
}

fn giver(weight: u32, held: u64, cap: u64) -> Tenant {
    Tenant {
        cap: Some(cap),
        ..tenant(weight, held)
    }
}

fn lacking(weight: u32, held: u64, set: u64) -> Tenant {
    Tenant {
        set: Some(set),
        ..tenant(weight, held)
    }
}

/// Learned at a turn to red.
fn learned(set: Bytes) -> WorkingSet {
    let good = Period {
        color: Some(Color::Green),
        footprint: Some(set),
        taken: true,
        ..Period::default()
    };
    let red = Period {
        color: Some(Color::Red),
        ..good
    };
    WorkingSet::default().after(&good, 1.0).after(&red, 1.0)
}

/// The groups, the first `inside` of them below one whose limit is `most`.
fn groups(tenants: &[Tenant], inside: usize, most: Limit) -> Vec<Group> {
    let mut slice = group(1, None, "/slice");
    slice.weight = None;
    let held = tenants[..inside].iter().map(|tenant| tenant.held);
    slice.memory.file = Some(Bytes::mib(held.sum()));
    slice.memory.current = slice.memory.file;
    slice.knobs.max = Some(most);
    let leaf = |(id, tenant): (u64, &Tenant)| {
        let parent = (id < 2 + inside as u64).then_some(1);
        let mut leaf = group(id, parent, &format!("/{id}"));
        leaf.weight = Weight::new(tenant.weight).ok();
        leaf.memory.file = Some(Bytes::mib(tenant.held));
        leaf.memory.current = leaf.memory.file;
        let max = tenant.max.map(Bytes::mib);
        leaf.knobs.max = Some(max.map_or(Limit::Max, Limit::Bytes));
        let says = tenant.set.is_some() || tenant.cap.is_some();
        let green = tenant.cap.is_some();
        leaf.declared = says.then(|| Declared {
            standing: Standing::Fresh,
            color: Some(if green { Color::Green } else { Color::Red }),
            channel: Channel::Xattr,
            unchanged_s: 0.5,
            reason: String::new(),
        });
        leaf
    };
    [slice]
        .into_iter()
        .chain((2..).zip(tenants).map(leaf))
        .collect()
}

/// Each tenant's entitlement, and what it would be with demands alone.
fn divided(tenants: &[Tenant], inside: usize, most: Limit) -> (Vec<Bytes>, Vec<Bytes>) {
    let snapshot = testing::snapshot(900, groups(tenants, inside, most));
    let mut members = Member::all(&snapshot, Memo::new);
    super::super::measure(&mut members, &snapshot.host, Bytes::ZERO);
    for (member, tenant) in members[1..].iter_mut().zip(tenants) {
        let memo = &mut member.memo;
        memo.cap = tenant.cap.map(Bytes::mib);
        let grown = demand::growing(Bytes::mib(tenant.held));
        let grown = Some(grown).filter(|_| !tenant.writes);
        let most = memo.cap.into_iter().chain(member.decision.ceiling);
        memo.demand = most.chain(grown).min();
        if let Some(set) = tenant.set {
            memo.working_set = learned(Bytes::mib(set));
        }
    }
    members[0].memo.demand = members[0].decision.ceiling;
    let by_weight = divide(TOTAL, &members, |m| m.memo.demand);
    let given = give(&members, TOTAL).unwrap_or_else(|| by_weight.clone());
    (given[1..].to_vec(), by_weight[1..].to_vec())
}

fn given(tenants: &[Tenant]) -> Vec<u64> {
    let (given, _) = divided(tenants, 0, Limit::Max);
    given.iter().map(|bytes| bytes.0 >> 20).collect()
}

#[test]
fn the_gift_goes_to_the_group_that_lacks_least_for_its_weight_and_then_to_the_next() {
    // Own shares of 225 MiB each. The giver gives 60 MiB.
    let tenants = [
        giver(100, 225, 165),
        lacking(100, 240, 265),
        lacking(100, 240, 245),
        tenant(100, 240),
    ];
    assert_eq!(given(&tenants), [165, 265, 245, 225]);
    // Own shares of 200, 300, 200 and 200 MiB. The giver gives 30 MiB, and can give more. The heavy one
    // lacks 45 MiB, and the other 35, which is more for its weight.
    let heavy = [
        giver(100, 225, 170),
        lacking(100, 240, 235),
        lacking(150, 320, 345),
        tenant(100, 240),
    ];
    assert_eq!(given(&heavy), [170, 200, 330, 200]);
}

#[test]
fn a_group_keeps_what_satisfies_it_when_it_has_turned_green() {
    let satisfied = Tenant {
        cap: Some(260),
        ..lacking(100, 260, 250)
    };
    let tenants = [
        giver(100, 225, 165),
        satisfied,
        tenant(100, 240),
        tenant(100, 240),
    ];
    assert_eq!(given(&tenants), [165, 250, 242, 242]);
}

#[test]
fn a_group_that_lacks_more_than_can_be_given_gets_its_part_by_weight() {
    let mut tenants = [
        giver(100, 225, 165),
        lacking(100, 290, 700),
        tenant(100, 290),
    ];
    assert_eq!(given(&tenants), [165, 367, 367]);
    tenants[1].set = Some(390);
    assert_eq!(given(&tenants), [165, 370, 364]);
    tenants[1].set = Some(450);
    assert_eq!(
        given(&tenants),
        [165, 370, 364],
        "it lacks more than is given now"
    );
    tenants[0].set = Some(160);
    assert_eq!(
        given(&tenants),
        [165, 367, 367],
        "the giver needs the rest itself"
    );
}

fn tenants() -> impl Strategy<Value = Vec<Tenant>> {
    let mib = || proptest::option::of(0..900_u64);
    let parts = (1..1000_u32, 0..500_u64, mib(), mib(), mib(), any::<bool>());
    let tenants = parts.prop_map(|(weight, held, cap, set, max, writes)| Tenant {
        cap,
        set,
        max,
        writes,
        ..tenant(weight, held)
    });
    proptest::collection::vec(tenants, 1..8)
}

proptest! {
    #[test]
    fn all_is_divided_and_no_group_without_a_cap_gets_less_than_without_gifts(
        tenants in tenants(),
        inside in 0..8_usize,
        most in 1..900_u64,
    ) {
        let (inside, most) = (inside.min(tenants.len()), Limit::Bytes(Bytes::mib(most)));
        let (given, by_weight) = divided(&tenants, inside, most);
        let sum = |of: &[Bytes]| of.iter().copied().sum::<Bytes>();
        prop_assert_eq!(sum(&given), sum(&by_weight));
        let mut nobody_gives = tenants.clone();
        for tenant in &mut nobody_gives {
            tenant.cap = None;
        }
        let (own, _) = divided(&nobody_gives, inside, most);
        for (i, tenant) in tenants.iter().enumerate().filter(|(_, t)| t.cap.is_none()) {
            prop_assert!(given[i] + Bytes(8) >= own[i], "{}: {} {} {:?}", i, given[i], own[i], tenant);
        }
    }
}
