//! Every tree comes back as it was, whatever was before it; no bytes make decoding panic.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Encodes a sequence of trees and decodes it; gives the bytes of each.
fn there_and_back(trees: &[Value]) -> Vec<usize> {
    let mut writer = Writer::default();
    let mut reader = Reader::default();
    let mut before: Option<&Value> = None;
    let mut decoded = Value::Null;
    let mut lengths = Vec::new();
    for tree in trees {
        let mut encoded = Bytes::default();
        writer.put(&mut encoded, tree, before);
        let mut bytes = Vec::new();
        encoded.append_to(&mut bytes);
        reader
            .take(&bytes, &mut decoded, before.is_some())
            .unwrap_or_else(|| panic!("{tree} after {before:?}: {bytes:?}"));
        assert!(identical(&decoded, tree), "{decoded} is not {tree}");
        before = Some(tree);
        lengths.push(bytes.len());
    }
    lengths
}

#[test]
fn numbers_come_back_bit_for_bit() {
    let floats = [
        0.0,
        -0.0,
        0.1,
        1.0,
        f64::MIN_POSITIVE,
        5e-324,
        f64::MAX,
        -1.0e-9,
    ];
    let wholes = [0, 1, 4096, 4097, u64::MAX, 1 << 63, 3];
    let mut trees: Vec<Value> = floats.iter().map(|&float| json!(float)).collect();
    trees.extend(wholes.iter().map(|&whole| json!(whole)));
    trees.extend([json!(-1), json!(i64::MIN), json!(0), json!(0.0), json!(7)]);
    there_and_back(&trees);
    trees.reverse();
    there_and_back(&trees);
}

#[test]
fn what_does_not_change_costs_next_to_nothing() {
    let group = |id: u64, read: u64| json!({"id": id, "path": format!("/app/{id}"), "traffic": {"read": read, "written": 7}});
    let tree = |read| json!({"groups": [group(1, 10), group(2, read), group(3, 30)]});
    let lengths = there_and_back(&[tree(20), tree(20), tree(21)]);
    assert_eq!(lengths[1], 2);
    assert!(lengths[2] < 12, "{lengths:?}");
}

#[test]
fn groups_that_come_and_go_are_followed() {
    let group = |id: u64| json!({"id": id, "path": format!("/a/rather/long/path/{id}"), "n": id});
    let tree = |ids: &[u64]| Value::Array(ids.iter().map(|&id| group(id)).collect());
    let lengths = there_and_back(&[
        tree(&[1, 2, 3, 4, 5]),
        tree(&[1, 3, 4, 5]),
        tree(&[9, 1, 3, 4, 5]),
        tree(&[5, 4, 3, 1]),
        tree(&[]),
        tree(&[1, 1]),
        tree(&[1, 1, 1]),
    ]);
    assert!(lengths[1] < 15 && lengths[3] < 20, "{lengths:?}");
}

#[test]
fn a_tree_may_become_any_other() {
    let trees = [
        json!(null),
        json!([1, 2.5, "a"]),
        json!({"why": "threshold", "file": 4096}),
        json!({"why": "above_share", "gain": 1.5}),
        json!([[1, 2], [3, 4]]),
        json!([[1, 2], [3, 5], [6, 7]]),
        json!("why"),
        json!(true),
    ];
    for a in &trees {
        for b in &trees {
            there_and_back(&[a.clone(), b.clone(), a.clone()]);
        }
    }
}

#[test]
fn endless_nesting_is_refused() {
    // 200,000 bytes of tokens, no numbers.
    let bytes = [&[0xc0, 0x9a, 0x0c][..], &[ARRAY, 1].repeat(100_000)].concat();
    assert_eq!(
        Reader::default().take(&bytes, &mut Value::Null, false),
        None
    );
}

/// Trees of a few shapes, so that neighbors often resemble each other.
fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..20_u64).prop_map(|n| Value::from(n * 4096)),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("id"),
        Just("group"),
        Just("knob"),
        Just("x"),
        Just("y")
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            proptest::collection::vec((name.clone(), inner), 0..5).prop_map(|fields| {
                let fields = fields.into_iter();
                Value::Object(fields.map(|(name, v)| (name.to_owned(), v)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_trees_come_back(trees in proptest::collection::vec(tree(), 1..5)) {
        there_and_back(&trees);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, mut before in tree()) {
        let _ = Reader::default().take(&bytes, &mut before, true);
    }

    #[test]
    fn zigzag_is_undone(number: u64) {
        prop_assert_eq!(unzigzag(zigzag(number)), number);
    }
}
