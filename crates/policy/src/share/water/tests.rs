//! The properties in the module's header.

use proptest::prelude::*;

use super::*;

fn leaf(weight: u64) -> Node {
    Node {
        parent: None,
        weight: Some(weight),
        floor: Bytes::ZERO,
        demand: None,
    }
}

/// Up to 24 nodes, each below an earlier one or at the top.
fn trees() -> impl Strategy<Value = Vec<Node>> {
    let node = (
        any::<prop::sample::Index>(),
        prop::option::weighted(0.8, 1u64..=10_000),
        0u64..1 << 24,
        prop::option::of(0u64..1 << 32),
        prop::bool::weighted(0.6),
    );
    prop::collection::vec(node, 1..24).prop_map(|raw| {
        raw.iter()
            .enumerate()
            .map(|(i, (parent, weight, floor, demand, top))| Node {
                parent: (!*top && i > 0).then(|| parent.index(i)),
                weight: Some(weight.unwrap_or(100)),
                floor: Bytes(*floor),
                demand: demand.map(Bytes),
            })
            .collect()
    })
}

fn leaves(nodes: &[Node]) -> Vec<usize> {
    (0..nodes.len())
        .filter(|&i| nodes.iter().all(|n| n.parent != Some(i)))
        .collect()
}

/// Each node's cap. An unbounded one is larger than any total here, but small enough to be summed.
fn caps(nodes: &[Node]) -> Vec<u64> {
    let mut below: Vec<Option<(u64, u64)>> = vec![None; nodes.len()];
    let mut caps = vec![0; nodes.len()];
    for (i, node) in nodes.iter().enumerate().rev() {
        let (floor, most) = below[i].unwrap_or((node.floor.0, 1 << 40));
        caps[i] = most.min(node.demand.map_or(most, |demand| demand.0.max(floor)));
        if let Some(parent) = node.parent {
            let sum = below[parent].get_or_insert_default();
            *sum = (sum.0 + floor, sum.1 + caps[i]);
        }
    }
    caps
}

#[test]
fn a_node_without_weight_gets_its_floor_even_if_there_is_more() {
    let weightless = Node {
        floor: Bytes(3),
        ..Node::flat(0, Bytes(10))
    };
    let nodes = [weightless, Node::flat(1, Bytes(20))];
    assert_eq!(divide(Bytes(12), &nodes), [Bytes(3), Bytes(9)]);
    assert_eq!(divide(Bytes(100), &nodes), [Bytes(3), Bytes(20)]);
}

#[test]
fn thresholds_of_the_papers_example_make_app2_the_victim() {
    // Figure 7: weights 100/200/400/800 hold 1/6/1/2 of 10 pages.
    let page = 4096;
    let nodes = [100, 200, 400, 800].map(leaf);
    let thresholds = divide(Bytes(10 * page), &nodes);
    let pages: Vec<f64> = thresholds
        .iter()
        .map(|t| t.as_f64() / page as f64)
        .collect();
    for (got, paper) in pages.iter().zip([0.67, 1.33, 2.67, 5.33]) {
        assert!((got - paper).abs() < 0.01, "{pages:?}");
    }
    let overage: Vec<f64> = [1.0, 6.0, 1.0, 2.0]
        .iter()
        .zip(&pages)
        .map(|(n, t)| n - t)
        .collect();
    let victim = (0..4)
        .max_by(|&a, &b| overage[a].total_cmp(&overage[b]))
        .unwrap();
    assert_eq!(victim, 1, "APP2 is reclaimed first: {overage:?}");
}

#[test]
fn a_satisfied_groups_rest_goes_to_the_others_by_weight() {
    let mut nodes = [100, 200, 800].map(leaf);
    nodes[2].demand = Some(Bytes(30));
    assert_eq!(
        divide(Bytes(330), &nodes),
        [Bytes(100), Bytes(200), Bytes(30)]
    );
}

#[test]
fn an_ancestor_without_a_weight_is_transparent() {
    // Two slices without a weight, one with children of 100 and 200, the other with one of 300, count as if
    // all three children were siblings.
    let slice = Node {
        parent: None,
        weight: None,
        floor: Bytes::ZERO,
        demand: None,
    };
    let child = |parent, weight| Node {
        parent: Some(parent),
        ..leaf(weight)
    };
    let nodes = [slice, slice, child(0, 100), child(0, 200), child(1, 300)];
    assert_eq!(
        divide(Bytes(600), &nodes),
        [Bytes(300), Bytes(300), Bytes(100), Bytes(200), Bytes(300)]
    );
    assert_eq!(proportions(&nodes)[2..], [1.0 / 6.0, 1.0 / 3.0, 0.5]);
}

#[test]
fn floors_that_do_not_fit_are_cut_in_proportion() {
    let mut nodes = [100, 100].map(leaf);
    nodes[0].floor = Bytes(300);
    nodes[1].floor = Bytes(100);
    assert_eq!(divide(Bytes(200), &nodes), [Bytes(150), Bytes(50)]);
}

proptest! {
    #[test]
    fn conservation_to_the_byte(nodes in trees(), total in 0u64..1 << 34) {
        let got = divide(Bytes(total), &nodes);
        let handed_out: u64 = leaves(&nodes).iter().map(|&i| got[i].0).sum();
        let caps = caps(&nodes);
        let wanted: u64 = (0..nodes.len()).filter(|&i| nodes[i].parent.is_none()).map(|i| caps[i]).sum();
        prop_assert_eq!(handed_out, total.min(wanted));
        for i in 0..nodes.len() {
            let children: Vec<usize> =
                (0..nodes.len()).filter(|&c| nodes[c].parent == Some(i)).collect();
            prop_assert!(got[i].0 <= caps[i]);
            if !children.is_empty() {
                prop_assert_eq!(got[i].0, children.iter().map(|&c| got[c].0).sum::<u64>());
            }
        }
    }

    #[test]
    fn floors_that_fit_are_held(nodes in trees(), extra in 0u64..1 << 32) {
        let floors: u64 = leaves(&nodes).iter().map(|&i| nodes[i].floor.0).sum();
        let got = divide(Bytes(floors + extra), &nodes);
        for i in leaves(&nodes) {
            prop_assert!(got[i] >= nodes[i].floor);
        }
    }

    #[test]
    fn more_weight_never_gets_less(
        nodes in trees(), total in 0u64..1 << 34, which in any::<prop::sample::Index>(),
        more in 1u64..5_000,
    ) {
        let i = which.index(nodes.len());
        let before = divide(Bytes(total), &nodes)[i];
        let mut heavier = nodes.clone();
        heavier[i].weight = heavier[i].weight.map(|w| w + more);
        prop_assert!(divide(Bytes(total), &heavier)[i] >= before);
    }

    #[test]
    fn only_the_ratio_of_weights_matters(
        nodes in trees(), total in 0u64..1 << 34, factor in 2u64..1_000,
    ) {
        let scaled: Vec<Node> =
            nodes.iter().map(|n| Node { weight: n.weight.map(|w| w * factor), ..*n }).collect();
        prop_assert_eq!(divide(Bytes(total), &nodes), divide(Bytes(total), &scaled));
    }

    #[test]
    fn a_sibling_below_its_demand_stands_at_the_level_of_the_others(
        weights in prop::collection::vec(1u64..10_000, 2..12), total in 0u64..1 << 34,
    ) {
        let nodes: Vec<Node> = weights.iter().map(|&w| leaf(w)).collect();
        let got = divide(Bytes(total), &nodes);
        let whole: f64 = weights.iter().map(|&w| w as f64).sum();
        for (bytes, &w) in got.iter().zip(&weights) {
            prop_assert!((bytes.as_f64() - total as f64 * w as f64 / whole).abs() <= 1.0);
        }
    }
}
