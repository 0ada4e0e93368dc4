//! A client gets every tick, or the number of ticks that it missed; no client delays the board.

use serde_json::Value;

use super::super::{Server, Step};
use super::*;
use crate::status::{Setup, Tick as Posting};

use justitia_policy::snapshot::Group;

struct Rig {
    board: Arc<Board>,
    server: Option<Server>,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let board = Arc::new(Board::new(Setup::default()));
        let server = Server::listen(&path, board.clone()).unwrap();
        Rig {
            board,
            server: Some(server),
            path,
            _dir: dir,
        }
    }

    fn post(&self, count: u64, groups: usize) {
        let group: Group = serde_json::from_value(serde_json::json!({
            "id": 7, "path": format!("/app/{}", "x".repeat(100)), "weight": 100,
            "weight_source": "default", "memory": {}, "traffic": {}, "pressure": {},
            "knobs": {"reclaim": false,
                      "foreign": {"low": false, "high": false, "io_weight": false}},
        }))
        .unwrap();
        let tick = Posting {
            snapshot: Snapshot {
                groups: vec![group; groups],
                ..Snapshot::default()
            },
            count,
            ..Posting::default()
        };
        self.board.post_step(tick, step());
    }
}

fn step() -> Step {
    Step {
        at: UNIX_EPOCH + Duration::from_millis(1500),
        elapsed: Duration::new(1, 7),
        policy: Config::default(),
        before: Arc::default(),
    }
}

fn next(ticks: &mut Ticks) -> Value {
    let never = AtomicBool::new(false);
    ticks.next(&never).unwrap().expect("a tick")
}

#[test]
fn a_listener_gets_each_tick_with_its_configuration_and_state() {
    let rig = Rig::new();
    rig.post(5, 1);
    let mut ticks = follow(&rig.path).unwrap();
    assert_eq!(ticks.version(), env!("CARGO_PKG_VERSION"));
    let first = next(&mut ticks);
    assert_eq!(first["count"], 5);
    assert_eq!(first["missed"], 0);
    assert_eq!(first["at_unix_ms"], 1500);
    assert_eq!(first["elapsed_ns"], 1_000_000_007);
    assert_eq!(first["config"]["mode"], "proportional");
    assert_eq!(first["before"]["version"], STATE_VERSION);
    rig.post(6, 1);
    let second = next(&mut ticks);
    assert_eq!(
        (&second["count"], &second["missed"]),
        (&6.into(), &0.into())
    );
    assert!(second.get("before").is_none(), "it follows from the first");
}

#[test]
fn ticks_that_a_slow_client_misses_are_counted_and_the_loop_does_not_wait() {
    let rig = Rig::new();
    rig.post(1, 1);
    let mut ticks = follow(&rig.path).unwrap();
    next(&mut ticks);
    let began = Instant::now();
    // Far more than the socket's buffers hold.
    for count in 2..=100 {
        rig.post(count, 2000);
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    let mut seen = 1;
    while seen < 100 {
        let tick = next(&mut ticks);
        let count = tick["count"].as_u64().unwrap();
        let missed = tick["missed"].as_u64().unwrap();
        assert_eq!(seen + missed + 1, count);
        assert_eq!(missed > 0, tick.get("before").is_some());
        seen = count;
    }
}

#[test]
fn a_listener_is_told_to_stop_and_notices_that_the_agent_ended() {
    let mut rig = Rig::new();
    let mut ticks = follow(&rig.path).unwrap();
    let stop = AtomicBool::new(true);
    assert!(ticks.next::<Value>(&stop).unwrap().is_none());
    rig.server = None;
    let never = AtomicBool::new(false);
    assert!(ticks.next::<Value>(&never).unwrap().is_none());
    assert!(follow(&rig.path).unwrap_err().cause.contains("no agent"));
}

#[test]
fn there_is_a_limit_to_listeners_and_one_that_leaves_makes_room() {
    let rig = Rig::new();
    let mut listeners: Vec<Ticks> = (0..MOST_CLIENTS)
        .map(|_| follow(&rig.path).unwrap())
        .collect();
    let refused = follow(&rig.path).unwrap_err();
    assert!(refused.cause.contains("4 clients"), "{refused}");
    listeners.pop();
    // The thread notices the closed connection at its next write.
    let began = Instant::now();
    let mut count = 0;
    while follow(&rig.path).is_err() {
        assert!(began.elapsed() < Duration::from_secs(10));
        count += 1;
        rig.post(count, 1);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_tick_without_its_step_is_no_tick_to_record() {
    let rig = Rig::new();
    let mut ticks = follow(&rig.path).unwrap();
    rig.board.post(Posting {
        count: 1,
        ..Posting::default()
    });
    let never = AtomicBool::new(false);
    let error = ticks.next::<Value>(&never).unwrap_err();
    assert!(error.cause.contains("does not stream"), "{error}");
}
