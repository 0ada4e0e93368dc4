//! The entitlement of each container: its share by weight among the containers that worked.
//!
//! For containers that always work this is `w_i / W`, nested or not: the guest gives a group that contains
//! containers the sum of their weights. Pauses change it: a container that pauses lends its share, to its
//! siblings first. The entitlement is therefore counted second by second among the containers whose duty
//! cycle has them working, in proportion to the bytes moved. So do an experiment's events, which also change
//! weights.

use std::collections::BTreeMap;

use crate::experiments::containers::ContainerSpec;
use crate::experiments::Event;

/// Resolution at which shares become the integer weights of the metrics.
const RESOLUTION: f64 = 1_000_000.0;

/// Share of each container among those that work, 0 to 1; all 0 if none works.
pub fn shares(containers: &[ContainerSpec], working: &[bool]) -> Vec<f64> {
    let members: Vec<Member<'_>> = containers
        .iter()
        .zip(working)
        .enumerate()
        .map(|(index, (container, &working))| Member {
            index,
            path: container.name.split('/').collect(),
            weight: f64::from(container.weight),
            working,
        })
        .collect();
    let mut shares = vec![0.0; containers.len()];
    divide(&members.iter().collect::<Vec<_>>(), 0, 1.0, &mut shares);
    shares
}

/// Shares from an event on.
pub fn shares_after(containers: &[ContainerSpec], event: &Event) -> Vec<f64> {
    let working: Vec<bool> = event.weights.iter().map(Option::is_some).collect();
    let weights = containers.iter().zip(&event.weights);
    let changed = weights.map(|(container, weight)| ContainerSpec {
        weight: weight.unwrap_or(container.weight),
        ..container.clone()
    });
    shares(&changed.collect::<Vec<_>>(), &working)
}

/// A container as a leaf of the tree.
struct Member<'a> {
    index: usize,
    path: Vec<&'a str>,
    weight: f64,
    working: bool,
}

/// Divides `share` among the children at one level of the tree, those with a working container.
fn divide(members: &[&Member<'_>], level: usize, share: f64, shares: &mut [f64]) {
    let mut children: BTreeMap<&str, Vec<&Member<'_>>> = BTreeMap::new();
    for member in members {
        children.entry(member.path[level]).or_default().push(member);
    }
    children.retain(|_, group| group.iter().any(|member| member.working));
    let weight = |group: &[&Member<'_>]| group.iter().map(|member| member.weight).sum::<f64>();
    let total: f64 = children.values().map(|group| weight(group)).sum();
    for group in children.values() {
        let part = share * weight(group) / total;
        match group.iter().find(|member| member.path.len() == level + 1) {
            Some(leaf) => shares[leaf.index] = part,
            None => divide(group, level + 1, part, shares),
        }
    }
}

/// True if the duty cycle of a container has it working at the given time.
pub fn works_at(container: &ContainerSpec, time_s: f64) -> bool {
    match container.duty_s {
        None | Some(0) => true,
        Some(duty) => (time_s / f64::from(duty)).floor().rem_euclid(2.0) < 1.0,
    }
}

/// Whether all containers work all the time, with one weight.
fn constant(containers: &[ContainerSpec], events: &[Event]) -> bool {
    events.is_empty() && containers.iter().all(|one| one.duty_s.is_none())
}

/// Share of each container at a time: after the last event, or by the duty cycles.
pub fn shares_at(containers: &[ContainerSpec], events: &[Event], time_s: f64) -> Vec<f64> {
    let past = events.iter().rev().find(|event| event.at_s <= time_s);
    if let Some(event) = past {
        return shares_after(containers, event);
    }
    let working: Vec<bool> = containers.iter().map(|c| works_at(c, time_s)).collect();
    shares(containers, &working)
}

/// Entitlement of each container over intervals of `(middle in seconds, bytes moved by all)`.
pub fn over_time(
    containers: &[ContainerSpec],
    events: &[Event],
    intervals: &[(f64, f64)],
) -> Vec<f64> {
    if constant(containers, events) {
        return shares(containers, &vec![true; containers.len()]);
    }
    let mut entitled = vec![0.0; containers.len()];
    let mut all = 0.0;
    for &(time_s, bytes) in intervals {
        let shares = shares_at(containers, events, time_s);
        for (sum, share) in entitled.iter_mut().zip(shares) {
            *sum += share * bytes;
        }
        all += bytes;
    }
    if all > 0.0 {
        for sum in &mut entitled {
            *sum /= all;
        }
    }
    entitled
}

/// Weights for the metrics: the containers' own if shares follow from them directly, otherwise the shares in
/// millionths.
pub fn effective_weights(
    containers: &[ContainerSpec],
    events: &[Event],
    shares: &[f64],
) -> Vec<u32> {
    if constant(containers, events) {
        return containers
            .iter()
            .map(|container| container.weight)
            .collect();
    }
    shares
        .iter()
        .map(|share| (share * RESOLUTION).round().max(1.0) as u32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, weight: u32, duty_s: Option<u32>) -> ContainerSpec {
        ContainerSpec {
            name: name.into(),
            weight,
            duty_s,
            ..ContainerSpec::default()
        }
    }

    fn near(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9)
    }

    #[test]
    fn side_by_side_a_share_is_the_weight_over_all_weights() {
        let containers = [container("a", 100, None), container("b", 300, None)];
        assert!(near(&shares(&containers, &[true, true]), &[0.25, 0.75]));
        assert_eq!(
            effective_weights(&containers, &[], &[0.25, 0.75]),
            [100, 300]
        );
    }

    #[test]
    fn nesting_changes_nothing_while_all_work() {
        let containers = [
            container("t/a", 100, None),
            container("t/b", 300, None),
            container("c", 400, None),
        ];
        assert!(near(&shares(&containers, &[true; 3]), &[0.125, 0.375, 0.5]));
        assert_eq!(
            effective_weights(&containers, &[], &[0.125, 0.375, 0.5]),
            [100, 300, 400]
        );
    }

    #[test]
    fn a_pausing_container_lends_to_its_siblings_first() {
        let containers = [
            container("t/a", 100, None),
            container("t/b", 300, Some(5)),
            container("c", 400, None),
        ];
        assert!(near(
            &shares(&containers, &[true, false, true]),
            &[0.5, 0.0, 0.5]
        ));
        assert!(near(
            &shares(&containers, &[false, false, true]),
            &[0.0, 0.0, 1.0]
        ));
        assert_eq!(
            effective_weights(&containers, &[], &[0.3, 0.2, 0.5]),
            [300_000, 200_000, 500_000]
        );
    }

    #[test]
    fn a_pausing_container_lends_its_share() {
        let containers = [container("a", 100, None), container("b", 300, Some(10))];
        let intervals: Vec<(f64, f64)> = (0..20).map(|s| (f64::from(s) + 0.5, 1.0)).collect();
        assert!(near(
            &over_time(&containers, &[], &intervals),
            &[0.625, 0.375]
        ));
    }

    #[test]
    fn ideals_follow_the_events() {
        let containers = [container("a", 100, None), container("b", 300, None)];
        let event = |at_s: f64, weights: [Option<u32>; 2]| Event {
            name: "event",
            at_s,
            weights: weights.into(),
        };
        let events = [
            event(0.0, [None, Some(300)]),
            event(10.0, [Some(300), Some(300)]),
        ];
        let at = |time_s: f64| shares_at(&containers, &events, time_s);
        assert!(near(&at(9.0), &[0.0, 1.0]) && near(&at(10.0), &[0.5, 0.5]));
        let intervals = [(5.0, 1.0), (15.0, 3.0)];
        assert!(near(
            &over_time(&containers, &events, &intervals),
            &[0.375, 0.625]
        ));
        assert_eq!(
            effective_weights(&containers, &events, &[0.375, 0.625]),
            [375_000, 625_000]
        );
    }

    #[test]
    fn shares_of_nobody_are_nothing() {
        assert!(near(&shares(&[container("a", 1, None)], &[false]), &[0.0]));
        assert!(near(&shares(&[], &[]), &[]));
    }
}
