//! Tests the how-to pages of Docker, Podman and libvirt word for word, on a stock kernel under systemd, with
//! an agent: weights and names given to Debian's own programs count, and the agent leaves their cgroups as
//! the programs wrote them. One boot each, ignored by default;
//! `cargo test -p justitia-cli --test howto -- --ignored --nocapture`.
//!
//! The guests run `howto/begin.sh` and the runtime's own script.

#[path = "../../../lab/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{machine, parts, programs, report_of, Said, PROLOGUE};
use justitia_machine::kernels::Series;

const BEGIN: &str = include_str!("howto/begin.sh");

/// A page's commands and examples of files, grouped by language, each group after a line `@@ LANGUAGE`.
fn job(page: &str) -> String {
    let mut code: BTreeMap<&str, String> = BTreeMap::new();
    let mut block = None;
    for line in page.lines() {
        match (block, line.strip_prefix("```")) {
            (None, language) => block = language,
            (Some(_), Some(_)) => block = None,
            (Some(language), None) => code.entry(language).or_default().extend([line, "\n"]),
        }
    }
    let named = |language: &str| match language {
        "" => "commands".to_owned(),
        other => other.to_owned(),
    };
    let blocks = code.iter();
    let blocks = blocks.map(|(language, text)| format!("@@ {}\n{text}", named(language)));
    blocks.collect::<Vec<_>>().concat()
}

/// Name, weight and source of the weight.
type Seen = (String, u64, String);

const DOCKER: &str = "oci_block_io";
const CONTAINER: &str = "container";

fn of(name: &str, weight: u64, source: &str) -> Seen {
    (name.to_owned(), weight, source.to_owned())
}

impl Said {
    /// The groups of this kind in the output of `justitia status`, sorted by name.
    fn groups(&self, look: &str, kind: &str) -> Vec<Seen> {
        let status = self.json(look);
        let groups = status["groups"].as_array().expect("a list").iter();
        let mut seen: Vec<Seen> = groups
            .filter(|group| group["kind"] == kind)
            .map(|group| {
                let word = |field: &str| group[field].as_str().expect("a word").to_owned();
                let weight = group["weight"].as_u64().expect("a number");
                (word("name"), weight, word("weight_source"))
            })
            .collect();
        seen.sort();
        seen
    }

    /// Asserts that the page's commands answer with these words.
    fn page_answers(&self, commands: &[(&str, &str)]) {
        for (command, answer) in commands {
            let said = self.text(&format!("page sudo {command}"));
            assert!(said.contains(answer), "{command}: {said}");
        }
    }

    /// Asserts that these lines are in a part.
    fn has(&self, part: &str, lines: &[&str]) {
        let text = self.text(part);
        for line in lines {
            let found = text.lines().any(|is| is.trim_end() == *line);
            assert!(found, "{line} of {part}: {text}");
        }
    }

    /// Asserts that a user's containers `mine` and `other`, which have no names in root's records, have these
    /// weights from these sources.
    fn of_user_are(&self, mine: (u64, &str), other: (u64, &str)) {
        let wanted = [("user.mine", mine), ("user.other", other)];
        let mut wanted =
            wanted.map(|(id, (weight, source))| of(self.text(id).trim(), weight, source));
        wanted.sort();
        let mut seen = self.groups("user", CONTAINER);
        seen.retain(|(name, ..)| wanted.iter().any(|(id, ..)| id == name));
        assert_eq!(seen, wanted);
    }
}

/// Boots Debian 13 with these packages and follows a page there.
fn follow(script: &str, page: &str, packages: &str) -> Said {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("{PROLOGUE}{BEGIN}{script}");
    let mut spec = machine(Series::V6_12, &script, dir.path());
    spec.binaries
        .extend(programs(env!("CARGO_BIN_EXE_justitia"), &[]));
    spec.release = "trixie";
    let packages = packages.split(' ').chain(["systemd", "tar"]);
    spec.extra_packages = packages.map(str::to_owned).collect();
    spec.modules.extend(["bridge", "veth"].map(str::to_owned));
    spec.memory_bytes = 1 << 30;
    spec.data_bytes = 1 << 30;
    spec.disk_mbps = Some(40);
    spec.timeout = Duration::from_secs(1800);
    let (_, report) = report_of(&spec, &job(page));
    println!("{report}");
    Said(parts(&report))
}

#[test]
#[ignore = "boots a virtual machine; scripts/test --long runs it"]
fn containers_of_a_real_dockerd_have_their_names_and_weights_and_leave_as_docker_wrote_them() {
    let packages = "dash dbus-daemon dbus-system-bus-common dbus-user-session docker-cli \
        docker-compose docker.io rootlesskit uidmap";
    let page = include_str!("../../../docs/howto/docker.md");
    let said = follow(include_str!("howto/docker.sh"), page, packages);
    assert_eq!(said.text("vain"), "", "nothing was waited for in vain");
    for driver in ["systemd", "cgroupfs"] {
        let look = |name: &str| said.groups(&format!("{driver}.{name}"), CONTAINER);
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
    assert_eq!(said.groups("systemd.restart", CONTAINER), restarted);

    let page = said.groups("systemd.page", CONTAINER);
    assert!(page.contains(&of("db", 400, DOCKER)), "{page:?}");
    assert!(page.contains(&of("shop-web-1", 200, DOCKER)), "{page:?}");
    for name in ["db", "heavy", "little", "shop-web-1"] {
        let table = said.text("systemd.table");
        let named = |line: &str| line.split_whitespace().next() == Some(name);
        assert!(table.lines().any(named), "{name}: {table}");
    }
    said.page_answers(&[
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
    ]);

    said.of_user_are((300, "oci_annotation"), (200, DOCKER));
    for (of, weight) in [
        ("systemd.heavy", "io.bfq.weight default 600"),
        ("systemd.little", "io.bfq.weight default 100"),
        ("systemd.db", "io.bfq.weight default 400"),
        ("cgroupfs.heavy", "io.weight default 2930"),
    ] {
        let low = if of.ends_with("heavy") { 16 << 20 } else { 0 };
        let low = format!("memory.low {low}");
        let lines = [weight, &low, "memory.high max", "memory.max max"];
        said.has(&format!("{of}.left"), &lines);
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

#[test]
#[ignore = "boots a virtual machine; scripts/test --long runs it"]
fn containers_of_a_real_podman_have_their_names_and_weights_and_leave_without_limits() {
    let packages = "dbus-daemon dbus-system-bus-common dbus-user-session podman uidmap";
    let page = include_str!("../../../docs/howto/podman.md");
    let said = follow(include_str!("howto/podman.sh"), page, packages);
    assert_eq!(said.text("vain"), "", "nothing was waited for in vain");
    let podman = "oci_block_io";
    for (look, heavy, weight) in [
        ("run", "heavy", 800),
        ("update", "heavy", 300),
        ("restart", "great", 300),
    ] {
        let seen = [of(heavy, weight, podman), of("light", 100, podman)];
        assert_eq!(said.groups(look, CONTAINER), seen, "{look}");
    }
    let page = said.groups("page", CONTAINER);
    for seen in [
        of("db", 400, podman),
        of("shop", 200, podman),
        of("web", 2000, "oci_annotation"),
    ] {
        assert!(page.contains(&seen), "{seen:?}: {page:?}");
    }
    said.page_answers(&[
        ("justitia weight web", "has weight 2000 from OCI annotation"),
        ("justitia weight db 2000", "has weight 2000 from xattr"),
        (
            "justitia weight db --unset",
            "has weight 400 from OCI blockIO weight",
        ),
        (
            "justitia weight shop",
            "has weight 200 from OCI blockIO weight",
        ),
    ]);
    said.of_user_are((300, "oci_annotation"), (200, podman));
    for name in ["great", "db"] {
        let texts = ["held", "left"].map(|when| said.text(&format!("{name}.{when}")));
        assert_ne!(texts[0], texts[1], "the agent has held knobs of {name}");
        let lines = ["memory.low 0", "memory.high max", "memory.max max"];
        said.has(&format!("{name}.left"), &lines);
    }
    assert!(!said.text("agent.log").contains("panicked"));
}

#[test]
#[ignore = "boots a virtual machine; scripts/test --long runs it"]
fn a_machine_of_a_real_libvirt_has_its_name_and_weight_and_leaves_as_libvirt_wrote_it() {
    let packages = "dbus-daemon dbus-system-bus-common libvirt-clients libvirt-daemon \
        libvirt-daemon-driver-qemu qemu-system-x86 systemd-container";
    let page = include_str!("../../../docs/howto/libvirt.md");
    let said = follow(include_str!("howto/libvirt.sh"), page, packages);
    assert_eq!(said.text("vain"), "", "nothing was waited for in vain");
    for (look, weight, source) in [
        ("page", 400, "io_weight"),
        ("update", 300, "io_weight"),
        ("again", 400, "io_weight"),
        ("configured", 800, "config"),
    ] {
        assert_eq!(said.groups(look, "vm"), [of("db", weight, source)]);
    }
    said.page_answers(&[
        ("justitia weight db", "has weight 400 from io.weight"),
        ("justitia weight db 2000", "has weight 2000 from xattr"),
        (
            "justitia weight db --unset",
            "has weight 400 from io.weight",
        ),
        ("justitia vm --images", "/data/db.img"),
        (
            "justitia vm run --weight db=400",
            "managing the cache of 1 machine,",
        ),
    ]);
    let again = said.text("scope");
    assert!(again.contains(r"machine-qemu\x2d2\x2ddb.scope"), "{again}");
    assert_ne!(said.text("held"), said.text("left"));
    let weights = ["io.weight default 400", "io.bfq.weight default 127"];
    said.has("left", &weights);
    said.has("left", &["memory.low 0", "memory.high max"]);
    assert!(!said.text("agent.log").contains("panicked"));
}
