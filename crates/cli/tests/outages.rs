//! Tests outages of a probe, its server and its group beside a running agent, on a stock kernel with Redis:
//! the probe and the server are killed and started again, and the group is frozen and thawed. A color that is
//! not repeated goes stale, and the agent infers one. Everything recovers by itself, and nothing delays the
//! agent. At the end an agent takes over that cannot begin. One boot, ignored by default; `make test` runs it:
//! `cargo test -p justitia-cli --test outages -- --ignored --nocapture`.
//!
//! The guest runs `outages/guest.sh`. `crates/probe/tests/servers` tests for every server that a probe's loop
//! goes on while the server is away. The tests here are about the agent's side.

#[path = "../../../lab/tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{host, programs, said, Said};

const SCRIPT: &str = include_str!("outages/guest.sh");

/// The agent's time to live of a color, in seconds.
const TIME_TO_LIVE: f64 = 5.0;

impl Said {
    /// Asserts that the color is fresh and declared by the probe.
    fn declared(&self, name: &str) {
        let seen = self.json(name);
        assert_eq!(seen["declared"]["standing"], "fresh", "{name}: {seen}");
        assert_eq!(seen["declared"]["channel"], "xattr", "{name}: {seen}");
        assert_eq!(seen["color_source"], "declared", "{name}: {seen}");
        assert_eq!(seen["color"], seen["declared"]["color"], "{name}: {seen}");
    }

    /// Asserts that the declaration is stale because of its age, and that the agent inferred a color.
    fn stale(&self, name: &str) {
        let seen = self.json(name);
        assert_eq!(seen["declared"]["standing"], "stale", "{name}: {seen}");
        let unchanged = seen["declared"]["unchanged_s"].as_f64();
        assert!(unchanged >= Some(TIME_TO_LIVE), "{name}: {seen}");
        assert_eq!(seen["color_source"], "inferred", "{name}: {seen}");
        assert!(seen["color"].is_string(), "{name}: {seen}");
    }

    fn block_weight(&self, name: &str) -> u32 {
        let mut lines = self.text(name).lines();
        let weight = lines.find_map(|line| line.strip_prefix("io.bfq.weight default "));
        weight
            .and_then(|text| text.trim().parse().ok())
            .expect(name)
    }

    fn number(&self, name: &str, field: &str) -> u64 {
        let report = self.json(name);
        let number = report[field].as_u64();
        number.unwrap_or_else(|| panic!("{field} of {name}: {report}"))
    }
}

fn run() -> Said {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = host(SCRIPT, dir.path());
    let justitia = env!("CARGO_BIN_EXE_justitia");
    spec.binaries
        .extend(programs(justitia, &["justitia-probe"]));
    spec.extra_packages = ["attr", "redis-server"].map(str::to_owned).into();
    spec.data_bytes = 1 << 30;
    spec.disk_mbps = Some(40);
    spec.timeout = Duration::from_secs(2400);
    said(&spec, "")
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn colors_go_stale_and_come_back_and_the_agent_goes_on() {
    let said = run();
    let waited_in_vain: Vec<&String> = said
        .0
        .keys()
        .filter(|name| name.starts_with("timeout"))
        .collect();
    assert!(waited_in_vain.is_empty(), "{waited_in_vain:?}");
    said.declared("begin-near");
    said.declared("begin-far");

    // The probe is killed: its last declaration is still in the attribute, and no longer counts.
    said.stale("killed-near");
    said.declared("killed-far");
    let last = said.json("killed-near")["declared"]["color"].clone();
    let left = said.text("left-behind");
    assert!(left.starts_with(last.as_str().unwrap()), "{left}");
    said.declared("again-near");

    // The server is killed and started again while its probe runs.
    said.stale("server-gone-near");
    said.declared("server-gone-far");
    said.declared("server-back-near");
    assert_eq!(said.text("same-probe"), "yes");

    // The group is frozen, with the probe inside or outside.
    for name in [
        "frozen-near",
        "frozen-far",
        "still-frozen-near",
        "still-frozen-far",
    ] {
        said.stale(name);
    }
    let slowest: u64 = said.text("slowest-answer-ms").parse().unwrap();
    assert!(slowest < 15_000, "an answer took {slowest} ms");
    for counter in ["ticks_total", "writes_total"] {
        let (before, after) = (
            said.number("status-before", counter),
            said.number("status-after", counter),
        );
        assert!(after > before, "{counter}: {before} and {after}");
    }
    // The group's weight was raised eightfold while it was frozen.
    assert_eq!(said.block_weight("knobs-before"), 100);
    assert!(said.block_weight("knobs-frozen") > 400);
    assert_eq!(said.block_weight("knobs-after"), 100);
    said.declared("thawed-near");
    said.declared("thawed-far");
    assert_eq!(said.text("same-probes"), "yes");

    // A probe that ends on request removes its color.
    for (name, log) in [
        ("near-probe-ended", "near.probe"),
        ("far-probe-ended", "far.probe"),
        ("agent-ended", "agent.log"),
        ("turn-ended", "turn.log"),
    ] {
        assert_eq!(said.text(name), "0", "{name}: {}", said.text(log));
    }
    let ended = said.json("ended-near");
    assert_eq!(ended["declared"]["standing"], "removed", "{ended}");
    assert_eq!(ended["color_source"], "inferred", "{ended}");

    // An agent that took over in turn and could not begin has restored what the one before left in force.
    assert!(said.block_weight("knobs-in-turn") > 400);
    assert!(said
        .text("turn.log")
        .contains("stay in force for the next agent"));
    assert_eq!(said.text("next-ended"), "69", "{}", said.text("next.log"));
    assert_eq!(said.block_weight("knobs-after-next"), 100);

    let log = said.text("agent.log");
    assert!(
        log.contains("knobs restored") && !log.contains("panicked"),
        "{log}"
    );
}
