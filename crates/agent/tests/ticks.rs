//! The agent streams the policy's input and its decision, so each step can be repeated.

mod common;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use common::contended_host;
use justitia_agent::socket::{ticks, Server};
use justitia_agent::{Log, Settings};
use justitia_observe::{Sample, TrafficSource, Watched};
use justitia_policy::config::Mode;
use justitia_policy::snapshot::GroupId;
use justitia_policy::units::{Bytes, Weight};
use justitia_policy::worth::{Curve, Point};
use justitia_policy::{step, Config, Plan, Snapshot, State};
use serde::Deserialize;

#[derive(Deserialize)]
struct Tick {
    count: u64,
    elapsed_ns: u64,
    config: Config,
    snapshot: Snapshot,
    plan: Plan,
    before: Option<Before>,
}

#[derive(Deserialize)]
struct Before {
    state: State,
}

#[test]
fn each_step_of_a_running_agent_can_be_repeated_to_the_last_bit() {
    let dir = tempfile::tempdir().unwrap();
    let fake = contended_host(&["light", "heavy"]);
    let settings = Settings {
        manage: vec!["/app/*".into()],
        weights: vec![("/app/heavy".into(), Weight::new(800).unwrap())],
        state_dir: dir.path().to_owned(),
        ..Settings::default()
    };
    let socket = settings.socket();
    let mut agent = common::agent(&fake, settings, &Log::captured());
    let server = Server::listen(&socket, agent.board()).unwrap();
    let never = AtomicBool::new(false);
    let mut listener = None;
    let mut state: Option<State> = None;
    for second in 1..=20_u64 {
        for (pid, rate) in [(100, 30 << 20), (101, 10 << 20)] {
            fake.process_io(pid, 0, second * rate);
        }
        for path in ["/app/light", "/app/heavy"] {
            fake.update(path, |group| group.io_some_us = second * 600_000);
        }
        std::thread::sleep(Duration::from_millis(7));
        agent.tick();
        // A client that connects in the middle gets the policy's state of that time.
        if second < 8 {
            continue;
        }
        let listener = listener.get_or_insert_with(|| ticks::follow(&socket).unwrap());
        let tick: Tick = listener.next(&never).unwrap().unwrap();
        assert_eq!(tick.count, second);
        let before = match tick.before {
            Some(before) => before.state,
            None => state.take().expect("the first tick says it"),
        };
        let elapsed = Duration::from_nanos(tick.elapsed_ns);
        let (next, plan) = step(&before, &tick.snapshot, &tick.config, elapsed);
        assert_eq!(plan, tick.plan, "step {second}");
        state = Some(next);
    }
    assert!(!fake.writes().is_empty(), "the agent was at work");
    drop(server);
    agent.finish().unwrap();
}

/// A source that knows the worth of page cache for every group.
struct Knowing;

impl TrafficSource for Knowing {
    fn sample(&mut self, groups: &[Watched<'_>], out: &mut Vec<Sample>) {
        out.clear();
        out.resize(groups.len(), Sample::default());
    }

    fn worth(&self, group: GroupId) -> Option<Curve> {
        let point = Point {
            cache: Bytes::mib(1),
            hit_ratio: 0.5,
        };
        Curve::new(vec![point], group.0 as f64)
    }

    fn name(&self) -> &'static str {
        "knowing"
    }
}

#[test]
fn the_policy_is_told_what_page_cache_is_worth_to_each_managed_group() {
    let dir = tempfile::tempdir().unwrap();
    let fake = contended_host(&["light", "heavy"]);
    let settings = common::agent_settings(dir.path(), Mode::Observe);
    let socket = settings.socket();
    let mut agent = common::agent(&fake, settings, &Log::captured());
    agent.count_by(Box::new(Knowing));
    let server = Server::listen(&socket, agent.board()).unwrap();
    let mut listener = ticks::follow(&socket).unwrap();
    agent.tick();
    let never = AtomicBool::new(false);
    let tick: Tick = listener.next(&never).unwrap().unwrap();
    for group in &tick.snapshot.groups {
        let told = group.worth.as_ref().map(Curve::asked_per_s);
        let known = group.weight.map(|_| group.id.0 as f64);
        assert_eq!(told, known, "{}", group.path);
    }
    drop(server);
    agent.finish().unwrap();
}
