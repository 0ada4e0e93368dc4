//! The kernel module's gate on a fake host: held while it is wanted, fed what the policy decides, and
//! let go with nothing left in it.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{agent_settings, contended_host};
use justitia_agent::config::GateSettings;
use justitia_agent::socket::{gate, Server};
use justitia_agent::{Agent, Log, Settings};
use justitia_cgroup::fake::FakeGate;
use justitia_cgroup::gate::Order;
use justitia_cgroup::{CgroupFs, FakeFs, GroupId};
use justitia_policy::config::Mode;

fn settings(state: &Path, mode: Mode) -> Settings {
    Settings {
        gate: GateSettings {
            enabled: true,
            order: Order::Aging,
            aging: 50,
        },
        ..agent_settings(state, mode)
    }
}

struct Rig {
    fake: Arc<FakeFs>,
    gate: FakeGate,
    agent: Agent,
    ids: [GroupId; 2],
    _state: tempfile::TempDir,
}

fn rig(mode: Mode, change: impl FnOnce(&mut Settings)) -> Rig {
    let fake = contended_host(&["light", "heavy"]);
    let ids = ["/app/light", "/app/heavy"].map(|path| fake.mkdir(path));
    let gate = FakeGate::loaded();
    fake.set_gate(Some(gate.clone()));
    let state = tempfile::tempdir().unwrap();
    let mut settings = settings(state.path(), mode);
    change(&mut settings);
    let agent = common::agent(&fake, settings, &Log::captured());
    Rig {
        fake,
        gate,
        agent,
        ids,
        _state: state,
    }
}

impl Rig {
    fn causes(&self) -> Vec<String> {
        let problems = self.agent.board().report().problems.into_iter();
        problems.map(|problem| problem.cause).collect()
    }
}

#[test]
fn the_gate_is_held_fed_and_closed_and_at_the_end_nothing_is_left_in_it() {
    let mut rig = rig(Mode::Justitia, |_| ());
    rig.agent.tick();
    assert!(rig.gate.is_held() && rig.gate.is_closed());
    let root = rig.fake.open("/").unwrap().id();
    let fed = [(root, 100), (rig.ids[0], 100), (rig.ids[1], 800)];
    assert_eq!(rig.gate.weights(), fed.into());
    let config = rig.gate.settings();
    assert_eq!((config.order(), config.aging), (Some(Order::Aging), 50));
    rig.agent.tick();
    assert_eq!(rig.gate.told().len(), 3, "what it knows is not told again");
    let beats = rig.gate.heartbeats();
    common::until("it beats without a step", || rig.gate.heartbeats() > beats);

    let report = rig.agent.board().report();
    let status = report.gate.as_ref().unwrap();
    assert!(status.held && status.is_closed());
    assert_eq!((status.order.as_str(), status.groups), ("aging", 3));
    assert_eq!(report.find("heavy").unwrap().gate.unwrap().weight, 800);

    let told = rig.gate.told().len();
    rig.agent.finish().unwrap();
    assert!(!rig.gate.is_held() && !rig.gate.is_closed());
    assert_eq!(rig.gate.told().len(), told, "closing the file is enough");
}

#[test]
fn a_group_that_vanishes_is_taken_out_and_one_that_comes_is_fed() {
    let mut rig = rig(Mode::Justitia, |_| ());
    rig.agent.tick();
    rig.fake.rmdir("/app/light");
    let late = rig.fake.mkdir("/app/late");
    // Discovery scans when a change is reported, or after its own pause.
    common::until("the change is seen", || {
        rig.agent.tick();
        thread::sleep(Duration::from_millis(20));
        !rig.gate.weights().contains_key(&rig.ids[0]) && rig.gate.weights().contains_key(&late)
    });
    assert_eq!(rig.gate.weights()[&rig.ids[1]], 800);
}

#[test]
fn modes_without_weights_and_hosts_without_a_wish_leave_the_gate_alone() {
    for mode in [Mode::Observe, Mode::Memoplight] {
        let mut rig = rig(mode, |_| ());
        rig.agent.tick();
        assert!(!rig.gate.is_held() && rig.gate.told().is_empty());
        assert!(rig.agent.board().report().gate.is_none());
    }
    let mut rig = rig(Mode::Proportional, |settings| settings.gate.enabled = false);
    rig.agent.tick();
    assert!(!rig.gate.is_held());
}

#[test]
fn a_missing_module_is_a_problem_of_the_report_until_it_is_loaded() {
    let mut rig = rig(Mode::Proportional, |_| ());
    rig.fake.set_gate(None);
    rig.agent.tick();
    let causes = rig.causes();
    assert!(
        causes
            .iter()
            .any(|c| c.starts_with("gate: ") && c.contains("not loaded")),
        "{causes:?}"
    );
    assert!(rig.agent.board().report().gate.is_none());
    rig.fake.set_gate(Some(rig.gate.clone()));
    rig.agent.tick();
    assert!(rig.gate.is_closed() && rig.causes().is_empty());
}

#[test]
fn a_gate_that_refuses_is_released_and_the_step_goes_on() {
    let mut rig = rig(Mode::Justitia, |_| ());
    rig.agent.tick();
    rig.gate.refuse(true);
    common::until("it is let go", || {
        rig.agent.tick();
        !rig.gate.is_held()
    });
    assert!(rig.causes().iter().any(|cause| cause.contains("refused")));
    let report = rig.agent.board().report();
    assert_eq!(report.groups.len(), 2);
    rig.gate.refuse(false);
    rig.agent.tick();
    assert!(rig.gate.is_closed(), "it is tried again");
    assert_eq!(rig.gate.weights().len(), 3);
}

#[test]
fn a_weight_that_is_refused_is_a_problem_and_the_others_are_ordered() {
    let mut rig = rig(Mode::Justitia, |_| ());
    rig.gate.refuse_group(Some(rig.ids[0]));
    for _ in 0..3 {
        rig.agent.tick();
        assert!(rig.gate.is_closed(), "it stays closed");
        let causes = rig.causes();
        assert!(
            causes.iter().any(|cause| cause.contains("refused")),
            "{causes:?}"
        );
    }
    assert_eq!(rig.gate.weights()[&rig.ids[1]], 800);
    let told = rig.gate.told();
    assert_eq!(told.len(), 2, "who was fed is not fed again: {told:?}");
    rig.gate.refuse_group(None);
    rig.agent.tick();
    assert_eq!(rig.gate.weights()[&rig.ids[0]], 100);
    assert!(rig.causes().is_empty());
}

#[test]
fn a_gate_is_held_through_an_interval_longer_than_the_module_waits() {
    let mut rig = rig(Mode::Justitia, |settings| {
        settings.interval = Duration::from_secs(30);
    });
    rig.agent.tick();
    assert!(rig.gate.is_closed() && rig.causes().is_empty());
    let beats = rig.gate.heartbeats();
    common::until("it beats", || rig.gate.heartbeats() > beats);
}

#[test]
fn the_gate_is_taken_and_released_over_the_socket() {
    let mut rig = rig(Mode::Justitia, |settings| settings.gate.enabled = false);
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent.sock");
    let server = Server::listen(&socket, rig.agent.board()).unwrap();
    rig.agent.tick();
    let ask = |on: bool, rig: &mut Rig| {
        let path = socket.clone();
        let asking = thread::spawn(move || gate::set(&path, on));
        while !asking.is_finished() {
            rig.agent.tick();
            thread::sleep(Duration::from_millis(5));
        }
        asking.join().unwrap()
    };
    let report = ask(true, &mut rig).unwrap();
    assert!(report.gate.unwrap().is_closed() && rig.gate.is_closed());
    let report = ask(false, &mut rig).unwrap();
    assert!(report.gate.is_none() && !rig.gate.is_held());
    rig.fake.set_gate(None);
    let error = ask(true, &mut rig).unwrap_err();
    assert_eq!(error.exit.code(), 69);
    assert!(error.cause.contains("not loaded") && error.remedy.contains("modprobe"));
    drop(server);
    let error = gate::set(&socket, true).unwrap_err();
    assert!(error.cause.contains("no agent listens"), "{}", error.cause);
}

#[test]
fn an_agent_that_only_observes_is_not_made_to_hold_it() {
    let mut rig = rig(Mode::Observe, |_| ());
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent.sock");
    let _server = Server::listen(&socket, rig.agent.board()).unwrap();
    rig.agent.tick();
    let error = gate::set(&socket, true).unwrap_err();
    assert!(
        error.cause.contains("does not use weights"),
        "{}",
        error.cause
    );
}
