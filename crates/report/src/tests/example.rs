//! Made-up ticks: groups that begin with equal bandwidth and converge to their weighted shares. For the
//! tests, and for `cargo run -p justitia-web --example page`.

use std::sync::Arc;
use std::time::Duration;

use justitia_cgroup::gate::{Config, Device, Info, Member};
use justitia_policy::color::{Channel, Color, ColorSource, Declared, Standing};
use justitia_policy::metrics::{proportionality_variation, share_error};
use justitia_policy::plan::{
    Finding, Guarded, HostRates, Knob, Loss, Phase, Plan, Reason, Stake, Value, Verdict, Watched,
    Write,
};
use justitia_policy::rates::CacheRates;
use justitia_policy::snapshot::{
    BlockDevice, CacheCounters, Group, GroupId, Host, Knobs, Memory, Pressure, Reservation,
    Snapshot, Traffic, WeightSource,
};
use justitia_policy::units::{Bytes, Limit, Weight};
use justitia_policy::worth::{Curve, Point};

use crate::status::{Names, Problem, Reading, Reclaimed, Tick, Totals};

/// Names of the first groups; further groups are numbered.
const NAMES: [&str; 8] = [
    "/app/web",
    "/app/db",
    "/app/mail",
    "/app/search",
    "/system.slice/docker-3f1c9a7be2d04c55a8e61b7790cc12f84d5e6a7b8c9d0e1f2a3b4c5d6e7f8091.scope",
    "/app/<img src=x onerror=alert(1)>",
    "/app/\"quoted\" & back\\slashed",
    "/kubepods.slice/kubepods-burstable.slice/batch",
];
const WEIGHTS: [u32; 8] = [800, 400, 200, 100, 300, 100, 50, 600];

/// The tick after `count` steps, with `groups` groups.
pub fn tick(count: u64, groups: usize) -> Tick {
    let weights: Vec<u32> = (0..groups).map(|n| WEIGHTS[n % WEIGHTS.len()]).collect();
    let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    let settled = 1.0 - (-(count as f64) / 30.0).exp();
    let made: Vec<(Group, Verdict)> = (0..groups)
        .map(|n| group(n, count, f64::from(weights[n]) / sum, settled, groups))
        .collect();
    let rivals = made.iter().filter(|(_, verdict)| verdict.contending);
    let (rival_weights, rates): (Vec<u32>, Vec<f64>) = rivals
        .map(|(group, verdict)| {
            let weight = group.weight.map_or(100, Weight::get);
            (weight, verdict.bytes_per_s.unwrap_or(0.0))
        })
        .unzip();
    let writes = made
        .iter()
        .take(3)
        .flat_map(|(group, verdict)| writes(group, verdict));
    let plan = Plan {
        writes: writes.collect(),
        pv: proportionality_variation(&rival_weights, &rates),
        share_error: share_error(&rival_weights, &rates),
        host: HostRates {
            memory_some: Some(0.18),
            memory_full: Some(0.04),
            io_some: Some(0.61 + 0.1 * wave(count, 3)),
            io_full: Some(0.32),
        },
        verdicts: made.iter().map(|(_, verdict)| verdict.clone()).collect(),
        guard: Some(Guarded {
            reserve: Bytes::mib(672),
            reserved: Bytes::mib(512),
            spare: Some(Bytes::mib(90)),
            missing: Bytes::mib(614),
            unmanaged: Some(Bytes::mib(400)),
            unmanaged_share: Some(Bytes::mib(819)),
            asked: Bytes::mib(614),
        }),
        gate: Vec::new(),
        watch: vec![Finding {
            decision: Watched::Limits,
            phase: Phase::Withdrawn,
            withdrawn_s: Some(171.0),
            comparisons: 5,
            loss: Some(Loss {
                least: 0.05,
                mean: 0.12,
                most: 0.19,
            }),
        }],
    };
    let names = made.iter().map(|(group, _)| (group.id, called(group)));
    Tick {
        names: Arc::new(names.collect()),
        snapshot: Snapshot {
            host: Host {
                swap: None,
                total: Some(Bytes::mib(8 << 10)),
                free: Some(Bytes::mib(180).scale(1.0 + 0.5 * wave(count, 5))),
                file: Some(Bytes::mib(6000)),
                high_watermark: Some(Bytes::mib(90)),
                pressure: Pressure::default(),
            },
            groups: made.into_iter().map(|(group, _)| group).collect(),
            devices: vec![BlockDevice {
                low_latency: Some(false),
                ..BlockDevice::new(GroupId(1 << 63), "block:nvme0n1")
            }],
            shared: Some(Vec::new()),
            outside: None,
            reservations: vec![Reservation {
                path: "/app/next".into(),
                bytes: Bytes::mib(512),
                left_s: 42.0,
            }],
            gate: None,
        },
        plan,
        problems: vec![Problem {
            group: Some("/app/mail".into()),
            cause: "/app/mail: memory.high was set by somebody else".into(),
            remedy: "nothing to do: it is left alone".into(),
        }],
        count,
        took: Duration::from_micros(2300 + count % 400),
        longest: Duration::from_micros(5100),
        observer: Some("bpf"),
        writes_total: count * 6,
        reclaimed: Reclaimed {
            asked: count << 24,
            taken: count << 23,
            partial: count,
        },
        gate: Some(gate(count, groups)),
        ..Tick::default()
    }
}

/// The fifth is Docker's container `shop`, the eighth a container of a pod.
fn called(group: &Group) -> Names {
    let path = group.path.as_str();
    if path.ends_with("/batch") {
        return Names {
            kind: "container".into(),
            name: "shop/batch-0/batch".into(),
            namespace: Some("shop".into()),
            pod: Some("batch-0".into()),
            container: Some("batch".into()),
        };
    }
    let (kind, name) = match path.rsplit_once('/') {
        Some((_, last)) if last.starts_with("docker-") => ("container", "shop"),
        Some((_, last)) => ("group", last),
        None => ("group", path),
    };
    Names {
        kind: kind.into(),
        name: name.into(),
        ..Names::default()
    }
}

/// A closed gate with a member for each group.
fn gate(count: u64, groups: usize) -> Reading {
    let members = (0..groups as u64).map(|n| Member {
        cgroup_id: 4000 + n,
        bdi_id: 3,
        weight: WEIGHTS[n as usize % WEIGHTS.len()],
        pages: count * 900,
        waits: count * 30,
        wait_ns: count * 400_000_000,
        ..Member::default()
    });
    Reading {
        held: true,
        info: Some(Info {
            version: 1,
            groups: groups as u32,
            devices: 1,
            background_pages: 20_000,
            freerun_pages: 30_000,
            setpoint_pages: 27_500,
            calls: count * 10_000,
            passed: count * 100,
            ..Info::default()
        }),
        config: Config {
            order: 2,
            ..Config::default()
        },
        devices: vec![Device {
            bdi_id: 3,
            major: 259,
            setpoint_pages: 27_500,
            dirty_pages: 20_000,
            writeback_pages: 7000,
            waiting: 9,
            enqueued: count * 240,
            granted: count * 231,
            reordered: count * 77,
            ..Device::default()
        }],
        members: members.collect(),
    }
}

/// A wave between -1 and 1, different for each `seed`.
fn wave(count: u64, seed: u64) -> f64 {
    let at = count as f64;
    let phase = seed as f64 * 1.7;
    0.7 * (at / 17.0 + phase).sin() + 0.3 * (at / 3.1 + 2.0 * phase).sin()
}

fn group(n: usize, count: u64, proportion: f64, settled: f64, groups: usize) -> (Group, Verdict) {
    let seed = n as u64;
    let id = GroupId(4000 + seed);
    let equal = 1.0 / groups as f64;
    let noise = 1.0 + 0.12 * wave(count, seed);
    let share = (equal + (proportion - equal) * settled) * noise;
    // Every fourth group reads cached data, so it does not stall.
    let cached = n % 4 == 3;
    let hit_ratio = if cached {
        0.995
    } else {
        0.35 + 0.4 * proportion + 0.05 * wave(count, seed + 9)
    };
    let entitlement = Bytes::mib(6000).scale(proportion);
    let file = Bytes::mib(5600).scale(equal + (proportion - equal) * settled * 0.95);
    let of_ideal = share / proportion;
    let verdict = Verdict {
        group: id,
        proportion,
        entitlement,
        threshold: entitlement.scale(0.92),
        bytes_per_s: Some(share * 240e6),
        transferable_bytes_per_s: Some(share * 240e6 * (1.0 - hit_ratio)),
        of_ideal: Some(of_ideal),
        contending: !cached,
        color: match (cached, of_ideal >= 1.0) {
            (true, _) => Color::Green,
            (false, true) => Color::Yellow,
            (false, false) => Color::Red,
        },
        gain: 1.0 / of_ideal,
        stalled: Some(if cached {
            0.0
        } else {
            0.3 + 0.1 * wave(count, seed)
        }),
        cache: CacheRates {
            hit_ratio: (count % 97 > 4 || n != 1).then_some(hit_ratio),
            asked_pages_per_s: Some(share * 60e3),
            missed_pages_per_s: Some(share * 60e3 * (1.0 - hit_ratio)),
            readahead_pages_per_s: Some(share * 900.0),
            inserted_pages_per_s: Some(share * 20e3),
            evicted_pages_per_s: Some(share * 19e3),
            refault_pages_per_s: Some(if cached { 0.0 } else { share * 700.0 }),
            mmap_faults_per_s: Some(3.0),
            mmap_major_faults_per_s: Some(0.5),
            reclaim_s_per_s: Some(0.02),
            throttled_s_per_s: Some(0.01),
        },
        held_for_others: Bytes::ZERO,
        held_by_others: Bytes::ZERO,
        color_source: if cached {
            ColorSource::Declared
        } else {
            ColorSource::Inferred
        },
        cap: cached.then_some(file),
        working_set: cached.then_some(file.scale(0.8)),
        stake: cached.then_some(Stake {
            needs: file.scale(0.7),
            lends: file.scale(0.2),
            borrows: Bytes::ZERO,
        }),
    };
    let counted = counted(count, proportion);
    let path = NAMES
        .get(n)
        .map_or_else(|| format!("/app/group-{n}"), |name| (*name).to_owned());
    let seen = Group {
        weight: Weight::new(WEIGHTS[n % WEIGHTS.len()]).ok(),
        weight_source: WeightSource::Config,
        memory: Memory {
            current: Some(file + Bytes::mib(60)),
            file: Some(file),
            ..Memory::default()
        },
        traffic: counted.traffic,
        cache: counted.cache,
        pressure: counted.pressure,
        knobs: Knobs {
            low: Some(Limit::Bytes(verdict.threshold)),
            high: Some(Limit::Max),
            io_weight: Some(100),
            ..Knobs::default()
        },
        worth: curve(file, share * 240e6),
        declared: cached.then(|| Declared {
            standing: Standing::Fresh,
            color: Some(Color::Green),
            channel: Channel::Xattr,
            unchanged_s: 0.4,
            reason: "p99 <3> ms".into(),
        }),
        ..Group::new(id, &path)
    };
    (seen, verdict)
}

/// Counters after `count` steps; they grow with `count`.
fn counted(count: u64, share: f64) -> Totals {
    let by_now = |per_s: f64| Some((per_s * count as f64) as u64);
    Totals {
        traffic: Traffic {
            read_bytes: by_now(share * 180e6),
            write_bytes: by_now(share * 60e6),
            missed_bytes: by_now(share * 96e6),
        },
        cache: CacheCounters {
            asked_pages: by_now(share * 60e3),
            missed_pages: by_now(share * 24e3),
            readahead_pages: by_now(share * 900.0),
            inserted_pages: by_now(share * 20e3),
            evicted_pages: by_now(share * 19e3),
            mmap_faults: by_now(3.0),
            mmap_major_faults: by_now(0.5),
            reclaim_us: by_now(2e4),
            throttled_us: by_now(1e4),
        },
        pressure: Pressure {
            io_some_us: by_now(3e5),
            ..Pressure::default()
        },
        refault_pages: None,
    }
}

/// A curve on which each further fifth of the page cache avoids the same share of the remaining misses.
fn curve(file: Bytes, asked_per_s: f64) -> Option<Curve> {
    let point = |fifths: i32| Point {
        cache: file.scale(f64::from(fifths) / 5.0),
        hit_ratio: 1.0 - 0.6f64.powi(fifths),
    };
    Curve::new((1..=12).map(point).collect(), asked_per_s)
}

fn writes(group: &Group, verdict: &Verdict) -> [Write; 3] {
    let write = |knob, value, reason| Write {
        group: group.id,
        knob,
        value,
        reason,
    };
    [
        write(
            Knob::MemoryLow,
            Value::Limit(Limit::Bytes(verdict.threshold + Bytes::mib(60))),
            Reason::Threshold {
                file: verdict.threshold,
                non_file: Bytes::mib(60),
            },
        ),
        write(
            Knob::MemoryHigh,
            Value::Limit(Limit::Bytes(verdict.entitlement + Bytes::mib(90))),
            Reason::AboveShare {
                of_ideal: verdict.of_ideal.unwrap_or(1.0),
                gain: verdict.gain,
            },
        ),
        write(
            Knob::MemoryReclaim,
            Value::Reclaim(Bytes::mib(20)),
            Reason::KeepFree {
                reserve: Bytes::mib(672),
                over: Bytes::mib(70),
            },
        ),
    ]
}
