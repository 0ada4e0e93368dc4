//! Table II, and the properties in the module's header.

use proptest::prelude::*;

use super::*;
use crate::snapshot::Host;

const G: Option<Color> = Some(Color::Green);
const Y: Option<Color> = Some(Color::Yellow);
const R: Option<Color> = Some(Color::Red);

fn holder(color: Option<Color>) -> Holder {
    Holder {
        color,
        held: Some(Bytes::mib(100)),
        basis: Some(Bytes::mib(100)),
        least: Bytes::mib(1),
        wants: true,
        fills: None,
        cap: None,
    }
}

fn givers(roles: &[Role]) -> Vec<usize> {
    (0..roles.len())
        .filter(|&i| roles[i] == Role::Gives)
        .collect()
}

/// The givers in mode `proportional` while memory is scarce.
fn scarce_givers(holders: &[Holder], yellow_gives: bool) -> Vec<usize> {
    let roles = roles(ColorRule::Unified, holders, Supply::Scarce, yellow_gives);
    givers(&roles)
}

#[test]
fn the_four_cases_of_table_ii() {
    for (colors, expected) in [
        (vec![G, G], vec![]),
        (vec![G, Y], vec![0]),
        (vec![G, R], vec![0]),
        (vec![G, Y, R], vec![0, 1]),
    ] {
        let holders: Vec<Holder> = colors.iter().map(|&c| holder(c)).collect();
        let scarce = roles(ColorRule::TableII, &holders, Supply::Scarce, true);
        assert_eq!(givers(&scarce), expected, "{colors:?}");
        assert!(givers(&roles(ColorRule::TableII, &holders, Supply::Plenty, true)).is_empty());
        assert!(givers(&roles(ColorRule::TableII, &holders, Supply::Between, true)).is_empty());
    }
    let without_yellow = roles(
        ColorRule::TableII,
        &[G, Y, R].map(holder),
        Supply::Scarce,
        false,
    );
    assert_eq!(givers(&without_yellow), [0]);
}

#[test]
fn yellow_gives_only_when_no_green_can_give_more() {
    let mut holders = [G, Y, R].map(holder);
    assert_eq!(scarce_givers(&holders, true), [0]);
    holders[0].cap = Some(Bytes::mib(1));
    assert_eq!(scarce_givers(&holders, true), [0, 1]);
    holders[0].held = None;
    assert_eq!(scarce_givers(&holders, true), [0, 1]);
    assert_eq!(scarce_givers(&holders[1..], true), [0]);
    assert!(scarce_givers(&holders[1..], false).is_empty());
}

#[test]
fn without_a_red_that_wants_more_nothing_is_taken() {
    let mut holders = [G, Y, R].map(holder);
    holders[2].wants = false;
    assert!(scarce_givers(&holders, true).is_empty());
    assert!(scarce_givers(&holders[..2], true).is_empty());
}

#[test]
fn a_taking_is_two_percent_and_comes_back_as_slowly() {
    let mut green = holder(G);
    green.cap = green.moved(Role::Gives, true, 2.0);
    assert_eq!(green.cap, Some(Bytes::mib(98)));
    assert_eq!(green.moved(Role::Gives, false, 2.0), green.cap, "not due");
    green.held = green.cap;
    let back = green.moved(Role::Recovers, true, 2.0);
    assert_eq!(back, Some(Bytes::mib(100)));
    // The cap no longer presses.
    green.held = Some(Bytes::mib(40));
    assert_eq!(green.moved(Role::Recovers, true, 2.0), None);
    assert_eq!(green.moved(Role::Free, false, 2.0), None);
}

#[test]
fn no_more_is_taken_than_the_groups_that_want_it_can_fill() {
    let mut holders = [G, G, Y, R, R].map(holder);
    let percent = |holders: &[Holder]| {
        let roles = roles(ColorRule::Unified, holders, Supply::Scarce, true);
        (100.0 * giving_rate(holders, &roles, 2.0)).round() as u32
    };
    holders[3].fills = Some(Bytes::mib(2));
    assert_eq!(percent(&holders), 100, "not known of all");
    holders[4].fills = Some(Bytes::ZERO);
    assert_eq!(percent(&holders), 50, "the yellow one does not give");
    holders[3].wants = false;
    assert_eq!(percent(&holders), 6, "nothing is taken for it");
    holders[4].fills = Some(Bytes::mib(4));
    assert_eq!(percent(&holders), 100);
    holders[4].fills = Some(Bytes::mib(400));
    assert_eq!(percent(&holders), 100);
}

#[test]
fn a_cap_that_the_kernel_has_not_followed_comes_down_no_further() {
    let mut green = holder(G);
    green.cap = Some(Bytes::mib(60));
    assert_eq!(green.moved(Role::Gives, true, 2.0), green.cap);
}

#[test]
fn a_period_is_taken_once_however_steps_jitter() {
    for jitter in [0.93, 0.999, 1.0, 1.004] {
        let (mut since, mut taken) = (0.0, 0);
        for _ in 0..1000 {
            let (now, left) = due(since, jitter, 1.0);
            since = left;
            taken += u32::from(now);
        }
        // At most one taking per step.
        let expected = (1000.0 * jitter).min(1000.0);
        assert!(
            (f64::from(taken) - expected).abs() <= 1.0,
            "{jitter}: {taken}"
        );
    }
    let (mut since, mut taken) = (0.0, 0);
    for _ in 0..100 {
        let (now, left) = due(since, 1.0, 10.0);
        since = left;
        taken += u32::from(now);
    }
    assert_eq!(taken, 10);
    let (now, left) = due(0.0, 3600.0, 1.0);
    assert!(now && left <= 0.5, "a pause is one period: {left}");
}

#[test]
fn an_unknown_size_moves_nothing() {
    let supply = Supply::of_page_cache(&Host::default(), Bytes::ZERO);
    assert_eq!(supply, Supply::Between);
    assert_eq!(Supply::of_memory(&Host::default()), Supply::Between);
    let mut green = holder(G);
    green.cap = Some(Bytes::mib(60));
    green.held = None;
    for role in [Role::Gives, Role::Recovers, Role::Stays] {
        assert_eq!(green.moved(role, true, 2.0), green.cap);
    }
}

fn colors() -> impl Strategy<Value = Option<Color>> {
    prop::sample::select(vec![G, Y, R, None])
}

proptest! {
    #[test]
    fn nobody_gives_fast_nor_below_its_floor_nor_while_red(
        history in prop::collection::vec((colors(), colors(), 0u64..1500, any::<bool>()), 1..100),
    ) {
        let mut cap: Option<Bytes> = None;
        let mut held = Bytes::mib(200);
        for (color, other, free, due) in history {
            let least = Bytes::mib(20);
            let one = Holder { color, held: Some(held), basis: Some(held), least, cap, ..holder(color) };
            let host = Host {
                file: Some(Bytes::mib(3200)),
                free: Some(Bytes::mib(free)),
                high_watermark: Some(Bytes::ZERO),
                ..Host::default()
            };
            let supply = Supply::of_page_cache(&host, Bytes::ZERO);
            let holders = [one, holder(other)];
            let role = roles(ColorRule::Unified, &holders, supply, true)[0];
            let next = one.moved(role, due, 2.0);
            if color.is_none() || color == R {
                prop_assert_eq!(next, None);
            }
            if let Some(next) = next {
                let from = cap.map_or(held, |cap| cap.min(held));
                prop_assert!(next >= least);
                prop_assert!(next >= from - held.scale(0.02) || next == least);
            }
            cap = next;
            // The kernel follows; free groups grow.
            held = cap.map_or(held + Bytes::mib(5), |cap| cap.min(held + Bytes::mib(5)));
        }
    }
}
