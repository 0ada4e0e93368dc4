//! Shared by the tests: a fake host with an applier on it, and plans written by hand.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use justitia_agent::apply::{Applier, Writers};
use justitia_agent::journal::Journal;
use justitia_agent::observe::{Observation, Observer};
use justitia_agent::restore::{restore, Restored};
use justitia_agent::{Agent, Log, Settings};
use justitia_cgroup::{FakeFs, Fs, WriterConfig};
use justitia_discover::{DiscoverConfig, RuntimeDirs};
use justitia_policy::config::Mode;
use justitia_policy::plan::{Knob, Plan, Reason, Value, Write};
use justitia_policy::snapshot::{GroupId, Host};
use justitia_policy::units::{Bytes, Limit, Weight};
use justitia_report::status::Problem;
use tempfile::TempDir;

pub const BOOT: &str = "test-boot";

/// A fake host with these groups below `/app`.
pub fn host(names: &[&str]) -> Arc<FakeFs> {
    let fake = FakeFs::new();
    for name in names {
        fake.mkdir(&format!("/app/{name}"));
    }
    fake
}

/// The memory of a host that is full.
pub fn full() -> Host {
    Host {
        total: Some(Bytes::mib(768)),
        free: Some(Bytes::mib(12)),
        file: Some(Bytes::mib(600)),
        high_watermark: Some(Bytes::mib(16)),
        ..Host::default()
    }
}

/// A full host with these groups and a disk with BFQ. `/app/light` and `/app/heavy` (pids 100 and 101) hold
/// much and have written a good deal of it. The test decides what they do.
pub fn contended_host(names: &[&str]) -> Arc<FakeFs> {
    let fake = host(names);
    fake.set_host(full());
    fake.add_disk("sda", false);
    for (pid, name) in (100..).zip(["light", "heavy"]) {
        let path = format!("/app/{name}");
        fake.spawn(pid, &path);
        fake.update(&path, |group| {
            group.bfq_weight = Some(100);
            group.anon = Bytes::mib(10);
            group.file = Bytes::mib(300);
            group.file_dirty = Bytes::mib(30);
        });
    }
    fake
}

pub const NAMES: [&str; 3] = ["light", "heavy", "idle"];
pub const KNOBS: [&str; 4] = ["memory.low", "memory.high", "io.weight", "io.bfq.weight"];

/// Settings of an agent that manages `/app/*` of a contended host.
pub fn agent_settings(state: &Path, mode: Mode) -> Settings {
    Settings {
        mode,
        manage: vec!["/app/*".into()],
        weights: vec![("/app/heavy".into(), Weight::new(800).unwrap())],
        state_dir: state.to_owned(),
        interval: Duration::from_millis(250),
        ..Settings::default()
    }
}

pub fn agent(fake: &Arc<FakeFs>, settings: Settings, log: &Log) -> Agent {
    Agent::new(
        fake.clone(),
        settings,
        RuntimeDirs::none(),
        BOOT,
        log.clone(),
    )
    .unwrap()
}

/// A full host on which light and heavy write as fast as they can, light most, and its agents' state and log.
pub struct Load {
    pub fake: Arc<FakeFs>,
    pub state: TempDir,
    pub log: Log,
    ticks: u64,
}

impl Load {
    pub fn new() -> Load {
        Load {
            fake: contended_host(&NAMES),
            state: tempfile::tempdir().unwrap(),
            log: Log::captured(),
            ticks: 0,
        }
    }

    pub fn settings(&self, mode: Mode) -> Settings {
        agent_settings(self.state.path(), mode)
    }

    pub fn agent(&self, settings: Settings) -> Agent {
        agent(&self.fake, settings, &self.log)
    }

    /// One second of it.
    pub fn second(&mut self) {
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

    pub fn knobs(&self) -> Vec<Option<String>> {
        let paths = NAMES
            .iter()
            .map(|name| format!("/app/{name}"))
            .chain(["/app".into()]);
        paths
            .flat_map(|path| KNOBS.map(|knob| self.fake.text(&path, knob)))
            .collect()
    }

    pub fn steps(&mut self, agent: &mut Agent, steps: u32) {
        for _ in 0..steps {
            self.second();
            agent.tick();
            // Lets the writes arrive and the measured time be what the policy expects.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub fn config() -> DiscoverConfig {
    DiscoverConfig::managing(&["/app/*"])
}

pub fn limit(bytes: u64) -> Value {
    Value::Limit(Limit::Bytes(Bytes(bytes)))
}

pub fn write(group: GroupId, knob: Knob, value: Value) -> Write {
    Write {
        group,
        knob,
        value,
        reason: Reason::NoContention,
    }
}

/// Observer and applier on a host, driven by plans of the test.
pub struct Rig {
    pub fs: Fs,
    pub observer: Observer,
    pub applier: Applier,
    pub log: Log,
}

impl Rig {
    pub fn new(fs: Fs, state_dir: &Path) -> Rig {
        Rig::with_writer(
            fs,
            state_dir,
            WriterConfig {
                workers: 1,
                ..WriterConfig::default()
            },
        )
    }

    pub fn with_writer(fs: Fs, state_dir: &Path, config: WriterConfig) -> Rig {
        let log = Log::captured();
        let journal = Journal::open(state_dir, BOOT).unwrap();
        let applier = Applier::new(journal, Writers::start(config).unwrap(), log.clone());
        let observer = Observer::new(fs.clone(), self::config(), RuntimeDirs::none()).unwrap();
        let mut rig = Rig {
            fs,
            observer,
            applier,
            log,
        };
        rig.look();
        rig
    }

    /// Does what the agent's loop does before it decides.
    pub fn look(&mut self) -> Observation {
        self.observer.look_for_groups();
        self.applier.settle(&mut self.observer);
        self.observer.set_priors(self.applier.priors());
        let observation = self.observer.observe();
        self.applier.forget_vanished(&self.fs, &self.observer);
        self.applier.retain_foreign(&self.observer);
        self.applier
            .check(&observation.knobs_read, &mut self.observer);
        observation
    }

    /// Applies a plan without waiting for its writes.
    pub fn submit(&mut self, writes: Vec<Write>) -> Vec<Problem> {
        let plan = Plan {
            writes,
            ..Plan::default()
        };
        self.applier.apply(&plan, &mut self.observer)
    }

    /// Applies a plan and waits for its writes.
    pub fn apply(&mut self, writes: Vec<Write>) -> Vec<Problem> {
        let problems = self.submit(writes);
        self.applier.quiesce();
        problems
    }

    /// Does what the agent does at its end.
    pub fn finish(mut self) -> Restored {
        let fs = self.fs.clone();
        let (journal, writer) = self.applier.quiesce();
        let restored = restore(&fs, journal, writer);
        self.applier.into_journal().close().unwrap();
        restored
    }
}

/// A host with the group `/app/a`, and a rig on it with its state directory.
pub fn one_group() -> (Arc<FakeFs>, GroupId, TempDir, Rig) {
    let fake = host(&["a"]);
    let state = tempfile::tempdir().unwrap();
    let rig = Rig::new(fake.clone(), state.path());
    let a = fake.mkdir("/app/a");
    (fake, a, state, rig)
}

/// Does what the next start after a crash does, or `justitia restore`.
pub fn restore_from(fs: &Fs, state_dir: &Path) -> Restored {
    let mut journal = Journal::open(state_dir, BOOT).unwrap();
    let writers = Writers::start(WriterConfig::default()).unwrap();
    restore(fs, &mut journal, &writers)
}

/// A knob's text without the line break.
pub fn text(fake: &FakeFs, path: &str, knob: Knob) -> String {
    fake.text(path, knob.file_name())
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "not in time: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
