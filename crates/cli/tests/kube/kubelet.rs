//! Runs the kubelet itself: standalone with static pods, under systemd (cgroup driver systemd).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::common::said;
use crate::{fetched, of, with_runtime};

const SERVICES: &str = include_str!("../services.sh");
const SCRIPT: &str = include_str!("kubelet.sh");

/// Weight and source of each pod and container, by its name on the node `node`.
fn weights(status: &Value) -> BTreeMap<String, (u64, String)> {
    let groups = status["groups"].as_array().expect("a list").iter();
    let named = groups.filter_map(|group| {
        group["namespace"].as_str()?;
        let name = group["name"].as_str()?.replacen("-node", "", 1);
        let source = group["weight_source"].as_str()?;
        Some((name, of(group["weight"].as_u64()?, source)))
    });
    named.collect()
}

/// Asserts the weights of pods and of their containers `main`; a weight without a source is a container's
/// default.
#[track_caller]
fn assert_weights(status: &Value, wanted: &[(&str, u64, &str)]) {
    let weights = weights(status);
    for &(name, weight, source) in wanted {
        assert_eq!(
            weights.get(name),
            Some(&of(weight, source)),
            "{name}: {weights:?}"
        );
    }
}

#[test]
#[ignore = "boots a virtual machine; scripts/test --long runs it"]
fn the_kubelets_pods_have_their_weights_and_its_writes_take_no_knob_from_the_agent() {
    let kubelet = fetched().join("kubelet");
    assert!(
        kubelet.is_file(),
        "{} is not there: scripts/setup --kubernetes compiles it",
        kubelet.display()
    );
    let dir = tempfile::tempdir().unwrap();
    let mut spec = with_runtime(&format!("{SERVICES}{SCRIPT}"), dir.path());
    spec.binaries.push(kubelet);
    spec.extra_packages.push("systemd".into());
    spec.memory_bytes = 1536 << 20;
    spec.data_bytes = 2 << 30;
    spec.disk_mbps = Some(20);
    spec.timeout = Duration::from_secs(3600);
    let said = said(&spec, "");

    let first = [
        ("shop/db", 700, "pod_annotation"),
        ("shop/db/main", 300, "pod_annotation"),
        ("shop/web", 600, "pod_annotation"),
        ("shop/web/main", 100, "default"),
        ("shop/plain", 200, "qos_class"),
        ("dev/web", 200, "pod_cap"),
        ("dev/batch", 50, "qos_class"),
    ];
    assert_weights(&said.json("told"), &first);
    assert_weights(&said.json("minutes"), &first);
    let mut changed = first;
    changed[2] = ("shop/web", 500, "pod_annotation");
    assert_weights(&said.json("changed"), &changed);
    assert_eq!(
        weights(&said.json("restarted")),
        weights(&said.json("changed"))
    );
    assert_weights(&said.json("late"), &[("shop/late", 120, "pod_annotation")]);
    let recorded = [
        ("shop/db", 400, "qos_class"),
        ("shop/web", 200, "qos_class"),
        ("shop/plain", 200, "qos_class"),
        ("dev/web", 200, "qos_class"),
        ("dev/batch", 50, "qos_class"),
        ("dev/batch/main", 100, "default"),
    ];
    assert_weights(&said.json("recorded"), &recorded);
    let passed = [
        ("shop/db", 350, "pod_annotation"),
        ("shop/db/main", 310, "pod_annotation"),
    ];
    assert_weights(&said.json("passed"), &passed);

    let steps = said.text("steps");
    for step in [
        "the kubelet reserves memory",
        "weights hold\n",
        "weights hold beside the kubelet's writes",
        "a changed file makes another pod",
        "weights hold for it",
        "the pods outlive the kubelet's restart",
        "weights hold after it",
        "a pod comes",
        "every knob is as before, but for the kubelet's reservation for the new pod",
        "every knob is as before\n",
        "weights hold without NRI",
        "an annotation is read from the records",
        "every knob is as before once more",
    ] {
        assert!(steps.contains(step), "not there: {step}\n{steps}");
    }
    assert!(!steps.contains("FAILED"), "{steps}");
    let log = said.text("justitia.log");
    for trouble in ["panicked", "left alone from now on"] {
        assert!(!log.contains(trouble), "{trouble}\n{log}");
    }
}
