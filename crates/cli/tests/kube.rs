//! Tests Kubernetes pods with a real containerd or CRI-O and NRI, on a stock kernel. The pods are created through CRI
//! in the kubelet's cgroup tree (driver cgroupfs), or by the kubelet itself (driver systemd). The agent that
//! learns of them runs on the node, as the pod of the Helm chart, or is scraped by Debian's Prometheus. One
//! boot each, ignored by default;
//! `cargo test -p justitia-cli --test kube -- --ignored --nocapture`.
//! The chart needs helm, which `scripts/setup --test` fetches; `scripts/setup --kubernetes` compiles the kubelet
//! and CRI-O.
//!
//! The guests run `kube/guest.sh`, `chart.sh`, `crio.sh`, `prometheus.sh` and `kubelet.sh`. All but the last
//! speak CRI by curl and protoc (`kube/cri.proto`).

#[path = "kube/chart.rs"]
mod chart;
#[path = "../../../lab/tests/common/mod.rs"]
mod common;
#[path = "kube/crio.rs"]
mod crio;
#[path = "kube/kubelet.rs"]
mod kubelet;
#[path = "kube/prometheus.rs"]
mod prometheus;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{host, programs, said, Said};
use justitia_machine::vm::VmSpec;
use serde_json::Value;

const RUNTIME: &str = include_str!("kube/runtime.sh");
const CALLS: &str = include_str!("kube/cri.sh");
const AGENT: &str = include_str!("kube/agent.sh");
const SCRIPT: &str = include_str!("kube/guest.sh");
const CRI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kube/cri.proto");

/// A node whose pods `script` creates by [`CALLS`].
fn node(script: &str, dir: &Path) -> VmSpec {
    with_runtime(&format!("{CALLS}{AGENT}{script}"), dir)
}

/// A node that runs `script` after [`RUNTIME`]; containerd and runc are installed.
fn with_runtime(script: &str, dir: &Path) -> VmSpec {
    let mut spec = host(&format!("{RUNTIME}{script}"), dir);
    spec.binaries
        .extend(programs(env!("CARGO_BIN_EXE_justitia"), &["justitia-web"]));
    spec.binaries.push(CRI.into());
    // Trixie's containerd has NRI.
    spec.release = "trixie";
    let packages = "containerd curl openssl protobuf-compiler runc tar";
    spec.extra_packages = packages.split(' ').map(str::to_owned).collect();
    spec.memory_bytes = 1 << 30;
    spec.timeout = Duration::from_secs(1800);
    spec
}

/// The directory in which `scripts/setup` keeps programs.
fn fetched() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache");
    let cache = env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    cache.join("justitia/bin")
}

impl Said {
    /// Weight and source of the pod with this number, and of its containers.
    fn pod(&self, name: &str, number: u32) -> Vec<(u64, String)> {
        let status = self.json(name);
        let groups = status["groups"].as_array().expect("a list").iter();
        let pod = format!("/pod11111111-aaaa-bbbb-cccc-{number:012}");
        let mut of_pod: Vec<&Value> = groups
            .filter(|group| {
                group["path"]
                    .as_str()
                    .is_some_and(|path| path.contains(&pod))
            })
            .collect();
        of_pod.sort_by_key(|group| group["path"].as_str().map(str::len));
        let weight = |group: &&Value| {
            let source = group["weight_source"].as_str().expect("a word").to_owned();
            (group["weight"].as_u64().expect("a number"), source)
        };
        of_pod.iter().map(weight).collect()
    }
}

fn of(weight: u64, source: &str) -> (u64, String) {
    (weight, source.to_owned())
}

#[test]
#[ignore = "boots a virtual machine; scripts/test --long runs it"]
fn pods_of_a_real_runtime_have_the_weights_that_they_may_ask_for() {
    let dir = tempfile::tempdir().unwrap();
    let said = said(&node(SCRIPT, dir.path()), "");
    // Pods created before the agent began, and after.
    let db = said.pod("told", 1);
    assert_eq!(db[0], of(300, "pod_annotation"));
    let mut inside = db[1..].to_vec();
    inside.sort_unstable();
    let pause = of(100, "default");
    assert_eq!(inside, [pause.clone(), pause, of(700, "pod_annotation")]);
    assert_eq!(said.pod("told", 2)[0], of(500, "pod_cap"));
    assert_eq!(said.pod("told", 3)[0], of(200, "pod_cap"));
    assert_eq!(said.pod("told", 4)[0], of(50, "qos_class"));
    let cap = "pod annotation, capped for its namespace";
    assert!(said.text("status.text").contains(cap));
    let explained = said.text("explain.text");
    assert!(
        explained.contains(&format!("500 from {cap}")),
        "{explained}"
    );
    // No container's specification mentions Justitia.
    assert!(!said.text("specs").contains("justitia"));

    let steps = |name: &str| said.json(name)["ticks_total"].as_u64();
    assert!(
        steps("stopped") < steps("stopped.later"),
        "the runtime's standstill is no other's"
    );
    assert_eq!(said.pod("down", 2)[0], of(500, "pod_cap"));
    for (number, weight) in [(5, 120), (6, 130)] {
        assert_eq!(
            said.pod("restarted", number)[0],
            of(weight, "pod_annotation")
        );
    }

    assert_eq!(said.pod("recorded", 2)[0], of(200, "qos_class"));
    assert_eq!(said.json("named")["weight"], 100);
    assert_eq!(said.pod("passed", 7)[0], of(140, "pod_annotation"));
    assert!(!said.text("agent.log").contains("panicked"));
}
