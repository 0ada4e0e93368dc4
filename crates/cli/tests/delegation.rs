//! Tests under real runtimes, on a stock kernel, which groups may declare which colors: containers of crun,
//! runc and Podman and services of systemd declare their own color from inside, by `justitia probe` and by
//! hand, and an agent outside reads it. They cannot declare a sibling's or the parent's. One boot, ignored by
//! default; `cargo test -p justitia-cli --test delegation -- --ignored --nocapture`.
//!
//! The guest runs `delegation/guest.sh`, each container `delegation/inside.sh`. `docs/colors.md` ("What a
//! container needs") documents the results for each runtime.

#[path = "../../../lab/tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{host, programs, said, Said};
use serde_json::Value;

const SCRIPT: &str = include_str!("delegation/guest.sh");
const INSIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/delegation/inside.sh");

const SET: &str = "set";
const DENIED: &str = "Permission denied";
const READ_ONLY: &str = "Read-only file system";
const UNSEEN: &str = "not to be seen";

/// A container or service, and the results of declaring its own color, and a sibling's and its parent's.
struct Case {
    name: &'static str,
    own: &'static str,
    others: &'static str,
}

const fn case(name: &'static str, own: &'static str, others: &'static str) -> Case {
    Case { name, own, others }
}

const CASES: [Case; 24] = [
    case("crun-root", SET, UNSEEN),
    case("crun-ro", READ_ONLY, UNSEEN),
    case("crun-user", DENIED, DENIED),
    case("crun-chown", SET, DENIED),
    case("crun-userns", SET, DENIED),
    case("runc-root", SET, UNSEEN),
    case("runc-ro", READ_ONLY, UNSEEN),
    case("runc-user", DENIED, DENIED),
    case("runc-chown", SET, DENIED),
    // runc gives a cgroup to the container's user only if systemd created it.
    case("runc-userns", DENIED, DENIED),
    case("runc-scope-user", SET, DENIED),
    case("runc-scope-userns", SET, DENIED),
    case("crun-scope-userns", SET, DENIED),
    // The reason not to mount the host's tree in a container whose root is the host's root.
    case("crun-tree", SET, SET),
    case("podman-plain", READ_ONLY, UNSEEN),
    case("podman-unmask", SET, UNSEEN),
    case("podman-always", SET, UNSEEN),
    case("podman-user", DENIED, UNSEEN),
    case("podman-userns", SET, DENIED),
    case("podman-systemd", SET, UNSEEN),
    case("podman-flat", SET, UNSEEN),
    case("systemd-delegate", SET, DENIED),
    case("systemd-plain", DENIED, DENIED),
    case("systemd-protect", READ_ONLY, READ_ONLY),
];

impl Said {
    /// A container's result of one attempt.
    fn of(&self, name: &str, what: &str) -> &str {
        let mut lines = self.text(name).lines();
        let found = lines.find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
        let found = found.unwrap_or_else(|| panic!("{name}, {what}: {}", self.text(name)));
        found.trim()
    }

    /// The groups with a declared color, and its reason, that the agent reported while this container ran.
    fn heard(&self, name: &str) -> Vec<(String, String)> {
        let text = self.text(&format!("{name}.heard"));
        let list: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let records = list.as_array().expect("a list").iter();
        let fresh = records.filter(|record| record["declared"]["standing"] == "fresh");
        let word = |value: &Value| value.as_str().expect("a word").to_owned();
        fresh
            .map(|record| {
                assert_eq!(record["color"], "green", "{record}");
                assert_eq!(record["color_source"], "declared", "{record}");
                let reason = word(&record["declared"]["reason"]);
                (word(&record["path"]), reason)
            })
            .collect()
    }
}

fn run() -> Said {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = host(SCRIPT, dir.path());
    let justitia = env!("CARGO_BIN_EXE_justitia");
    spec.binaries
        .extend(programs(justitia, &["justitia-probe"]));
    spec.binaries.push(INSIDE.into());
    let packages = "attr dbus-daemon dbus-system-bus-common podman runc systemd";
    spec.extra_packages = packages.split(' ').map(str::to_owned).collect();
    spec.memory_bytes = 1 << 30;
    spec.timeout = Duration::from_secs(3600);
    said(&spec, "")
}

#[test]
#[ignore = "boots a virtual machine; scripts/test --long runs it"]
fn a_container_declares_its_own_color_and_nobody_elses() {
    let said = run();
    for Case { name, own, others } in CASES {
        assert_eq!(said.of(name, "own"), own, "{name}");
        assert_eq!(said.of(name, "sibling"), others, "{name}");
        assert_eq!(said.of(name, "parent"), others, "{name}");
        let heard = said.heard(name);
        let of_own = heard.iter().find(|(_, why)| *why == format!("{name}-own"));
        assert_eq!(of_own.is_some(), own == SET, "{name}: {heard:?}");
        let foreign = [format!("{name}-sibling"), format!("{name}-parent")];
        let foreign = heard.iter().any(|(_, why)| foreign.contains(why));
        assert_eq!(foreign, others == SET, "{name}: {heard:?}");

        let (color, status) = (
            said.of(name, "probe declared"),
            said.of(name, "probe ended"),
        );
        if own == SET {
            assert_eq!(said.of(name, "below"), SET, "{name}");
            assert!(
                ["red", "yellow", "green"].contains(&color),
                "{name}: {color}"
            );
            assert_eq!((status, said.of(name, "probe left")), ("0", ""), "{name}");
        } else {
            assert_eq!((color, status), ("", "69"), "{name}");
            let why = said.text(&format!("{name}.probe"));
            assert_eq!(why.lines().count(), 2, "cause and remedy of {name}: {why}");
        }
    }
    assert!(!said.text("agent.log").contains("panicked"));
}
