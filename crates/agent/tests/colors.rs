//! Colors through the whole agent on a fake host: a declaration moves a limit, and a limit does not
//! outlive it.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use common::{full, host, text};
use justitia_agent::socket::{clear_color, declare_color, Server};
use justitia_agent::{Agent, Log, Settings};
use justitia_cgroup::{xattr, CgroupFs, FakeFs};
use justitia_policy::color::{Channel, ColorSource, Standing};
use justitia_policy::config::Mode;
use justitia_policy::plan::Knob;
use justitia_policy::units::Bytes;
use justitia_policy::Color;
use justitia_report::status::GroupStatus;

const NAMES: [&str; 3] = ["sated", "hungry", "silent"];

/// A full host; every group holds 200 MiB of page cache.
fn full_host() -> Arc<FakeFs> {
    let fake = host(&NAMES);
    fake.set_host(full());
    for name in NAMES {
        fake.update(&format!("/app/{name}"), |group| {
            group.anon = Bytes::mib(10);
            group.file = Bytes::mib(200);
        });
    }
    fake
}

fn agent(fake: &Arc<FakeFs>, state: &Path, mode: Mode) -> Agent {
    let settings = Settings {
        mode,
        manage: vec!["/app/*".into()],
        state_dir: state.to_owned(),
        color_ttl: Duration::from_millis(400),
        // Steps of the test are shorter than a second.
        color_period: Duration::from_millis(100),
        ..Settings::default()
    };
    common::agent(fake, settings, &Log::captured())
}

fn declare(fake: &Arc<FakeFs>, name: &str, value: &str) {
    let group = fake.open(&format!("/app/{name}")).unwrap();
    group.set_xattr(xattr::COLOR, value).unwrap();
}

fn steps(agent: &mut Agent, steps: usize) {
    for _ in 0..steps {
        thread::sleep(Duration::from_millis(60));
        agent.tick();
    }
}

fn status(agent: &Agent, name: &str) -> GroupStatus {
    agent.board().report().find(name).unwrap().clone()
}

fn high(fake: &FakeFs, name: &str) -> String {
    text(fake, &format!("/app/{name}"), Knob::MemoryHigh)
}

/// Some periods in which one group is green and one red.
fn give(fake: &Arc<FakeFs>, agent: &mut Agent) {
    agent.tick();
    for count in 0..6 {
        declare(fake, "sated", &format!("green {count} p99 3 ms"));
        declare(fake, "hungry", &format!("RED {count}"));
        steps(agent, 1);
    }
    thread::sleep(Duration::from_millis(60));
}

#[test]
fn a_green_group_gives_to_a_red_one_until_its_probe_is_gone() {
    let (fake, state) = (full_host(), tempfile::tempdir().unwrap());
    let mut agent = agent(&fake, state.path(), Mode::Proportional);
    give(&fake, &mut agent);
    let limit: u64 = high(&fake, "sated").parse().unwrap();
    assert!(limit < 212 << 20, "{limit}");
    assert_eq!(high(&fake, "hungry"), "max");
    let sated = status(&agent, "sated");
    let declared = sated.declared.unwrap();
    assert_eq!(declared.standing, Standing::Fresh);
    assert_eq!(declared.reason, "p99 3 ms");
    let verdict = sated.verdict.unwrap();
    assert_eq!(verdict.color_source, ColorSource::Declared);
    assert!(verdict.cap_bytes.is_some_and(|cap| cap < 200 << 20));
    // Both probes are gone: their declarations go stale.
    thread::sleep(Duration::from_millis(500));
    steps(&mut agent, 1);
    thread::sleep(Duration::from_millis(60));
    let declared = status(&agent, "sated").declared.unwrap();
    assert_eq!(declared.standing, Standing::Stale);
    assert_eq!(high(&fake, "sated"), "max");
    agent.finish().unwrap();
    assert_eq!(high(&fake, "sated"), "max");
    assert_eq!(text(&fake, "/app/sated", Knob::MemoryLow), "0");
}

#[test]
fn in_mode_memoplight_a_green_group_is_reclaimed_and_never_limited() {
    let (fake, state) = (full_host(), tempfile::tempdir().unwrap());
    let mut agent = agent(&fake, state.path(), Mode::Memoplight);
    give(&fake, &mut agent);
    let file = |name| fake.group(&format!("/app/{name}")).file;
    assert!(file("sated") < Bytes::mib(195), "{}", file("sated"));
    assert_eq!(file("hungry"), Bytes::mib(200));
    assert_eq!(high(&fake, "sated"), "max");
    let verdict = status(&agent, "sated").verdict.unwrap();
    assert_eq!(verdict.cap_bytes, None);
    agent.finish().unwrap();
    assert_eq!(text(&fake, "/app/sated", Knob::MemoryLow), "0");
}

#[test]
fn mode_memoplight_says_so_where_the_kernel_cannot_reclaim() {
    let (fake, state) = (full_host(), tempfile::tempdir().unwrap());
    for path in ["/app", "/app/sated", "/app/hungry", "/app/silent"] {
        fake.update(path, |group| group.reclaim = false);
    }
    let mut agent = agent(&fake, state.path(), Mode::Memoplight);
    give(&fake, &mut agent);
    let report = agent.board().report();
    let mut problems = report.problems.iter();
    assert!(problems.any(|problem| problem.cause.contains("no memory.reclaim")));
    agent.finish().unwrap();
}

#[test]
fn garbage_in_the_attribute_changes_nothing_and_is_reported() {
    let (fake, state) = (full_host(), tempfile::tempdir().unwrap());
    let mut agent = agent(&fake, state.path(), Mode::Proportional);
    declare(&fake, "hungry", "red");
    agent.tick();
    for (value, standing) in [
        ("blue", Standing::Malformed),
        ("\u{1b}[31mgreen", Standing::Malformed),
        (&"green ".repeat(10_000), Standing::TooLong),
    ] {
        declare(&fake, "sated", value);
        steps(&mut agent, 2);
        let status = status(&agent, "sated");
        assert_eq!(status.declared.unwrap().standing, standing);
        let verdict = status.verdict.unwrap();
        assert_eq!(verdict.color_source, ColorSource::Inferred);
        assert_eq!(verdict.cap_bytes, None);
        assert_eq!(high(&fake, "sated"), "max");
    }
    agent.finish().unwrap();
}

#[test]
fn a_color_over_the_socket_counts_for_its_own_time() {
    let (fake, state) = (full_host(), tempfile::tempdir().unwrap());
    let mut agent = agent(&fake, state.path(), Mode::Proportional);
    agent.tick();
    let path = state.path().join("test.sock");
    let server = Server::listen(&path, agent.board()).unwrap();
    let hour = Some(Duration::from_secs(3600));
    let heard = declare_color(&path, "sated", Color::Yellow, "queue 17", hour).unwrap();
    assert_eq!(heard.path, "/app/sated");
    declare_color(&path, "hungry", Color::Red, "", None).unwrap();
    steps(&mut agent, 1);
    let declared = status(&agent, "sated").declared.unwrap();
    assert_eq!(
        (declared.channel, declared.fresh()),
        (Channel::Socket, Some(Color::Yellow))
    );
    assert_eq!(declared.reason, "queue 17");
    thread::sleep(Duration::from_millis(500));
    steps(&mut agent, 1);
    let standing = |agent: &Agent, name| status(agent, name).declared.map(|said| said.standing);
    assert_eq!(standing(&agent, "sated"), Some(Standing::Fresh));
    assert_eq!(standing(&agent, "hungry"), Some(Standing::Stale));
    // A later declaration of the group itself wins.
    declare(&fake, "sated", "green");
    steps(&mut agent, 1);
    assert_eq!(
        status(&agent, "sated").declared.unwrap().fresh(),
        Some(Color::Green)
    );
    clear_color(&path, "sated").unwrap();
    let group = fake.open("/app/sated").unwrap();
    group.remove_xattr(xattr::COLOR).unwrap();
    steps(&mut agent, 1);
    assert_eq!(standing(&agent, "sated"), Some(Standing::Removed));
    assert_eq!(standing(&agent, "silent"), None);
    drop(server);
    agent.finish().unwrap();
    assert!(!fs::exists(&path).unwrap());
}
