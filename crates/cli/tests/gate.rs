//! Tests the kernel module's gate with the real agent in a guest: the agent finds it, sends it weights and
//! keeps it closed, and it opens however the agent ends. One boot, ignored by default; `make test` runs it:
//! `cargo test -p justitia-cli --test gate -- --ignored`.
//!
//! The guest runs `gate/guest.sh`, which prints `@ NAME` before the output of each command. Nothing here
//! depends on the speed of the guest.

#[path = "../../../lab/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{host, programs, said, Said};
use justitia_lab::gate_module;
use justitia_machine::kernels::Series;

const SCRIPT: &str = include_str!("gate/guest.sh");

impl Said {
    /// Checks cause, remedy and exit status of a command that refused.
    fn refusal(&self, name: &str, status: &str, cause: &str, remedy: &str) {
        let text = self.text(name);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{name}: {text}");
        assert!(lines[0].contains(cause), "{name}: {text}");
        assert!(lines[1].contains(remedy), "{name}: {text}");
        assert_eq!(lines[2], format!("status {status}"), "{name}");
    }

    /// The gate's state in the output of `justitia gate status --json`.
    fn state(&self, name: &str) -> (String, bool, u64) {
        let gate = &self.json(name)["gate"];
        (
            gate["state"].as_str().unwrap().to_owned(),
            gate["held"].as_bool().unwrap(),
            gate["groups"].as_u64().unwrap(),
        )
    }
}

fn run() -> Said {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = host(SCRIPT, dir.path());
    let progress = &mut |line: &str| eprintln!("{line}");
    let module = gate_module::build(Series::V6_12, dir.path(), progress).unwrap();
    spec.binaries.push(module);
    let justitia = env!("CARGO_BIN_EXE_justitia");
    spec.binaries.extend(programs(justitia, &["justitia-web"]));
    spec.data_bytes = 1 << 30;
    spec.disk_mbps = Some(20);
    spec.timeout = Duration::from_secs(600);
    said(&spec, "")
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn the_agent_holds_the_gate_and_it_opens_however_the_agent_ends() {
    let said = run();
    // The root cgroup is one more group, for writers in no other group.
    let closed = ("closed".to_owned(), true, 3);
    let open = ("disabled".to_owned(), false, 0);

    // Without the module, without an agent, without permission.
    said.refusal("no-module", "69", "not loaded", "modprobe justitia");
    said.refusal("no-agent", "1", "no agent listens", "justitia run");
    said.refusal("not-root", "69", "no permission", "root");
    assert!(said.text("enable-no-module").contains("not loaded"));
    assert_eq!(said.state("loaded"), open);

    // The configuration requests the gate, weights are the owners', and queues fill.
    assert_eq!(said.state("configured"), closed);
    let groups = said.json("configured")["groups"].clone();
    let weights: BTreeMap<&str, u64> = groups
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            let path = group["path"].as_str().unwrap();
            (path, group["weight"].as_u64().unwrap())
        })
        .filter(|(path, _)| path.starts_with("/app/"))
        .collect();
    assert_eq!(
        weights,
        BTreeMap::from([("/app/heavy", 800), ("/app/light", 100)])
    );
    let busy = said.json("busy");
    let waits: u64 = busy["gate"]["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|device| device["enqueued_total"].as_u64().unwrap())
        .sum();
    assert!(waits > 0, "{busy}");
    assert!(said
        .text("status")
        .contains("gate: closed: writers of 3 groups"));
    assert!(
        said.text("top").contains("gate stride"),
        "{}",
        said.text("top")
    );
    let metrics = said.text("metrics");
    assert!(metrics.contains("justitia_gate_closed 1\n"), "{metrics}");
    assert!(metrics.contains(
        "justitia_group_gate_weight{group=\"/app/heavy\",kind=\"group\",name=\"heavy\"} 800"
    ));

    // A removed group is deleted from the gate. Then disable and enable, and unloading of the module while
    // writers write.
    assert_eq!(said.state("one-left"), ("closed".into(), true, 2));
    assert_eq!(said.state("let-go"), open);
    assert_eq!(said.text("unloaded"), "yes");
    assert_eq!(said.state("taken-again"), ("closed".into(), true, 2));

    // The agent is stopped, killed, or stuck.
    assert_eq!(said.state("stopped"), open);
    assert_eq!(said.state("killed"), open);
    let (state, ..) = said.state("stuck");
    assert_eq!(state, "no-heartbeat");
    assert_eq!(said.state("awake"), ("closed".into(), true, 2));
    assert_eq!(said.text("complaints"), "none");
}
