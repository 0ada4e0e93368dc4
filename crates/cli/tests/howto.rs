//! Debian's own Docker on a stock kernel, under systemd, beside an agent: what `docker run`, `docker update`,
//! `docker restart` and `docker compose` say of weights and names counts, with both cgroup drivers, and the commands
//! of docs/howto/docker.md do what the page says. One boot, ignored by default;
//! `cargo test --profile vm -p justitia-cli --test docker -- --ignored --nocapture`.
//!
//! The guest runs `docker/guest.sh`.

#[path = "../../../lab/tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{machine, parts, programs, report_of, Said, PROLOGUE};
use justitia_machine::kernels::Series;

const SCRIPT: &str = include_str!("docker/guest.sh");
const PAGE: &str = include_str!("../../../docs/howto/docker.md");

/// The page's commands, and its example of Compose, each after a line `@@ NAME`.
fn job() -> String {
    let mut job = "@@ commands\n".to_owned();
    let (mut code, mut yaml) = (None, "@@ compose.yaml\n".to_owned());
    for line in PAGE.lines() {
        match (code, line.strip_prefix("```")) {
            (None, Some(language)) => code = Some(language),
            (Some(_), Some(_)) => code = None,
            (Some(""), None) => job.extend([line, "\n"]),
            (Some(_), None) => yaml.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    job + &yaml
}

/// Name, weight and where the weight is from.
type Seen = (String, u64, String);

const DOCKER: &str = "oci_block_io";

fn of(name: &str, weight: u64, source: &str) -> Seen {
    (name.to_owned(), weight, source.to_owned())
}

impl Said {
    /// What `justitia status` says of containers, by name.
    fn groups(&self, look: &str) -> Vec<Seen> {
        let status = self.json(look);
        let groups = status["groups"].as_array().expect("a list").iter();
        let mut seen: Vec<Seen> = groups
            .map(|group| {
                let word = |field: &str| group[field].as_str().expect("a word").to_owned();
                assert_eq!(word("kind"), "container");
                let weight = group["weight"].as_u64().expect("a number");
                (word("name"), weight, word("weight_source"))
            })
            .collect();
        seen.sort();
        seen
    }
}

fn run() -> Said {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = machine(Series::V6_12, &format!("{PROLOGUE}{SCRIPT}"), dir.path());
    spec.binaries
        .extend(programs(env!("CARGO_BIN_EXE_justitia"), &[]));
    // dockerd, containerd and runc as Debian 13 has them.
    spec.release = "trixie";
    let packages = [
        "docker-cli",
        "docker-compose",
        "docker.io",
        "systemd",
        "tar",
    ];
    spec.extra_packages = packages.map(str::to_owned).into();
    spec.modules.extend(["bridge", "veth"].map(str::to_owned));
    spec.memory_bytes = 1 << 30;
    spec.data_bytes = 1 << 30;
    spec.disk_mbps = Some(40);
    spec.timeout = Duration::from_secs(900);
    let (_, report) = report_of(&spec, &job());
    println!("{report}");
    Said(parts(&report))
}

#[test]
#[ignore = "boots a virtual machine; scripts/test --long runs it"]
fn containers_of_a_real_dockerd_have_their_names_and_weights_and_leave_as_docker_wrote_them() {
    let said = run();
    assert_eq!(said.text("vain"), "", "nothing was waited for in vain");
    for driver in ["systemd", "cgroupfs"] {
        let look = |name: &str| said.groups(&format!("{driver}.{name}"));
        let info = said.text(&format!("{driver}.info"));
        assert!(info.starts_with(&format!("{driver} 2 ")), "{info}");
        assert_eq!(
            look("run"),
            [of("heavy", 800, DOCKER), of("light", 100, DOCKER)]
        );
        assert_eq!(look("before")[0], of("heavy", 400, "xattr"));
        assert_eq!(look("update")[0], of("heavy", 300, DOCKER));
    }
    let restarted = [of("heavy", 600, DOCKER), of("little", 100, DOCKER)];
    assert_eq!(said.groups("systemd.restart"), restarted);

    let page = said.groups("systemd.page");
    assert!(page.contains(&of("db", 400, DOCKER)), "{page:?}");
    assert!(page.contains(&of("shop-web-1", 200, DOCKER)), "{page:?}");
    for name in ["db", "heavy", "little", "shop-web-1"] {
        let table = said.text("systemd.table");
        let named = |line: &str| line.split_whitespace().next() == Some(name);
        assert!(table.lines().any(named), "{name}: {table}");
    }
    for (command, answer) in [
        (
            "justitia weight db",
            "has weight 400 from OCI blockIO weight",
        ),
        (
            "justitia weight shop-web-1",
            "has weight 200 from OCI blockIO weight",
        ),
        ("justitia weight db 2000", "has weight 2000 from xattr"),
        (
            "justitia weight db --unset",
            "has weight 400 from OCI blockIO weight",
        ),
    ] {
        let said = said.text(&format!("page sudo {command}"));
        assert!(said.contains(answer), "{command}: {said}");
    }

    for (of, weight) in [
        ("systemd.heavy", "io.bfq.weight default 600"),
        ("systemd.little", "io.bfq.weight default 100"),
        ("systemd.db", "io.bfq.weight default 400"),
        ("cgroupfs.heavy", "io.weight default 2930"),
    ] {
        let left = said.text(&format!("{of}.left"));
        let low = if of.ends_with("heavy") { 16 << 20 } else { 0 };
        let low = format!("memory.low {low}");
        for line in [weight, &low, "memory.high max", "memory.max max"] {
            assert!(
                left.lines().any(|is| is.trim_end() == line),
                "{line} of {of}: {left}"
            );
        }
    }
    for of in ["systemd.heavy", "cgroupfs.heavy"] {
        let texts = ["held", "left"].map(|when| said.text(&format!("{of}.{when}")));
        assert_ne!(texts[0], texts[1], "the agent has held knobs of {of}");
    }
    let log = said.text("agent.log");
    assert!(
        !log.contains("left alone from now on") && !log.contains("panicked"),
        "{log}"
    );
}
