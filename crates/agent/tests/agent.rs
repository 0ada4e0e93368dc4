//! The whole agent on a fake host: what it leaves behind is what it found.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{contended_host, until, BOOT};
use justitia_agent::notify::Notifier;
use justitia_agent::{Agent, Log, Settings};
use justitia_cgroup::{FakeFs, Resource};
use justitia_discover::RuntimeDirs;
use justitia_policy::config::Mode;
use justitia_policy::units::{Bytes, Weight};

const NAMES: [&str; 3] = ["light", "heavy", "idle"];
const KNOBS: [&str; 4] = ["memory.low", "memory.high", "io.weight", "io.bfq.weight"];

fn settings(state: &Path, mode: Mode) -> Settings {
    let mut settings = Settings {
        manage: vec!["/app/*".into()],
        weights: vec![("/app/heavy".into(), Weight::new(800).unwrap())],
        state_dir: state.to_owned(),
        interval: Duration::from_millis(250),
        ..Settings::default()
    };
    settings.policy.mode = mode;
    settings
}

fn agent(fake: &Arc<FakeFs>, settings: Settings, log: &Log) -> Agent {
    Agent::new(
        fake.clone(),
        settings,
        RuntimeDirs::none(),
        BOOT,
        log.clone(),
    )
    .unwrap()
}

/// A full host on which light and heavy write as fast as they can, light most.
struct Load {
    fake: Arc<FakeFs>,
    ticks: u64,
}

impl Load {
    fn new() -> Load {
        Load {
            fake: contended_host(&NAMES),
            ticks: 0,
        }
    }

    /// One second of it.
    fn second(&mut self) {
        self.ticks += 1;
        self.fake.advance(Duration::from_secs(1));
        for (pid, name, rate) in [(100, "light", 30 << 20), (101, "heavy", 10 << 20)] {
            self.fake.process_io(pid, 0, self.ticks * rate);
            self.fake.update(&format!("/app/{name}"), |group| {
                group.io_some_us += 600_000;
                group.memory_some_us += 300_000;
            });
        }
    }

    fn knobs(&self) -> Vec<Option<String>> {
        let paths = NAMES
            .iter()
            .map(|name| format!("/app/{name}"))
            .chain(["/app".into()]);
        paths
            .flat_map(|path| KNOBS.map(|knob| self.fake.text(&path, knob)))
            .collect()
    }

    fn steps(&mut self, agent: &mut Agent, steps: u32) {
        for _ in 0..steps {
            self.second();
            agent.tick();
            // Lets the writes arrive and the measured time be what the policy expects.
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn under_contention_it_writes_and_when_it_ends_all_is_as_before() {
    let mut load = Load::new();
    let before = load.knobs();
    let state = tempfile::tempdir().unwrap();
    let log = Log::captured();
    let mut agent = agent(&load.fake, settings(state.path(), Mode::Proportional), &log);
    load.steps(&mut agent, 8);
    let written = load.fake.writes();
    assert!(
        written.iter().any(|(_, file, _)| file == "memory.low"),
        "{written:?}"
    );
    assert_ne!(load.knobs(), before);
    let report = agent.board().report();
    assert_eq!(report.groups.len(), 3);
    assert_eq!(report.find("heavy").unwrap().weight, 800);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let restored = agent.finish().unwrap();
    assert!(
        restored.restored > 0 && restored.problems.is_empty(),
        "{restored:?}"
    );
    assert_eq!(load.knobs(), before);
}

#[test]
fn under_contention_low_latency_of_every_bfq_disk_is_off_until_it_ends() {
    let mut load = Load::new();
    load.fake.add_disk("sda", true);
    load.fake.add_disk("sdb", false);
    let state = tempfile::tempdir().unwrap();
    let log = Log::captured();
    let mut agent = agent(&load.fake, settings(state.path(), Mode::Proportional), &log);
    load.steps(&mut agent, 8);
    let devices = agent.board().report().devices;
    let told = devices
        .iter()
        .map(|disk| (&*disk.path, disk.low_latency, disk.prior));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("block:sda", Some(false), Some(true)),
            ("block:sdb", Some(false), None),
        ]
    );
    agent.finish().unwrap();
    let written = load.fake.writes();
    let of_disks = written
        .iter()
        .filter(|(path, ..)| path.starts_with("block:"));
    let of_disks: Vec<&str> = of_disks.map(|(.., text)| text.as_str()).collect();
    assert_eq!(of_disks, ["0", "1"], "off once, on once");
}

#[test]
fn in_mode_observe_it_writes_nothing() {
    let mut load = Load::new();
    load.fake.add_disk("sda", true);
    let state = tempfile::tempdir().unwrap();
    let mut agent = agent(
        &load.fake,
        settings(state.path(), Mode::Observe),
        &Log::captured(),
    );
    load.steps(&mut agent, 8);
    agent.finish().unwrap();
    assert!(load.fake.writes().is_empty());
}

#[test]
fn what_a_killed_agent_left_behind_the_next_one_puts_back_first() {
    let mut load = Load::new();
    let before = load.knobs();
    let state = tempfile::tempdir().unwrap();
    let log = Log::captured();
    let mut killed = agent(&load.fake, settings(state.path(), Mode::Proportional), &log);
    load.steps(&mut killed, 8);
    assert_ne!(load.knobs(), before);
    // No destructor of ours runs on kill -9.
    std::mem::forget(killed);
    let next = agent(&load.fake, settings(state.path(), Mode::Proportional), &log);
    assert_eq!(load.knobs(), before);
    assert!(log
        .lines()
        .iter()
        .any(|line| line.contains("did not end well")));
    next.finish().unwrap();
}

#[test]
fn told_to_stop_it_restores_within_its_interval() {
    let mut load = Load::new();
    let before = load.knobs();
    let state = tempfile::tempdir().unwrap();
    let mut settings = settings(state.path(), Mode::Proportional);
    settings.interval = Duration::from_secs(60);
    let mut agent = agent(&load.fake, settings, &Log::captured());
    load.steps(&mut agent, 8);
    let control = agent.control();
    let running = thread::spawn(move || {
        agent
            .run(&Notifier::to(None, None), || unreachable!())
            .unwrap();
        agent.finish().unwrap()
    });
    thread::sleep(Duration::from_millis(50));
    control.stop();
    until("the agent ends", || running.is_finished());
    running.join().unwrap();
    assert_eq!(load.knobs(), before);
}

#[test]
fn pressure_that_begins_is_answered_before_the_interval_ends() {
    let load = Load::new();
    let state = tempfile::tempdir().unwrap();
    let mut settings = settings(state.path(), Mode::Observe);
    settings.interval = Duration::from_secs(60);
    let mut agent = agent(&load.fake, settings, &Log::captured());
    let (board, control) = (agent.board(), agent.control());
    let running = thread::spawn(move || {
        agent
            .run(&Notifier::to(None, None), || unreachable!())
            .unwrap();
        agent.finish().unwrap()
    });
    until("the first step", || board.report().ticks_total == 1);
    load.fake.stall_host(Resource::Memory);
    until("the second step", || board.report().ticks_total == 2);
    control.stop();
    running.join().unwrap();
}

#[test]
fn a_group_no_longer_managed_after_a_reload_gets_its_values_back() {
    let mut load = Load::new();
    let before = load.knobs();
    let state = tempfile::tempdir().unwrap();
    let settings = settings(state.path(), Mode::Proportional);
    let reloaded = Settings {
        manage: vec!["/elsewhere/*".into()],
        ..settings.clone()
    };
    let mut agent = agent(&load.fake, settings, &Log::captured());
    load.steps(&mut agent, 8);
    assert_ne!(load.knobs(), before);
    let (board, control) = (agent.board(), agent.control());
    let running = thread::spawn(move || {
        agent
            .run(&Notifier::to(None, None), || Ok(reloaded.clone()))
            .unwrap();
        agent.finish().unwrap()
    });
    control.reload();
    until("no group is managed", || board.report().groups.is_empty());
    until("all is as before", || load.knobs() == before);
    control.stop();
    running.join().unwrap();
}

#[test]
fn a_bad_configuration_at_reload_changes_nothing() {
    let mut load = Load::new();
    let state = tempfile::tempdir().unwrap();
    let log = Log::captured();
    let mut agent = agent(&load.fake, settings(state.path(), Mode::Proportional), &log);
    load.steps(&mut agent, 2);
    let control = agent.control();
    let running = thread::spawn(move || {
        let bad = || Settings::parse("mod = 1", Path::new("j.toml"));
        agent.run(&Notifier::to(None, None), bad).unwrap();
        agent.managed()
    });
    control.reload();
    until("it is told", || {
        log.lines()
            .iter()
            .any(|line| line.contains("unknown key mod"))
    });
    control.stop();
    assert_eq!(running.join().unwrap(), 3);
}

#[test]
fn groups_that_join_and_leave_are_followed_and_told() {
    let mut load = Load::new();
    let state = tempfile::tempdir().unwrap();
    let log = Log::captured();
    let mut agent = agent(&load.fake, settings(state.path(), Mode::Proportional), &log);
    load.steps(&mut agent, 2);
    load.fake.mkdir("/app/new");
    load.fake.rmdir("/app/idle");
    load.steps(&mut agent, 20);
    let report = agent.board().report();
    let paths: Vec<&str> = report
        .groups
        .iter()
        .map(|group| group.path.as_str())
        .collect();
    assert_eq!(paths, ["/app/heavy", "/app/light", "/app/new"]);
    for line in ["/app/new joined: weight 100 (default)", "/app/idle left"] {
        assert!(
            log.lines().iter().any(|logged| logged == line),
            "{line}: {:?}",
            log.lines()
        );
    }
    agent.finish().unwrap();
}

#[test]
fn a_quiet_group_is_read_seldom_and_wakes_at_once() {
    let mut load = Load::new();
    let state = tempfile::tempdir().unwrap();
    let mut agent = agent(
        &load.fake,
        settings(state.path(), Mode::Observe),
        &Log::captured(),
    );
    load.steps(&mut agent, 12);
    let board = agent.board();
    let file = || board.report().find("idle").unwrap().file_bytes;
    assert_eq!(file(), Some(0));
    load.fake.update("/app/idle", |group| {
        group.file = Bytes::mib(64);
        group.io_some_us += 50_000;
    });
    load.steps(&mut agent, 1);
    assert_eq!(file(), Some(64 << 20));
    agent.finish().unwrap();
}
