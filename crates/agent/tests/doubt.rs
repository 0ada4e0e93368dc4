//! The agent takes nothing for gone, old or its own unless it knows so for certain.

mod common;

use std::time::Duration;

use common::{
    config, contended_host, host, limit, one_group, restore_from, text, until, write, Rig,
};
use justitia_agent::restore::restore;
use justitia_cgroup::fake::{Fault, Gate};
use justitia_cgroup::{Fs, WriterConfig};
use justitia_discover::{DiscoverConfig, RuntimeDirs};
use justitia_policy::config::Mode;
use justitia_policy::plan::{Knob, Value};
use justitia_policy::units::{Limit, Weight};
use justitia_policy::{Config, State};
use rustix::io::Errno;

const HIGH: Knob = Knob::MemoryHigh;

#[test]
fn a_group_that_cannot_be_opened_for_now_is_restored_later() {
    for errno in [Errno::MFILE, Errno::ACCESS, Errno::NOMEM] {
        let (fake, a, state, mut rig) = one_group();
        rig.apply(vec![write(a, HIGH, limit(90 << 20))]);
        fake.shut("/app/a", Some(errno));
        // It is no longer managed, and the agent cannot tell whether it still exists.
        let elsewhere = DiscoverConfig {
            manage: vec!["/elsewhere/*".into()],
            ..config()
        };
        let reconfigured = rig.observer.reconfigure(elsewhere, RuntimeDirs::none());
        reconfigured.unwrap();
        rig.look();
        let unsure = rig.applier.forget_vanished(&rig.fs, &rig.observer);
        assert!(unsure.0.is_empty() && unsure.1.len() == 1, "{unsure:?}");
        let restored = rig.finish();
        assert_eq!((restored.vanished, restored.problems.len()), (0, 1));
        fake.shut("/app/a", None);
        assert_eq!(
            restore_from(&(fake.clone() as Fs), state.path()).restored,
            1
        );
        assert_eq!(text(&fake, "/app/a", HIGH), "max");
    }
}

#[test]
fn a_knob_is_forgotten_only_if_its_file_is_not_there() {
    for (fault, vanished) in [(Fault::Errno(Errno::OPNOTSUPP), 0), (Fault::Absent, 1)] {
        let (fake, a, _state, mut rig) = one_group();
        rig.apply(vec![write(a, HIGH, limit(90 << 20))]);
        fake.inject("/app/a", "memory.high", fault);
        let restored = rig.finish();
        assert_eq!(restored.vanished, vanished);
        assert_eq!(restored.problems.len(), 1 - vanished);
    }
}

#[test]
fn after_restoring_the_knobs_of_quiet_groups_are_read_at_once() {
    let (_fake, a, _state, mut rig) = one_group();
    rig.apply(vec![write(a, HIGH, limit(90 << 20))]);
    for _ in 0..50 {
        rig.look();
    }
    assert_eq!(rig.observer.knob(a, HIGH), Some(limit(90 << 20)));
    let (journal, writer) = rig.applier.quiesce();
    restore(&rig.fs, journal, writer);
    rig.observer.doubt_knobs();
    assert!(rig.look().knobs_read.contains(&a));
    assert_eq!(rig.observer.knob(a, HIGH), Some(Value::Limit(Limit::Max)));
}

#[test]
fn our_own_write_is_not_the_groups_weight_and_a_foreign_one_is() {
    let fake = host(&["a"]);
    let a = fake.mkdir("/app/a");
    fake.update("/app/a", |group| group.bfq_weight = Some(300));
    let state = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(fake.clone(), state.path());
    let weight = |rig: &Rig| rig.observer.seen(a).unwrap().weight.map(Weight::get);
    rig.apply(vec![write(a, Knob::IoBfqWeight, Value::Weight(777))]);
    let reconfigured = rig.observer.reconfigure(config(), RuntimeDirs::none());
    reconfigured.unwrap();
    rig.look();
    assert_eq!(weight(&rig), Some(300));
    fake.foreign_write("/app/a", "io.bfq.weight", "500");
    // The agent first looks whether a runtime's record explains it.
    for _ in 0..8 {
        rig.apply(vec![write(a, Knob::IoBfqWeight, Value::Weight(600))]);
        rig.look();
    }
    assert_eq!(weight(&rig), Some(500));
    assert_eq!(text(&fake, "/app/a", Knob::IoBfqWeight), "default 500");
}

#[test]
fn letting_go_of_a_group_forgets_no_write_to_another() {
    let fake = host(&["a", "b"]);
    let (a, b) = (fake.mkdir("/app/a"), fake.mkdir("/app/b"));
    let gate = Gate::new();
    fake.inject("/app/a", "memory.high", Fault::Slow(gate.clone()));
    let state = tempfile::tempdir().unwrap();
    let patient = WriterConfig {
        deadline: Duration::from_secs(60),
        ..WriterConfig::default()
    };
    let mut rig = Rig::with_writer(fake.clone(), state.path(), patient);
    rig.submit(vec![write(a, HIGH, limit(90 << 20))]);
    until("the write hangs", || gate.waiting() == 1);
    let fs = rig.fs.clone();
    assert!(rig.applier.put_back(&fs, |group| group == b).is_empty());
    rig.submit(vec![write(a, HIGH, limit(80 << 20))]);
    gate.open();
    until("its outcome was seen", || {
        rig.look();
        rig.submit(vec![write(a, HIGH, limit(70 << 20))]);
        fake.writes().len() > 1
    });
    let written: Vec<_> = fake.writes().into_iter().map(|write| write.2).collect();
    assert_eq!(written, [90 << 20, 70 << 20].map(|bytes| bytes.to_string()));
}

#[test]
fn an_unreadable_group_keeps_what_was_learned_of_it_and_in_the_end_loses_its_limit() {
    let fake = contended_host(&["light", "heavy"]);
    let light = fake.mkdir("/app/light");
    let state_dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(fake.clone(), state_dir.path());
    let config = Config {
        max_loss: 0.0,
        ..Config::in_mode(Mode::Proportional)
    };
    let (mut state, mut seconds) = (State::default(), 0);
    // One second of both writing, light most, and a step. Returns light's gain and the low of both.
    let mut second = |rig: &mut Rig| {
        seconds += 1;
        for (pid, path, rate) in [(100, "/app/light", 30 << 20), (101, "/app/heavy", 10 << 20)] {
            fake.process_io(pid, 0, seconds * rate);
            fake.update(path, |group| group.io_some_us += 600_000);
        }
        let observation = rig.look();
        let time = Duration::from_secs(1);
        let (next, plan) = justitia_policy::step(&state, &observation.snapshot, &config, time);
        state = next;
        rig.apply(plan.writes);
        let verdict = plan.verdicts.iter().find(|verdict| verdict.group == light);
        let low: u64 = text(&fake, "/app", Knob::MemoryLow).parse().unwrap();
        (verdict.map(|verdict| verdict.gain), low)
    };
    for _ in 0..12 {
        second(&mut rig);
    }
    let (gain, low) = second(&mut rig);
    assert!(gain < Some(0.5) && low > 0, "{gain:?} {low}");
    let limit = text(&fake, "/app/light", HIGH);
    fake.inject("/app/light", "memory.stat", Fault::Errno(Errno::NOMEM));
    assert_eq!(second(&mut rig).1, low);
    assert_eq!(text(&fake, "/app/light", HIGH), limit);
    fake.clear_faults("/app/light");
    second(&mut rig);
    assert!(second(&mut rig).0 < Some(0.5));
    fake.inject("/app/light", "memory.stat", Fault::Errno(Errno::NOMEM));
    assert_ne!(text(&fake, "/app/light", HIGH), "max");
    for _ in 0..15 {
        second(&mut rig);
    }
    assert_eq!(text(&fake, "/app/light", HIGH), "max");
}
