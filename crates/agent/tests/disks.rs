//! A disk's scheduler is one more directory of knobs: journaled, respected, restored, forgotten.

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{host, limit, restore_from, text, until, write, Rig, BOOT};
use justitia_agent::config::{DiskSettings, IoCost};
use justitia_agent::journal::Journal;
use justitia_agent::restore::Restored;
use justitia_agent::Settings;
use justitia_cgroup::fake::{Fault, Gate};
use justitia_cgroup::{FakeFs, WriterConfig};
use justitia_policy::plan::{Knob, Value, Write};
use justitia_policy::snapshot::GroupId;
use rustix::io::Errno;
use tempfile::TempDir;

const DISK: &str = "block:sda";
const KNOB: Knob = Knob::BfqLowLatency;

fn off(disk: GroupId) -> Vec<Write> {
    vec![write(disk, KNOB, Value::Switch(false))]
}

/// A host with a group and this disk, and a rig on it with its state directory.
fn one_disk(add: fn(&FakeFs) -> GroupId) -> (Arc<FakeFs>, GroupId, TempDir, Rig) {
    let fake = host(&["a"]);
    let disk = add(&fake);
    let state = tempfile::tempdir().unwrap();
    let rig = Rig::new(fake.clone(), state.path());
    (fake, disk, state, rig)
}

fn low_latency(fake: &FakeFs) -> String {
    text(fake, DISK, KNOB)
}

#[test]
fn it_is_turned_off_and_comes_back() {
    let (fake, disk, state, mut rig) = one_disk(|fake| fake.add_disk("sda", true));
    let devices = rig.look().snapshot.devices;
    assert_eq!(devices.len(), 1);
    assert_eq!((devices[0].path.as_str(), devices[0].id), (DISK, disk));
    assert_eq!(devices[0].low_latency, Some(true));
    rig.apply(off(disk));
    assert_eq!(low_latency(&fake), "0");
    let devices = rig.look().snapshot.devices;
    assert_eq!(devices[0].low_latency, Some(false));
    assert!(!devices[0].foreign);
    let restored = rig.finish();
    assert_eq!(restored.restored, 1);
    assert_eq!(low_latency(&fake), "1");
    assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
}

#[test]
fn after_a_crash_the_next_start_turns_it_on_again() {
    let (fake, disk, state, mut rig) = one_disk(|fake| fake.add_disk("sda", true));
    rig.apply(off(disk));
    // No destructor of ours runs on kill -9.
    std::mem::forget(rig);
    assert_eq!(low_latency(&fake), "0");
    assert_eq!(restore_from(&(fake.clone() as _), state.path()).restored, 1);
    assert_eq!(low_latency(&fake), "1");
}

#[test]
fn low_latency_that_another_turns_on_again_is_left_alone_now_and_at_the_end() {
    for seen_by_a_look in [true, false] {
        let (fake, disk, _state, mut rig) = one_disk(|fake| fake.add_disk("sda", true));
        rig.apply(off(disk));
        fake.foreign_write(DISK, "low_latency", "1");
        if seen_by_a_look {
            rig.look();
        }
        for _ in 0..3 {
            rig.apply(off(disk));
            let devices = rig.look().snapshot.devices;
            assert!(devices[0].foreign && devices[0].low_latency == Some(true));
        }
        assert_eq!(low_latency(&fake), "1");
        let line = "block:sda low_latency was set to 1 by somebody else: left alone from now on";
        let lines = rig.log.lines();
        assert_eq!(lines.iter().filter(|logged| *logged == line).count(), 1);
        fake.foreign_write(DISK, "low_latency", "0");
        assert_eq!(rig.finish(), Restored::default(), "nothing of ours is left");
        assert_eq!(low_latency(&fake), "0");
    }
}

#[test]
fn a_disk_that_changed_its_scheduler_is_forgotten_and_is_another_one_later() {
    for comes_back in [true, false] {
        let (fake, disk, state, mut rig) = one_disk(|fake| fake.add_disk("sda", true));
        rig.apply(off(disk));
        fake.rmdir(DISK);
        let mut other = disk;
        if comes_back {
            other = fake.add_disk("sda", true);
            assert_ne!(other, disk);
        }
        let change = rig.look().change;
        assert_eq!(change.left, [DISK]);
        let held = Journal::open(state.path(), BOOT).unwrap();
        assert!(held.entries().is_empty());
        let devices = rig.look().snapshot.devices;
        assert_eq!(devices.len(), usize::from(comes_back));
        assert!(devices.iter().all(|device| device.id == other));
        assert_eq!(rig.finish(), Restored::default());
    }
}

#[test]
fn a_read_only_sysfs_is_a_problem_of_the_disk_alone_and_no_foreign_write() {
    let fake = host(&["a"]);
    let (a, disk) = (fake.mkdir("/app/a"), fake.add_disk("sda", true));
    let state = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(fake.clone(), state.path());
    for megabytes in 1..4 {
        // Reads succeed, the write fails.
        let mut writes = off(disk);
        writes.push(write(a, Knob::MemoryHigh, limit(megabytes << 20)));
        fake.inject(DISK, "low_latency", Fault::ReadOnly);
        assert!(rig.submit(writes).is_empty());
        let mut problems = Vec::new();
        until("the write failed", || {
            problems.extend(rig.applier.settle(&mut rig.observer));
            !problems.is_empty()
        });
        assert_eq!(problems[0].group.as_deref(), Some(DISK));
        assert!(problems[0]
            .cause
            .contains("no permission for low_latency of disk sda"));
        let devices = rig.look().snapshot.devices;
        assert!(!devices[0].foreign);
        // While a write is on its way, the next one to the same knob waits for another step.
        rig.applier.quiesce();
        let written = text(&fake, "/app/a", Knob::MemoryHigh);
        assert_eq!(written, (megabytes << 20).to_string());
    }
    let restored = rig.finish();
    assert!(restored.problems.is_empty(), "{restored:?}");
}

#[test]
fn low_latency_that_cannot_be_read_is_unknown_and_a_problem() {
    for (fault, words) in [
        (Fault::Absent, "disk sda has no low_latency"),
        (Fault::Errno(Errno::IO), "low_latency of disk sda"),
    ] {
        let fake = host(&["a"]);
        fake.add_disk("sda", true);
        fake.inject(DISK, "low_latency", fault);
        let state = tempfile::tempdir().unwrap();
        let mut rig = Rig::new(fake.clone(), state.path());
        let look = rig.look();
        assert_eq!(look.snapshot.devices[0].low_latency, None);
        assert!(
            look.problems[0].cause.contains(words),
            "{:?}",
            look.problems
        );
        assert!(look
            .snapshot
            .groups
            .iter()
            .any(|group| group.path == "/app/a"));
        fake.clear_faults(DISK);
        assert_eq!(rig.look().snapshot.devices[0].low_latency, Some(true));
    }
}

const COST: &str = "cost:sdb";

/// io.cost on, with a model.
fn served(disk: GroupId) -> Vec<Write> {
    let model = "ctrl=user,rbps=9,rseqiops=2,rrandiops=2,wbps=9,wseqiops=2,wrandiops=2";
    let qos = "enable=1,ctrl=user,rpct=90.00,rlat=5,wpct=90.00,wlat=5,min=30.00,max=400.00";
    let value = |knob: Knob, text| knob.value(text).expect("a value");
    vec![
        write(disk, Knob::IoCostModel, value(Knob::IoCostModel, model)),
        write(disk, Knob::IoCostQos, value(Knob::IoCostQos, qos)),
    ]
}

#[test]
fn io_cost_is_off_again_at_the_end_and_after_a_crash() {
    for crash in [false, true] {
        let (fake, disk, state, mut rig) = one_disk(|fake| fake.add_cost_disk("sdb"));
        assert!(rig.apply(served(disk)).is_empty());
        assert!(fake
            .text(COST, "io.cost.qos")
            .unwrap()
            .contains("enable=1 ctrl=user"));
        let devices = rig.look().snapshot.devices;
        assert!(devices[0].cost_qos.unwrap().enable && !devices[0].foreign);
        let restored = if crash {
            std::mem::forget(rig);
            restore_from(&(fake.clone() as _), state.path())
        } else {
            rig.finish()
        };
        assert_eq!(restored.restored, 2, "{restored:?}");
        assert_eq!(
            fake.text(COST, "io.cost.qos").unwrap(),
            "enable=0 ctrl=auto\n"
        );
        assert_eq!(fake.text(COST, "io.cost.model").unwrap(), "ctrl=auto\n");
    }
}

#[test]
fn io_cost_is_off_at_the_end_although_its_disk_ends_its_requests_late() {
    // The write that is late: one that restores, or the agent's own before that.
    for (file, restores) in [
        ("io.cost.qos", true),
        ("io.cost.model", true),
        ("io.cost.qos", false),
    ] {
        let fake = host(&["a"]);
        let disk = fake.add_cost_disk("sdb");
        let state = tempfile::tempdir().unwrap();
        let config = WriterConfig {
            deadline: Duration::from_millis(50),
            ..WriterConfig::default()
        };
        let mut rig = Rig::with_writer(fake.clone(), state.path(), config);
        if restores {
            rig.apply(served(disk));
        }
        let gate = Gate::new();
        fake.inject(COST, file, Fault::Late(gate.clone()));
        if !restores {
            rig.submit(served(disk));
        }
        let kernel = thread::spawn(move || {
            until("the write is in the kernel", || gate.waiting() == 1);
            thread::sleep(Duration::from_millis(200));
            gate.open();
        });
        assert_eq!(rig.finish().problems, [], "{file}");
        kernel.join().unwrap();
        let held = [
            fake.text(COST, "io.cost.qos"),
            fake.text(COST, "io.cost.model"),
        ];
        let off = ["enable=0 ctrl=auto\n", "ctrl=auto\n"].map(|text| Some(text.to_owned()));
        assert_eq!(held, off, "{file}");
    }
}

#[test]
fn io_cost_that_another_switches_off_or_configures_is_left_alone() {
    for theirs in [
        "enable=0 ctrl=auto",
        "enable=1 ctrl=user min=50.00 max=60.00",
    ] {
        let (fake, disk, _state, mut rig) = one_disk(|fake| fake.add_cost_disk("sdb"));
        rig.apply(served(disk));
        rig.look();
        fake.foreign_write(COST, "io.cost.qos", theirs);
        assert!(!rig.look().snapshot.devices[0].foreign, "until it is read");
        assert!(rig.look().snapshot.devices[0].foreign);
        rig.finish();
        assert_eq!(fake.text(COST, "io.cost.qos").unwrap().trim(), theirs);
    }
}

#[test]
fn udev_is_asked_until_it_knows_the_disk_and_not_again() {
    let (fake, _disk, _state, mut rig) = one_disk(|fake| fake.add_cost_disk("sdb"));
    let given = |rig: &mut Rig| rig.look().snapshot.devices[0].given_model;
    assert_eq!(given(&mut rig), None);
    let model = "rbps=9 rseqiops=2 rrandiops=2 wbps=9 wseqiops=2 wrandiops=2";
    let known = format!("E:IOCOST_SOLUTIONS=naive\nE:IOCOST_MODEL_naive={model}\n");
    fake.update(COST, |disk| disk.udev = Some(known));
    assert_eq!(given(&mut rig).map(|model| model.rbps), Some(9));
    let asked = fake.reads(COST)["udev"];
    (0..3).for_each(|_| assert!(given(&mut rig).is_some()));
    assert_eq!(fake.reads(COST)["udev"], asked);
}

#[test]
fn with_io_cost_configured_off_no_disk_is_looked_at_and_held_values_are_restored() {
    let (fake, disk, _state, mut rig) = one_disk(|fake| fake.add_cost_disk("sdb"));
    rig.apply(served(disk));
    let disk = DiskSettings {
        iocost: IoCost::None,
        ..DiskSettings::default()
    };
    rig.observer.configure(&Settings {
        disk,
        ..Settings::default()
    });
    assert!(rig.look().snapshot.devices.is_empty());
    rig.finish();
    assert_eq!(
        fake.text(COST, "io.cost.qos").unwrap(),
        "enable=0 ctrl=auto\n"
    );
}
