//! The whole agent on a fake host: it leaves the host as it found it.

mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use common::{full, until, Load, NAMES};
use justitia_agent::journal::{Entry, Journal};
use justitia_agent::notify::Notifier;
use justitia_agent::observe::Observer;
use justitia_agent::pace::GUARD_EVERY;
use justitia_agent::{run, Settings};
use justitia_cgroup::Fs;
use justitia_discover::RuntimeDirs;
use justitia_policy::config::Mode;
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::Host;
use justitia_policy::units::{Bytes, Limit};
use justitia_report::status::PlannedWrite;

#[test]
fn under_contention_it_writes_and_when_it_ends_all_is_as_before() {
    let mut load = Load::new();
    let before = load.knobs();
    let mut agent = load.agent(load.settings(Mode::Proportional));
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
fn a_tenants_directory_is_limited_at_its_share_of_memory_and_gets_its_limit_back() {
    let mut load = Load::new();
    let tenant = "/user.slice/user-4711.slice/user@4711.service";
    let made = format!("{tenant}/docker-0123456789ab.scope");
    load.fake.mkdir(&made);
    for path in [tenant, &made] {
        load.fake.delegate(path, 4711, false);
    }
    // Its memory is in no group that the agent manages.
    load.fake
        .update(tenant, |group| group.anon = Bytes::mib(40));
    let high = |load: &Load| load.fake.text(tenant, "memory.high");
    let before = high(&load);
    let mut settings = load.settings(Mode::Proportional);
    settings.manage.push(format!("{tenant}/*"));
    let mut agent = load.agent(settings);
    load.steps(&mut agent, 8);
    let limit: u64 = high(&load).unwrap().trim().parse().expect("a limit");
    // An eleventh of some 610 MiB, beside weights of 100, 800 and 100.
    assert!((50 << 20..70 << 20).contains(&limit), "{limit}");
    agent.finish().unwrap();
    assert_eq!(high(&load), before);
}

#[test]
fn a_limit_under_which_the_kernel_swaps_out_does_not_fall() {
    let mut load = Load::new();
    let fake = load.fake.clone();
    fake.set_host(Host {
        swap: Some(Bytes::mib(1000)),
        ..full()
    });
    fake.update("/app/heavy", |group| {
        group.anon = Bytes::mib(200);
        group.file = Bytes::mib(110);
    });
    let mut settings = load.settings(Mode::Proportional);
    // With equal weights, its memory is within its share. It gets less than that, so nothing else lowers its
    // limit.
    settings.weights.clear();
    let mut agent = load.agent(settings);
    let mut limits = Vec::new();
    for _ in 0..40 {
        load.steps(&mut agent, 1);
        fake.update("/app/heavy", |group| {
            let Limit::Bytes(high) = group.high else {
                return;
            };
            limits.push(high.0 >> 20);
            let taken = group.anon.scale(0.05);
            group.anon = group.anon - taken;
            group.swap = group.swap + taken;
            group.file = high - group.anon;
        });
    }
    agent.finish().unwrap();
    assert!(limits.len() > 30, "{limits:?}");
    assert!(
        limits.iter().all(|limit| *limit >= limits[0] / 10 * 9),
        "{limits:?}"
    );
    let swapped = fake.group("/app/heavy").swap;
    assert!(swapped > Bytes::mib(100), "{swapped}");
}

/// Clients of an agent, and what they see when they are sent away.
struct Clients<'a> {
    load: &'a Load,
    before: Vec<Option<String>>,
}

impl Drop for Clients<'_> {
    fn drop(&mut self) {
        assert_eq!(self.load.knobs(), self.before);
    }
}

#[test]
fn the_knobs_are_as_before_when_the_agent_sends_its_clients_away() {
    let mut load = Load::new();
    let before = load.knobs();
    let mut agent = load.agent(load.settings(Mode::Proportional));
    load.steps(&mut agent, 8);
    assert_ne!(load.knobs(), before);
    let clients = Clients {
        load: &load,
        before,
    };
    justitia_agent::run::end(agent, false, clients).unwrap();
}

#[test]
fn under_contention_low_latency_of_every_bfq_disk_is_off_until_it_ends() {
    let mut load = Load::new();
    load.fake.add_disk("sda", true);
    load.fake.add_disk("sdb", false);
    let mut agent = load.agent(load.settings(Mode::Proportional));
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
    let mut agent = load.agent(load.settings(Mode::Observe));
    load.steps(&mut agent, 8);
    agent.finish().unwrap();
    assert!(load.fake.writes().is_empty());
}

#[test]
fn a_look_beside_an_agent_goes_by_what_the_owners_set() {
    let load = Load::new();
    let (fs, settings): (Fs, _) = (load.fake.clone(), load.settings(Mode::Proportional));
    let idle = load.fake.mkdir("/app/idle");
    let low = Bytes::mib(2048);
    load.fake
        .foreign_write("/app/idle", "memory.low", &low.0.to_string());
    // An agent beside us wrote this weight.
    load.fake
        .foreign_write("/app/idle", "io.weight", "default 700");
    let mut journal = Journal::open(load.state.path(), &justitia_cgroup::boot_id()).unwrap();
    let prior = Entry::new("/app/idle", Value::Weight(300));
    journal.hold(&[((idle, Knob::IoWeight), prior)]).unwrap();
    let observer = Observer::new(fs.clone(), settings.discover(), RuntimeDirs::none()).unwrap();
    let report = run::look_by(observer, &settings).unwrap();
    assert_eq!(report.find("idle").unwrap().weight, 300);
    assert_eq!(report.ticks_total, 2, "the first step knows no rates");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let lowers = |write: &PlannedWrite| write.path == "/app/idle" && write.knob == Knob::MemoryLow;
    assert!(!report.writes.iter().any(lowers), "{:?}", report.writes);
    let observer = Observer::new(fs, settings.discover(), RuntimeDirs::none()).unwrap();
    let never = AtomicBool::new(false);
    run::watch_by(observer, &settings, Mode::Observe, &never, |tick, _| {
        let groups = tick.snapshot.groups.iter();
        let operators = groups.filter(|group| group.id == idle);
        let operators = operators
            .map(|group| group.knobs.operator)
            .collect::<Vec<_>>();
        let (low, block_weight) = (Some(Limit::Bytes(low)), Some(300));
        assert_eq!(
            (operators[0].low, operators[0].block_weight),
            (low, block_weight)
        );
        Ok(false)
    })
    .unwrap();
    // Only root can read the journal.
    let journal = load.state.path().join("journal");
    std::fs::remove_file(&journal).unwrap();
    std::fs::create_dir(&journal).unwrap();
    let fs = load.fake.clone();
    let observer = Observer::new(fs, settings.discover(), RuntimeDirs::none()).unwrap();
    let report = run::look_by(observer, &settings).unwrap();
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
}

#[test]
fn the_next_agent_first_restores_the_knobs_that_a_killed_one_wrote() {
    let mut load = Load::new();
    let before = load.knobs();
    let mut killed = load.agent(load.settings(Mode::Proportional));
    load.steps(&mut killed, 8);
    assert_ne!(load.knobs(), before);
    // No destructor of ours runs on kill -9.
    std::mem::forget(killed);
    let next = load.agent(load.settings(Mode::Proportional));
    assert_eq!(load.knobs(), before);
    assert!(load
        .log
        .lines()
        .iter()
        .any(|line| line.contains("did not end well")));
    next.finish().unwrap();
}

#[test]
fn told_to_stop_it_restores_within_its_interval() {
    let mut load = Load::new();
    let before = load.knobs();
    let mut settings = load.settings(Mode::Proportional);
    settings.interval = Duration::from_secs(60);
    let mut agent = load.agent(settings);
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
    let mut settings = load.settings(Mode::Observe);
    settings.interval = Duration::from_secs(60);
    let mut agent = load.agent(settings);
    let (board, control) = (agent.board(), agent.control());
    let running = thread::spawn(move || {
        agent
            .run(&Notifier::to(None, None), || unreachable!())
            .unwrap();
        agent.finish().unwrap()
    });
    until("the first step", || board.report().ticks_total == 1);
    load.fake.stall_host();
    until("the second step", || board.report().ticks_total == 2);
    control.stop();
    running.join().unwrap();
}

#[test]
fn a_group_no_longer_managed_after_a_reload_gets_its_values_back() {
    let mut load = Load::new();
    let before = load.knobs();
    let settings = load.settings(Mode::Proportional);
    let reloaded = Settings {
        manage: vec!["/elsewhere/*".into()],
        ..settings.clone()
    };
    let mut agent = load.agent(settings);
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
fn after_a_reload_into_another_mode_growth_of_a_group_limited_before_makes_no_early_step() {
    for (mode, early) in [(Mode::Proportional, 1), (Mode::Justitia, 0)] {
        let mut load = Load::new();
        let settings = Settings {
            interval: Duration::from_secs(60),
            ..load.settings(Mode::Proportional)
        };
        let reloaded = Settings {
            mode,
            ..settings.clone()
        };
        let mut agent = load.agent(settings);
        load.steps(&mut agent, 8);
        let (board, control) = (agent.board(), agent.control());
        let running = thread::spawn(move || {
            let reread = || Ok(reloaded.clone());
            agent.run(&Notifier::to(None, None), reread).unwrap();
            agent.finish().unwrap()
        });
        control.reload();
        until("it is reloaded", || {
            let lines = load.log.lines();
            lines.iter().any(|line| line == "configuration reloaded")
        });
        for name in NAMES {
            let path = format!("/app/{name}");
            load.fake.update(&path, |group| group.anon = Bytes::mib(18));
        }
        thread::sleep(2 * GUARD_EVERY);
        assert_eq!(board.report().ticks_total, 8 + early, "{mode:?}");
        control.stop();
        running.join().unwrap();
    }
}

#[test]
fn a_shorter_interval_counts_from_the_reload_on() {
    let load = Load::new();
    let settings = load.settings(Mode::Observe);
    let shorter = settings.clone();
    let mut agent = load.agent(Settings {
        interval: Duration::from_secs(60),
        ..settings
    });
    let (board, control) = (agent.board(), agent.control());
    let running = thread::spawn(move || {
        let reread = || Ok(shorter.clone());
        agent.run(&Notifier::to(None, None), reread).unwrap();
        agent.finish().unwrap()
    });
    until("the first step", || board.report().ticks_total == 1);
    control.reload();
    until("the second step", || board.report().ticks_total == 2);
    control.stop();
    running.join().unwrap();
}

#[test]
fn a_bad_configuration_at_reload_changes_nothing() {
    let mut load = Load::new();
    let mut agent = load.agent(load.settings(Mode::Proportional));
    load.steps(&mut agent, 2);
    let control = agent.control();
    let running = thread::spawn(move || {
        let bad = || Settings::parse("mod = 1", Path::new("j.toml"));
        agent.run(&Notifier::to(None, None), bad).unwrap();
        agent.managed()
    });
    control.reload();
    until("it is told", || {
        load.log
            .lines()
            .iter()
            .any(|line| line.contains("unknown key mod"))
    });
    control.stop();
    assert_eq!(running.join().unwrap(), 3);
}

#[test]
fn groups_that_join_and_leave_are_followed_and_logged() {
    let mut load = Load::new();
    let mut agent = load.agent(load.settings(Mode::Proportional));
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
            load.log.lines().iter().any(|logged| logged == line),
            "{line}: {:?}",
            load.log.lines()
        );
    }
    agent.finish().unwrap();
}

#[test]
fn a_quiet_group_is_read_seldom_and_wakes_at_once() {
    let mut load = Load::new();
    let mut agent = load.agent(load.settings(Mode::Observe));
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
