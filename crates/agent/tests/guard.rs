//! The guard on a fake host: `memory.reclaim` takes what the plan says, and its failures affect nobody else.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{config, contended_host, limit, text, until, write, Rig};
use justitia_agent::socket::{reserve, Server};
use justitia_agent::{Agent, Log, Settings};
use justitia_cgroup::fake::{Fault, Gate};
use justitia_cgroup::FakeFs;
use justitia_policy::config::{Amount, GuardConfig};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::units::Bytes;
use rustix::io::Errno;

const RECLAIM: Knob = Knob::MemoryReclaim;

fn ask(mib: u64) -> Value {
    Value::Reclaim(Bytes::mib(mib))
}

fn asked(fake: &FakeFs) -> Vec<(String, String)> {
    let writes = fake.writes().into_iter();
    let reclaims = writes.filter(|(_, file, _)| file == "memory.reclaim");
    reclaims.map(|(path, _, text)| (path, text)).collect()
}

/// Looks until the requested reclaim has ended.
fn settled(rig: &mut Rig, asked: u64) {
    until("the reclaim ends", || {
        rig.look();
        rig.applier.reclaimed().asked == asked
    });
}

#[test]
fn reclaimed_memory_is_counted_and_a_partial_reclaim_is_no_problem() {
    let fake = contended_host(&["light", "heavy"]);
    let state = tempfile::tempdir().unwrap();
    let (light, heavy) = (fake.mkdir("/app/light"), fake.mkdir("/app/heavy"));
    let mut rig = Rig::new(fake.clone(), state.path());
    rig.submit(vec![write(light, RECLAIM, ask(20))]);
    settled(&mut rig, 20 << 20);
    assert_eq!(fake.group("/app/light").file, Bytes::mib(280));
    fake.inject("/app/heavy", "memory.reclaim", Fault::Errno(Errno::AGAIN));
    let problems = rig.submit(vec![write(heavy, RECLAIM, ask(8))]);
    settled(&mut rig, 28 << 20);
    let totals = rig.applier.reclaimed();
    assert_eq!((totals.taken, totals.partial), (20 << 20, 1));
    assert!(problems.is_empty());
    assert!(rig.finish().problems.is_empty());
}

#[test]
fn a_kernel_without_the_swappiness_argument_is_asked_without_it() {
    let fake = contended_host(&["light", "heavy"]);
    fake.inject("/app/light", "memory.reclaim", Fault::NoSwappiness);
    let state = tempfile::tempdir().unwrap();
    let light = fake.mkdir("/app/light");
    let mut rig = Rig::new(fake.clone(), state.path());
    for round in 1..=2 {
        rig.submit(vec![write(light, RECLAIM, ask(4))]);
        settled(&mut rig, round * (4 << 20));
    }
    let texts: Vec<String> = asked(&fake).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["4194304 swappiness=0", "4194304", "4194304"]);
}

#[test]
fn a_slow_reclaim_holds_up_neither_limits_nor_itself() {
    let fake = contended_host(&["light", "heavy"]);
    let gate = Gate::new();
    for name in ["/app/light", "/app/heavy"] {
        fake.inject(name, "memory.reclaim", Fault::Slow(gate.clone()));
    }
    let state = tempfile::tempdir().unwrap();
    let (light, heavy) = (fake.mkdir("/app/light"), fake.mkdir("/app/heavy"));
    let mut rig = Rig::new(fake.clone(), state.path());
    rig.submit(vec![
        write(light, RECLAIM, ask(4)),
        write(heavy, RECLAIM, ask(4)),
    ]);
    until("it hangs", || gate.waiting() >= 1);
    for mib in [90, 80, 70] {
        let wanted = (mib << 20).to_string();
        // The plan repeats at each step: a value on its way is not written a second time.
        until("limits and protection arrive", || {
            rig.submit(vec![
                write(light, RECLAIM, ask(4)),
                write(light, Knob::MemoryHigh, limit(mib << 20)),
                write(heavy, Knob::MemoryLow, limit(mib << 20)),
            ]);
            rig.look();
            text(&fake, "/app/light", Knob::MemoryHigh) == wanted
                && text(&fake, "/app/heavy", Knob::MemoryLow) == wanted
        });
    }
    let of_light = asked(&fake)
        .iter()
        .filter(|(path, _)| path == "/app/light")
        .count();
    assert_eq!(of_light, 1, "not asked again while it hangs");
    gate.open();
    settled(&mut rig, 8 << 20);
    rig.submit(vec![write(light, RECLAIM, ask(4))]);
    settled(&mut rig, 12 << 20);
}

#[test]
fn a_group_that_vanishes_meanwhile_is_no_problem() {
    let fake = contended_host(&["light", "heavy"]);
    let state = tempfile::tempdir().unwrap();
    let light = fake.mkdir("/app/light");
    let mut rig = Rig::new(fake.clone(), state.path());
    fake.rmdir("/app/light");
    let problems = rig.submit(vec![write(light, RECLAIM, ask(4))]);
    assert!(problems.is_empty());
    std::thread::sleep(Duration::from_millis(50));
    assert!(rig.applier.settle(&mut rig.observer).is_empty());
    assert!(asked(&fake).is_empty());
}

fn agent(fake: &Arc<FakeFs>, state: &std::path::Path, guard: GuardConfig) -> Agent {
    let settings = Settings {
        manage: config().manage,
        state_dir: state.to_owned(),
        guard,
        ..Settings::default()
    };
    common::agent(fake, settings, &Log::captured())
}

fn guarded() -> GuardConfig {
    GuardConfig {
        enabled: true,
        reserve: Amount::Bytes(Bytes::mib(64)),
        ..GuardConfig::default()
    }
}

#[test]
fn off_by_default_it_asks_for_nothing() {
    let fake = contended_host(&["light", "heavy"]);
    let state = tempfile::tempdir().unwrap();
    let mut agent = agent(&fake, state.path(), GuardConfig::default());
    agent.tick();
    assert!(agent.board().report().guard.is_none());
    agent.finish().unwrap();
    assert!(asked(&fake).is_empty());
}

#[test]
fn a_standing_reserve_is_made_free_and_reported() {
    let fake = contended_host(&["light", "heavy"]);
    // A group that holds little gives nothing; the other one holds too much.
    fake.update("/app/light", |group| group.file = Bytes::mib(2));
    fake.update("/app/heavy", |group| group.file = Bytes::mib(590));
    let state = tempfile::tempdir().unwrap();
    let mut agent = agent(&fake, state.path(), guarded());
    agent.tick();
    until("it asks", || !asked(&fake).is_empty());
    assert!(
        asked(&fake).iter().all(|(path, _)| path == "/app/heavy"),
        "{:?}",
        asked(&fake)
    );
    let guard = agent.board().report().guard.unwrap();
    assert_eq!(guard.reserve_bytes, 64 << 20);
    assert!(guard.missing_bytes > 0 && guard.asked_bytes > 0);
    let written = agent.board().report().writes;
    let reclaim = written.iter().find(|write| write.knob == RECLAIM).unwrap();
    assert!(
        reclaim.because.contains("above its share"),
        "{}",
        reclaim.because
    );
    agent.finish().unwrap();
}

#[test]
fn page_cache_of_unmanaged_groups_is_reclaimed_from_the_root() {
    let fake = contended_host(&["light", "heavy"]);
    for name in ["/app/light", "/app/heavy"] {
        fake.update(name, |group| group.file = Bytes::mib(20));
    }
    let state = tempfile::tempdir().unwrap();
    let mut agent = agent(&fake, state.path(), guarded());
    agent.tick();
    until("it asks", || {
        asked(&fake).iter().any(|(path, _)| path == "/")
    });
    let report = agent.board().report();
    assert!(report.writes.iter().any(|write| write.path == "/"));
    fake.set_multi_generational(true);
    fake.clear_writes();
    for _ in 0..3 {
        agent.tick();
    }
    assert!(
        asked(&fake).iter().all(|(path, _)| path != "/"),
        "it would take from the protected"
    );
    assert_eq!(
        agent.board().report().guard.unwrap().unmanaged_share_bytes,
        None
    );
    agent.finish().unwrap();
}

#[test]
fn a_reservation_is_made_and_reported_and_expires_without_leaving_a_limit() {
    let fake = contended_host(&["light", "heavy", "later"]);
    let state = tempfile::tempdir().unwrap();
    let socket = state.path().join("test.sock");
    let mut agent = agent(&fake, state.path(), GuardConfig::default());
    agent.tick();
    let _server = Server::listen(&socket, agent.board()).unwrap();
    let second = Duration::from_secs(1);
    reserve::reserve(&socket, "later", Bytes::mib(300), second).unwrap();
    agent.tick();
    let guard = agent.board().report().guard.unwrap();
    assert_eq!(guard.reservations[0].path, "/app/later");
    assert_eq!(guard.reserved_bytes, 300 << 20);
    until("others are limited", || {
        text(&fake, "/app/heavy", Knob::MemoryHigh) != "max"
    });
    assert_eq!(text(&fake, "/app/later", Knob::MemoryHigh), "max");
    std::thread::sleep(Duration::from_millis(1100));
    agent.tick();
    assert!(agent.board().report().guard.is_none());
    until("the limit is lifted", || {
        agent.tick();
        text(&fake, "/app/heavy", Knob::MemoryHigh) == "max"
    });
    agent.finish().unwrap();
}
