//! An agent without a host: serves made-up groups with changing numbers, for work on the screens.
//!
//! ```text
//! cargo run -p justitia-cli --example fake_agent -- /tmp/fake 8
//! justitia top --state-dir /tmp/fake
//! ```
//!
//! The counters are invented (waves, no randomness). The decisions are real: every tick goes through the
//! policy. Arguments: the state directory, and the number of groups (8 by default). It touches no cgroup and
//! needs no privileges. Ctrl-C ends it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use justitia_agent::socket::{Board, Server};
use justitia_policy::config::Config;
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::{
    CacheCounters, Group, GroupId, Host, Knobs, Memory, Pressure, Snapshot, Traffic, WeightSource,
};
use justitia_policy::units::{Bytes, Limit, Weight};
use justitia_policy::{step, State};
use justitia_report::status::{Setup, Tick};

const SECOND: Duration = Duration::from_secs(1);
const WEIGHTS: [u32; 4] = [100, 200, 400, 800];
const NAMES: [&str; 4] = ["web", "db", "batch", "backup"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().unwrap_or_else(|| "/tmp/fake".into()));
    let count: u64 = arguments.next().map_or(Ok(8), |count| count.parse())?;
    std::fs::create_dir_all(&dir)?;
    let config = Config::default();
    let board = Arc::new(Board::new(Setup {
        since: SystemTime::now(),
        ..Setup::default()
    }));
    let _server = Server::listen(&dir.join("agent.sock"), board.clone())?;

    let mut groups: Vec<Group> = std::iter::once(Group::new(GroupId(1), "/kubepods.slice"))
        .chain((0..count).map(group))
        .collect();
    let priors: BTreeMap<(GroupId, Knob), Value> = groups
        .iter()
        .flat_map(|group| {
            let low = Value::Limit(Limit::Bytes(Bytes::ZERO));
            [
                ((group.id, Knob::MemoryLow), low),
                ((group.id, Knob::MemoryHigh), Value::Limit(Limit::Max)),
            ]
        })
        .collect();
    let priors = Arc::new(priors);
    let mut state = State::default();
    let mut pressure = Pressure {
        memory_some_us: Some(0),
        memory_full_us: Some(0),
        io_some_us: Some(0),
        io_full_us: Some(0),
        cpu_some_us: None,
    };
    for tick in 1_u64.. {
        for group in groups.iter_mut().skip(1) {
            live(group, tick);
        }
        let ahead = wave(tick, 40.0, 0.3) * 0.5;
        let more = |total: &mut Option<u64>, share: f64| {
            *total = total.map(|total| total + (share * 1e6) as u64);
        };
        more(&mut pressure.memory_some_us, ahead / 3.0);
        more(&mut pressure.memory_full_us, ahead / 9.0);
        more(&mut pressure.io_some_us, 0.3 + ahead);
        let held: Bytes = groups.iter().filter_map(|group| group.memory.file).sum();
        let total = Bytes(held.0 * 5 / 4).max(Bytes::mib(1024));
        let snapshot = Snapshot {
            host: Host {
                swap: None,
                total: Some(total),
                free: Some(Bytes::mib(24)),
                file: Some(held),
                high_watermark: Some(Bytes::mib(16)),
                pressure,
            },
            groups: groups.clone(),
            ..Snapshot::default()
        };
        let began = Instant::now();
        let (next, plan) = step(&state, &snapshot, &config, SECOND);
        state = next;
        for write in &plan.writes {
            if let Some(group) = groups.iter_mut().find(|group| group.id == write.group) {
                group.knobs.set(write.knob, write.value);
            }
        }
        board.post(Tick {
            snapshot,
            plan,
            priors: priors.clone(),
            count: tick,
            took: began.elapsed(),
            longest: began.elapsed(),
            ..Tick::default()
        });
        std::thread::sleep(SECOND);
    }
    Ok(())
}

/// A wave between 0 and 1 with a period of `period` ticks.
fn wave(tick: u64, period: f64, phase: f64) -> f64 {
    0.5 + 0.5 * ((tick as f64 / period + phase) * std::f64::consts::TAU).sin()
}

fn group(n: u64) -> Group {
    let kind = n as usize % NAMES.len();
    let path = format!("/kubepods.slice/pod{:04}/{}", n / 4, NAMES[kind]);
    Group {
        parent: Some(GroupId(1)),
        weight: Weight::new(WEIGHTS[kind]).ok(),
        weight_source: WeightSource::OciBlockIo,
        memory: Memory {
            swap: None,
            current: Some(Bytes::mib(200)),
            file: Some(Bytes::mib(40)),
            file_mapped: Some(Bytes::mib(2)),
            file_dirty: Some(Bytes::mib(10)),
            anon: Some(Bytes::mib(30)),
            refault_pages: Some(0),
        },
        traffic: Traffic {
            read_bytes: Some(0),
            write_bytes: Some(0),
            missed_bytes: Some(0),
        },
        pressure: Pressure {
            memory_some_us: Some(0),
            io_some_us: Some(0),
            ..Pressure::default()
        },
        knobs: Knobs {
            low: Some(Limit::Bytes(Bytes::ZERO)),
            high: Some(Limit::Max),
            max: Some(Limit::Max),
            io_weight: Some(100),
            ..Knobs::default()
        },
        cache: CacheCounters {
            asked_pages: Some(0),
            missed_pages: Some(0),
            readahead_pages: Some(0),
            reclaim_us: Some(0),
            throttled_us: Some(0),
            ..CacheCounters::default()
        },
        ..Group::new(GroupId(n + 2), &path)
    }
}

/// Advances a group's counters by one second. Every fourth group is idle.
fn live(group: &mut Group, tick: u64) {
    let n = group.id.0;
    let busy = n % 4 != 1;
    let strength = wave(tick, 30.0 + n as f64, n as f64 * 0.37);
    let weight = group.weight.map_or(100.0, Weight::as_f64);
    let written = if busy {
        weight * (20e3 + 30e3 * strength)
    } else {
        1e3
    };
    let asked = (written / 4096.0) as u64;
    let missed = (asked as f64 * 0.2 * (1.0 - strength)) as u64;
    let add = |counter: &mut Option<u64>, more: u64| {
        *counter = counter.map(|counter| counter + more);
    };
    add(&mut group.traffic.write_bytes, written as u64);
    add(&mut group.traffic.read_bytes, written as u64 / 2);
    add(&mut group.traffic.missed_bytes, missed * 4096);
    add(&mut group.cache.asked_pages, asked);
    add(&mut group.cache.missed_pages, missed);
    add(&mut group.memory.refault_pages, missed / 2);
    let stalled = if busy {
        0.2 + 0.5 * (1.0 - strength)
    } else {
        0.0
    };
    add(&mut group.pressure.io_some_us, (stalled * 1e6) as u64);
    add(&mut group.cache.throttled_us, (stalled * 3e5) as u64);
    let held = 30.0 + weight / 4.0 * (0.6 + 0.6 * strength);
    group.memory.file = Some(Bytes::mib(1).scale(held));
    group.memory.current = Some(Bytes::mib(1).scale(held + 40.0));
}
