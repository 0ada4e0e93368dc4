//! Groups within groups: block weights at every level, and another writer beside us.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{full, host, restore_from, BOOT};
use justitia_agent::{Agent, Log, Settings};
use justitia_cgroup::{xattr, CgroupFs as _, FakeFs};
use justitia_discover::RuntimeDirs;
use justitia_policy::knob::io_weight_of_runtime;
use justitia_policy::plan::Knob;
use justitia_policy::units::Bytes;

/// One tenant with one container beside one with five.
const CONTAINERS: [&str; 6] = ["one/a", "five/a", "five/b", "five/c", "five/d", "five/e"];
const KNOBS: [&str; 4] = ["memory.low", "memory.high", "io.weight", "io.bfq.weight"];

/// A full host on which all of them write alike.
struct Host {
    fake: Arc<FakeFs>,
    agent: Agent,
    seconds: u64,
}

impl Host {
    fn new(state: &Path) -> Host {
        let fake = host(&CONTAINERS);
        fake.set_host(full());
        for path in paths() {
            fake.update(&path, |group| {
                group.bfq_weight = Some(100);
                group.anon = Bytes::mib(10);
                group.file = Bytes::mib(90);
                group.file_dirty = Bytes::mib(9);
            });
        }
        for (pid, name) in (200..).zip(CONTAINERS) {
            fake.spawn(pid, &format!("/app/{name}"));
        }
        let settings = Settings {
            manage: vec!["/app/*/*".into()],
            state_dir: state.to_owned(),
            ..Settings::default()
        };
        let agent = common::agent(&fake, settings, &Log::captured());
        Host {
            fake,
            agent,
            seconds: 0,
        }
    }

    fn seconds(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.seconds += 1;
            self.fake.advance(Duration::from_secs(1));
            for (pid, name) in (200..).zip(CONTAINERS) {
                self.fake.process_io(pid, 0, self.seconds * (10 << 20));
                self.fake.update(&format!("/app/{name}"), |group| {
                    group.io_some_us += 600_000;
                    group.memory_some_us += 300_000;
                });
            }
            self.agent.tick();
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn number(&self, path: &str, knob: &str) -> u64 {
        let text = self.fake.text(path, knob).unwrap();
        let text = text.trim().trim_start_matches("default ");
        text.parse().unwrap()
    }

    /// The block weight of the tenant of five over that of the tenant of one.
    fn ratio(&self) -> f64 {
        let weight = |path| self.number(path, "io.bfq.weight") as f64;
        weight("/app/five") / weight("/app/one")
    }
}

fn knobs(fake: &FakeFs) -> Vec<Option<String>> {
    let of = |path: String| KNOBS.map(|knob| fake.text(&path, knob));
    paths().flat_map(of).collect()
}

fn paths() -> impl Iterator<Item = String> {
    let containers = CONTAINERS.iter().map(|name| format!("/app/{name}"));
    containers.chain(["/app/one", "/app/five", "/app"].map(str::to_owned))
}

#[test]
fn tenants_weigh_the_sum_of_their_containers_or_a_given_weight_and_all_comes_back() {
    let state = tempfile::tempdir().unwrap();
    let mut host = Host::new(state.path());
    let before = knobs(&host.fake);
    host.seconds(4);
    assert!((4.0..6.5).contains(&host.ratio()), "{}", host.ratio());
    let five = host.fake.open("/app/five").unwrap();
    five.set_xattr(xattr::WEIGHT, "200").unwrap();
    // A scan is due again after a pause of real time, in proportion to the time of the last scan.
    for _ in 0..400 {
        if (1.0..3.5).contains(&host.ratio()) {
            break;
        }
        host.seconds(1);
    }
    assert!((1.0..3.5).contains(&host.ratio()), "{}", host.ratio());
    five.remove_xattr(xattr::WEIGHT).unwrap();
    let fake = host.fake.clone();
    host.agent.finish().unwrap();
    assert_eq!(knobs(&fake), before);
}

#[test]
fn protection_set_by_another_each_minute_is_raised_and_its_latest_value_restored() {
    for crashes in [false, true] {
        let state = tempfile::tempdir().unwrap();
        let mut host = Host::new(state.path());
        host.seconds(6);
        let ours = host.number("/app/five", "memory.low");
        assert!(ours > 0);
        for mib in [16u64, 900, 24] {
            host.fake
                .foreign_write("/app/five", "memory.low", &(mib << 20).to_string());
            host.seconds(12);
            let low = host.number("/app/five", "memory.low");
            assert_eq!(low > mib << 20, mib < 900, "{low} beside {mib} MiB");
            assert!(low >= mib << 20);
            let report = host.agent.board().report();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
        let fake = host.fake.clone();
        if crashes {
            drop(host);
            restore_from(&(fake.clone() as justitia_cgroup::Fs), state.path());
        } else {
            host.agent.finish().unwrap();
        }
        let low = |path| common::text(&fake, path, Knob::MemoryLow);
        assert_eq!(low("/app/five"), (24 << 20).to_string(), "{crashes}");
        assert_eq!(low("/app/one"), "0");
    }
}

/// `systemctl set-property`: systemd writes the weight, and the value that it derives for BFQ.
#[test]
fn a_service_that_is_given_a_weight_is_managed_and_so_is_each_new_weight() {
    // `late`: a write of ours arrives after the last that systemd makes, as one on its way may.
    for (bfq, late) in [(true, false), (true, true), (false, false)] {
        let db = "/system.slice/db.service";
        let fake = FakeFs::new();
        let docker = format!("/system.slice/docker-{}.scope", "0123456789ab");
        for path in [db, &docker] {
            fake.mkdir(path);
            fake.update(path, |group| group.bfq_weight = bfq.then_some(100));
        }
        let set_property = |weight: u32, squeezed: u32| {
            fake.foreign_write(db, "io.weight", &format!("default {weight}"));
            if bfq {
                fake.foreign_write(db, "io.bfq.weight", &format!("default {squeezed}"));
            }
        };
        let state = tempfile::tempdir().unwrap();
        let settings = Settings {
            state_dir: state.path().to_owned(),
            ..Settings::default()
        };
        let mut agent = common::agent(&fake, settings, &Log::captured());
        // Two steps that scan. A scan is due again after a pause of real time: this much, unless the machine
        // is busy.
        let mut two_scans = |expected: &[u32]| {
            let mut weights = Vec::new();
            for step in 0..60 {
                thread::sleep(Duration::from_millis(300));
                fake.advance(Duration::from_secs(1));
                agent.tick();
                let report = agent.board().report();
                weights = report.groups.iter().map(|group| group.weight).collect();
                weights.sort_unstable();
                if step > 0 && weights == expected {
                    break;
                }
            }
            assert_eq!(weights, expected, "BFQ {bfq}, late {late}");
        };
        // Only the container.
        two_scans(&[100]);
        for (weight, squeezed) in [(800, 163), (300, 118)] {
            set_property(weight, squeezed);
            two_scans(&[100, weight]);
        }
        let weight = |knob| common::text(&fake, db, knob);
        let ours = "default 300";
        for _ in 0..10 {
            if late && weight(Knob::IoBfqWeight) != ours {
                two_scans(&[100, 300]);
            }
        }
        set_property(100, 100);
        if late {
            fake.foreign_write(db, "io.bfq.weight", ours);
        }
        two_scans(&[100]);
        agent.finish().unwrap();
        assert_eq!(weight(Knob::IoWeight), "default 100");
        let left = if bfq { "default 100" } else { "" };
        assert_eq!(weight(Knob::IoBfqWeight), left);
    }
}

/// `docker update`: Docker writes its record, and then the runtime writes the value that it derives from the
/// weight.
#[test]
fn a_weight_set_by_docker_update_is_no_takeover_and_becomes_the_prior_value() {
    let id = "0123456789ab";
    let path = format!("/system.slice/docker-{id}.scope");
    // `ours`: a weight given to Justitia comes first. `late`: a write of ours arrives after the runtime's.
    for (bfq, ours, late) in [
        (true, None, false),
        (true, Some("400"), false),
        (true, Some("400"), true),
        (false, Some("400"), false),
    ] {
        let (state, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let record = root.path().join("var/lib/docker/containers").join(id);
        std::fs::create_dir_all(&record).unwrap();
        let fake = FakeFs::new();
        fake.mkdir(&path);
        let (file, knob) = if bfq {
            ("io.bfq.weight", Knob::IoBfqWeight)
        } else {
            ("io.weight", Knob::IoWeight)
        };
        let by_runtime = |weight| {
            if bfq {
                weight
            } else {
                io_weight_of_runtime(weight)
            }
        };
        let says = |weight: u32| {
            let text = format!(r#"{{"BlkioWeight": {weight}}}"#);
            std::fs::write(record.join("new"), text).unwrap();
            std::fs::rename(record.join("new"), record.join("hostconfig.json")).unwrap();
        };
        let writes = |weight| {
            let text = format!("default {}", by_runtime(weight));
            fake.foreign_write(&path, file, &text);
        };
        fake.update(&path, |group| group.bfq_weight = bfq.then_some(100));
        says(800);
        writes(800);
        if let Some(weight) = ours {
            let group = fake.open(&path).unwrap();
            group.set_xattr(xattr::WEIGHT_OF_DELEGATED, weight).unwrap();
        }
        let settings = Settings {
            state_dir: state.path().to_owned(),
            ..Settings::default()
        };
        let (log, runtime) = (Log::captured(), RuntimeDirs::under(root.path()));
        let agent = Agent::new(fake.clone(), settings, runtime, BOOT, log.clone());
        let mut agent = agent.unwrap();
        let mut holds = |expected: u32, steps: u32| {
            let ours = format!("default {expected}");
            for step in 0..90 {
                // A scan is due again after a pause of real time.
                thread::sleep(Duration::from_millis(50));
                fake.advance(Duration::from_secs(1));
                agent.tick();
                if step >= steps && common::text(&fake, &path, knob) == ours {
                    return;
                }
            }
            let held = common::text(&fake, &path, knob);
            panic!("{held} instead of {ours}: {:?}", log.lines());
        };
        let own = |docker: u32| ours.map_or(docker, |weight| weight.parse().unwrap());
        holds(own(800), 0);
        says(300);
        if !late {
            // A step between Docker's two writes.
            holds(own(800).min(own(300)), 0);
            writes(300);
        }
        holds(own(300), 8);
        if bfq {
            // systemd, when another property of the container's scope changes.
            fake.foreign_write(&path, file, "default 100");
            // A group that does nothing is read in full every 32 steps.
            holds(own(300), 40);
        }
        let lines = log.lines();
        let given_up = lines
            .iter()
            .any(|line| line.contains("left alone from now on"));
        assert!(!given_up, "{lines:?}");
        agent.finish().unwrap();
        let left = common::text(&fake, &path, knob);
        assert_eq!(
            left,
            format!("default {}", by_runtime(300)),
            "{bfq} {ours:?} {late}"
        );
    }
}

/// runc makes a container's cgroup before it writes what `--memory-reservation` asks for.
#[test]
fn a_value_set_by_a_runtime_while_it_makes_a_container_becomes_the_prior_value() {
    let state = tempfile::tempdir().unwrap();
    let mut host = Host::new(state.path());
    host.seconds(3);
    host.fake.mkdir("/app/one/late");
    host.fake
        .update("/app/one/late", |group| group.file = Bytes::mib(90));
    for _ in 0..60 {
        thread::sleep(Duration::from_millis(20));
        host.seconds(1);
        if host.number("/app/one/late", "memory.low") > 0 {
            break;
        }
    }
    let asked = 16 << 20;
    host.fake
        .foreign_write("/app/one/late", "memory.low", &format!("{asked}"));
    host.seconds(12);
    let report = host.agent.board().report();
    let late = report.find("late").expect("managed");
    let low = late.knobs.iter().find(|knob| knob.knob == Knob::MemoryLow);
    assert!(low.is_some_and(|knob| !knob.foreign), "{low:?}");
    let fake = host.fake.clone();
    host.agent.finish().unwrap();
    assert_eq!(
        common::text(&fake, "/app/one/late", Knob::MemoryLow),
        asked.to_string()
    );
}
