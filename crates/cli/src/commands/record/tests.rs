//! Tests that a record contains the agent's stream, and that a replay reproduces it.

use std::sync::Arc;

use justitia_agent::observe::Observer;
use justitia_agent::socket::{Board, Server};
use justitia_cgroup::{FakeFs, Fs};
use justitia_discover::RuntimeDirs;
use justitia_policy::config::Mode;
use justitia_record::{Item, Options, Reader, Replayer};
use justitia_report::status::Setup;

use super::*;

fn host() -> Arc<FakeFs> {
    let fake = FakeFs::new();
    for name in ["db", "web"] {
        fake.mkdir(&format!("/app/{name}"));
    }
    fake
}

fn args(file: &Path) -> RecordArgs {
    RecordArgs {
        file: file.to_owned(),
        append: false,
        seconds: None,
        config: crate::settings::ConfigArgs::default(),
        globs: GlobArgs::default(),
        interval: None,
    }
}

fn settings(dir: &Path) -> Settings {
    Settings {
        manage: vec!["/app/*".into()],
        state_dir: dir.to_owned(),
        interval: Duration::from_millis(20),
        ..Settings::default()
    }
}

fn recorder(file: &Path) -> Recorder {
    Recorder::new(Writer::open(file, false).unwrap(), &args(file))
}

/// The ticks of a file, each with whether a replay decides the same plan.
fn replayed(file: &Path) -> Vec<(Tick, bool)> {
    let mut replayer = Replayer::new(Options::as_recorded());
    let items = Reader::open(file).unwrap().map(|item| item.unwrap());
    let steps = items.filter_map(|item| match item {
        Item::Tick(tick) => Some(replayer.step(*tick)),
        Item::Session(_) => {
            replayer.session();
            None
        }
        _ => None,
    });
    steps.map(|step| (step.tick.clone(), step.same())).collect()
}

/// Runs an observer on a fake host with changing counters.
fn steps(fake: &Arc<FakeFs>, settings: &Settings, see: &mut dyn FnMut(status::Tick, Step) -> bool) {
    let fs: Fs = fake.clone();
    let observer = Observer::new(fs, settings.discover(), RuntimeDirs::none()).unwrap();
    let never = AtomicBool::new(false);
    fake.spawn(100, "/app/db");
    run::watch_by(observer, settings, Mode::Observe, &never, |tick, step| {
        fake.process_io(100, tick.count * 12_345, tick.count * 999_999);
        fake.update("/app/db", |group| group.file = Bytes::mib(tick.count));
        Ok(see(tick, step))
    })
    .unwrap();
}

#[test]
fn ticks_observed_without_an_agent_are_recorded_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("own.jrec");
    let mut recorder = recorder(&file);
    recorder
        .session(Source::Own, None, Duration::from_secs(1))
        .unwrap();
    let mut given = Vec::new();
    steps(&host(), &settings(dir.path()), &mut |tick, step| {
        let tick = own_tick(tick, &step);
        recorder.tick(&tick).unwrap();
        given.push(tick);
        given.len() < 70
    });
    assert!(recorder.summary(&file).contains("recorded 70 ticks"));
    recorder.writer.finish().unwrap();
    let found = replayed(&file);
    assert_eq!(found.len(), given.len());
    for ((tick, same), given) in found.iter().zip(&given) {
        assert_eq!(tick, given);
        assert!(same, "tick {}", tick.count);
    }
}

#[test]
fn ticks_streamed_by_an_agent_are_recorded_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.jrec");
    let settings = settings(dir.path());
    let board = Arc::new(Board::new(Setup {
        interval: settings.interval,
        ..Setup::default()
    }));
    let server = Server::listen(&settings.socket(), board.clone()).unwrap();
    assert!(is_listening(&settings.socket()));
    let agent = ticks::follow(&settings.socket()).unwrap();
    let mut recorder = recorder(&file);
    let stop = AtomicBool::new(false);
    let mut plans = Vec::new();
    thread::scope(|scope| {
        let following = scope.spawn(|| {
            recorder.follow(agent, &settings, &stop).unwrap();
            recorder
        });
        steps(&host(), &settings, &mut |tick, step| {
            plans.push((tick.count, tick.plan.clone()));
            board.post_step(tick, step);
            plans.len() < 10
        });
        thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Release);
        following.join().unwrap().writer.finish().unwrap();
    });
    drop(server);
    assert!(!is_listening(&settings.socket()));
    let found = replayed(&file);
    assert!(found.len() > 5, "{}", found.len());
    for (tick, same) in &found {
        let (_, plan) = plans.iter().find(|plan| plan.0 == tick.count).unwrap();
        assert_eq!(&tick.plan, plan);
        assert!(same, "tick {}", tick.count);
    }
}

#[test]
fn the_time_to_record_ends_without_a_tick() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let board = Arc::new(Board::new(Setup::default()));
    let server = Server::listen(&settings.socket(), board).unwrap();
    let agent = ticks::follow(&settings.socket()).unwrap();
    let mut recorder = recorder(&dir.path().join("silent.jrec"));
    recorder.end = Some(Duration::from_millis(100));
    let stop = Arc::default();
    recorder.set_deadline(&stop);
    recorder.follow(agent, &settings, &stop).unwrap();
    assert_eq!(recorder.ticks, 0);
    drop(server);
}

#[test]
fn failures_keep_their_kind() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("there.jrec");
    drop(Writer::open(&file, false).unwrap());
    let error = Writer::open(&file, false).unwrap_err();
    assert_eq!(error.exit.code(), 2);
    assert!(error.cause.contains("exists already") && error.remedy.contains("--append"));
    let nowhere = dir.path().join("no/such/dir/x.jrec");
    let error = Writer::open(&nowhere, false).unwrap_err();
    assert_eq!(error.exit.code(), 1);
}
