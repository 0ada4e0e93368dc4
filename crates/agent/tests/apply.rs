//! The writer's promises: prior values come back, foreign values stay, no group waits for another.

mod common;

use std::time::{Duration, Instant};

use common::{host, limit, one_group, restore_from, text, until, write, Rig};
use justitia_cgroup::fake::{Fault, Gate};
use justitia_cgroup::{FakeFs, Fs, WriterConfig};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::units::{Bytes, Limit, Weight};

const LOW: Knob = Knob::MemoryLow;
const HIGH: Knob = Knob::MemoryHigh;
const WEIGHT: Knob = Knob::IoWeight;

#[test]
fn prior_values_are_restored_at_the_end() {
    let fake = host(&["a", "b"]);
    fake.foreign_write("/app/a", "memory.low", "1048576");
    fake.foreign_write("/app/a", "io.weight", "default 250");
    let state = tempfile::tempdir().unwrap();
    let (a, b) = (fake.mkdir("/app/a"), fake.mkdir("/app/b"));
    let mut rig = Rig::new(fake.clone(), state.path());
    rig.apply(vec![
        write(a, LOW, limit(50 << 20)),
        write(a, HIGH, limit(90 << 20)),
        write(a, WEIGHT, Value::Weight(800)),
        write(b, HIGH, limit(40 << 20)),
    ]);
    rig.look();
    rig.apply(vec![write(a, HIGH, limit(80 << 20))]);
    assert_eq!(text(&fake, "/app/a", HIGH), (80 << 20).to_string());
    let restored = rig.finish();
    assert_eq!(restored.restored, 4);
    assert_eq!(text(&fake, "/app/a", LOW), "1048576");
    assert_eq!(text(&fake, "/app/a", HIGH), "max");
    assert_eq!(text(&fake, "/app/a", WEIGHT), "default 250");
    assert_eq!(text(&fake, "/app/b", HIGH), "max");
    assert_eq!(
        std::fs::read_dir(state.path()).unwrap().count(),
        0,
        "nothing left behind"
    );
}

#[test]
fn throttles_are_lifted_before_protection_goes() {
    let (fake, a, _state, mut rig) = one_group();
    rig.apply(vec![
        write(a, LOW, limit(50 << 20)),
        write(a, HIGH, limit(90 << 20)),
    ]);
    fake.clear_writes();
    rig.finish();
    let files: Vec<String> = fake.writes().into_iter().map(|(_, file, _)| file).collect();
    assert_eq!(files, ["memory.high", "memory.low"]);
}

#[test]
fn a_foreign_value_is_left_alone_now_and_at_the_end() {
    let (fake, a, _state, mut rig) = one_group();
    rig.apply(vec![
        write(a, HIGH, limit(90 << 20)),
        write(a, LOW, limit(50 << 20)),
    ]);
    fake.foreign_write("/app/a", "memory.high", "123456512");
    // Seen at the moment of the next write, without a look in between.
    rig.apply(vec![
        write(a, HIGH, limit(80 << 20)),
        write(a, LOW, limit(40 << 20)),
    ]);
    assert_eq!(
        text(&fake, "/app/a", HIGH),
        "123453440".to_owned(),
        "the kernel's rounding"
    );
    assert_eq!(
        text(&fake, "/app/a", LOW),
        (40 << 20).to_string(),
        "the other knob stays ours"
    );
    let observation = rig.look();
    let group = observation
        .snapshot
        .groups
        .iter()
        .find(|group| group.path == "/app/a")
        .unwrap();
    assert!(group.knobs.foreign.high && !group.knobs.foreign.low);
    assert_eq!(
        rig.log
            .lines()
            .iter()
            .filter(|line| line.contains("somebody else"))
            .count(),
        1
    );
    rig.finish();
    assert_eq!(text(&fake, "/app/a", HIGH), "123453440");
    assert_eq!(text(&fake, "/app/a", LOW), "0");
}

#[test]
fn a_foreign_value_on_a_knob_that_is_not_written_again_is_found_by_looking() {
    let (fake, a, _state, mut rig) = one_group();
    rig.apply(vec![write(a, LOW, limit(50 << 20))]);
    fake.foreign_write("/app/a", "memory.low", "8192");
    for _ in 0..8 {
        rig.look();
    }
    assert!(rig.observer.seen(a).unwrap().knobs.foreign.low);
}

#[test]
fn a_manager_that_sets_everything_back_is_not_a_foreign_writer_but_one_knob_is() {
    let fake = host(&["a", "b"]);
    let (a, b) = (fake.mkdir("/app/a"), fake.mkdir("/app/b"));
    let state = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(fake.clone(), state.path());
    let plan = |n: u64| {
        [a, b]
            .iter()
            .flat_map(|&group| {
                [
                    write(group, LOW, limit(n << 20)),
                    write(group, HIGH, limit(n << 21)),
                ]
            })
            .collect::<Vec<_>>()
    };
    rig.apply(plan(50));
    // systemd's daemon-reload on a; a person on b.
    fake.foreign_write("/app/a", "memory.low", "0");
    fake.foreign_write("/app/a", "memory.high", "max");
    fake.foreign_write("/app/b", "memory.high", "max");
    rig.apply(plan(60));
    assert_eq!(text(&fake, "/app/a", LOW), (60 << 20).to_string());
    assert_eq!(text(&fake, "/app/a", HIGH), (120 << 20).to_string());
    assert_eq!(text(&fake, "/app/b", HIGH), "max");
    rig.apply(plan(70));
    assert_eq!(text(&fake, "/app/b", HIGH), "max");
    assert_eq!(text(&fake, "/app/b", LOW), (70 << 20).to_string());
}

/// Writes what systemd's `daemon-reload` writes to a group.
fn reload(fake: &FakeFs, path: &str) {
    for (file, text) in [
        ("memory.low", "0"),
        ("memory.high", "max"),
        ("io.weight", "default 100"),
    ] {
        fake.foreign_write(path, file, text);
    }
}

#[test]
fn however_often_a_manager_sets_one_group_back_nothing_is_given_up() {
    let (fake, a, _state, mut rig) = one_group();
    for n in 1..=40_u64 {
        rig.apply(vec![
            write(a, LOW, limit(n << 20)),
            write(a, HIGH, limit(n << 21)),
            write(a, WEIGHT, Value::Weight(500)),
        ]);
        assert_eq!(text(&fake, "/app/a", LOW), (n << 20).to_string());
        assert_eq!(text(&fake, "/app/a", HIGH), (n << 21).to_string());
        assert_eq!(text(&fake, "/app/a", WEIGHT), "default 500");
        reload(&fake, "/app/a");
        // With and without a look in between.
        for _ in 0..n % 6 {
            rig.look();
        }
    }
    rig.finish();
    assert_eq!(text(&fake, "/app/a", HIGH), "max");
}

#[test]
fn after_a_manager_set_both_back_neither_is_given_up_whichever_is_written_first() {
    for (first, second) in [(LOW, HIGH), (HIGH, LOW)] {
        let (fake, a, _state, mut rig) = one_group();
        rig.apply(vec![
            write(a, LOW, limit(50 << 20)),
            write(a, HIGH, limit(90 << 20)),
        ]);
        reload(&fake, "/app/a");
        rig.apply(vec![write(a, first, limit(60 << 20))]);
        for _ in 0..16 {
            rig.look();
        }
        rig.apply(vec![write(a, second, limit(70 << 20))]);
        assert_eq!(text(&fake, "/app/a", first), (60 << 20).to_string());
        assert_eq!(text(&fake, "/app/a", second), (70 << 20).to_string());
    }
}

#[test]
fn a_weight_set_while_our_write_waits_behind_a_limit_is_not_replaced() {
    let (fake, a, _state, mut rig) = one_group();
    fake.update("/app/a", |group| group.bfq_weight = Some(100));
    rig.look();
    let weights = |n| [WEIGHT, Knob::IoBfqWeight].map(|knob| write(a, knob, Value::Weight(n)));
    rig.apply(weights(700).to_vec());
    rig.look();
    let gate = Gate::new();
    fake.inject("/app/a", "memory.high", Fault::Slow(gate.clone()));
    let [weight, bfq_weight] = weights(760);
    rig.submit(vec![write(a, HIGH, limit(90 << 20)), weight, bfq_weight]);
    until("the limit hangs", || gate.waiting() == 1);
    // systemctl set-property IOWeight=400
    fake.foreign_write("/app/a", "io.weight", "default 400");
    fake.foreign_write("/app/a", "io.bfq.weight", "127");
    gate.open();
    rig.applier.quiesce();
    let of_a = |rig: &Rig| rig.observer.seen(a).unwrap().weight.map(Weight::get);
    until("the weight counts", || {
        rig.look();
        of_a(&rig) == Some(400)
    });
    assert_eq!(text(&fake, "/app/a", WEIGHT), "default 400");
}

/// One worker, which is never replaced: a write that hangs holds up all others.
const ALONE: WriterConfig = WriterConfig {
    workers: 1,
    max_stuck: 0,
    deadline: Duration::from_secs(60),
};

#[test]
fn a_limit_still_queued_when_the_agent_stops_is_never_written() {
    let fake = host(&["a", "b"]);
    let (a, b) = (fake.mkdir("/app/a"), fake.mkdir("/app/b"));
    let state = tempfile::tempdir().unwrap();
    let mut rig = Rig::with_writer(fake.clone(), state.path(), ALONE);
    let gate = Gate::new();
    fake.inject("/app/a", "memory.high", Fault::Slow(gate.clone()));
    rig.submit(vec![write(a, HIGH, limit(70 << 20))]);
    until("the limit hangs", || gate.waiting() == 1);
    fake.clear_faults("/app/a");
    rig.submit(vec![write(b, HIGH, limit(80 << 20))]);
    let opens = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(3));
        gate.open();
    });
    rig.finish();
    opens.join().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(text(&fake, "/app/b", HIGH), "max");
}

#[test]
fn a_weight_set_while_a_group_is_given_back_stays() {
    for (ours_waits, set_before) in [(false, false), (true, true), (true, false)] {
        let fake = host(&["a"]);
        let a = fake.mkdir("/app/a");
        let state = tempfile::tempdir().unwrap();
        let mut rig = Rig::with_writer(fake.clone(), state.path(), ALONE);
        rig.apply(vec![write(a, WEIGHT, Value::Weight(700))]);
        rig.look();
        let gate = Gate::new();
        fake.inject("/app/a", "memory.high", Fault::Slow(gate.clone()));
        rig.submit(vec![write(a, HIGH, limit(90 << 20))]);
        until("the limit hangs", || gate.waiting() == 1);
        fake.clear_faults("/app/a");
        let fs = rig.fs.clone();
        let set = || fake.foreign_write("/app/a", "io.weight", "default 400");
        if ours_waits {
            rig.submit(vec![write(a, WEIGHT, Value::Weight(760))]);
        }
        if set_before {
            set();
        }
        rig.applier.put_back(&fs, |_| true);
        if !set_before {
            set();
        }
        gate.open();
        until("nothing is held", || {
            rig.applier.settle(&mut rig.observer);
            rig.applier.priors().is_empty()
        });
        assert_eq!(text(&fake, "/app/a", WEIGHT), "default 400");
        assert_eq!(text(&fake, "/app/a", HIGH), "max");
    }
}

#[test]
fn a_weight_that_a_group_gets_later_counts_and_our_own_does_not() {
    let (fake, a, _state, mut rig) = one_group();
    let of_a = |rig: &Rig| rig.observer.seen(a).unwrap().weight.map(Weight::get);
    fake.foreign_write("/app/a", "io.weight", "default 800");
    rig.look();
    assert_eq!(of_a(&rig), Some(800));
    rig.apply(vec![write(a, WEIGHT, Value::Weight(300))]);
    rig.look();
    assert_eq!(of_a(&rig), Some(800));
}

#[test]
fn a_step_between_a_managers_two_writes_gives_nothing_up() {
    // A step may look at the knobs before it looks again and writes.
    for looks in [false, true] {
        let (fake, a, _state, mut rig) = one_group();
        let mut step = |n: u64| {
            if looks {
                rig.look();
            }
            rig.apply(vec![
                write(a, LOW, limit(n << 20)),
                write(a, HIGH, limit(n << 21)),
            ]);
        };
        step(50);
        fake.foreign_write("/app/a", "memory.low", "0");
        step(60);
        fake.foreign_write("/app/a", "memory.high", "max");
        step(70);
        assert_eq!(text(&fake, "/app/a", LOW), (70 << 20).to_string());
        assert_eq!(text(&fake, "/app/a", HIGH), (140 << 20).to_string());
    }
}

#[test]
fn a_group_made_anew_never_gets_the_old_ones_values() {
    let fake = host(&["a"]);
    fake.foreign_write("/app/a", "memory.low", "1048576");
    let a = fake.mkdir("/app/a");
    let state = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(fake.clone(), state.path());
    rig.apply(vec![write(a, LOW, limit(50 << 20))]);
    fake.recreate("/app/a");
    let fs: Fs = fake.clone();
    // A crash now: restoring finds another group under the name.
    let restored = restore_from(&fs, state.path());
    assert_eq!((restored.restored, restored.vanished), (0, 1));
    assert_eq!(text(&fake, "/app/a", LOW), "0");
}

#[test]
fn a_group_made_anew_is_ours_again_although_the_old_one_was_taken_over() {
    let (fake, a, _state, mut rig) = one_group();
    rig.apply(vec![write(a, LOW, limit(50 << 20))]);
    fake.foreign_write("/app/a", "memory.low", "8192");
    rig.apply(vec![write(a, LOW, limit(60 << 20))]);
    assert_eq!(text(&fake, "/app/a", LOW), "8192");
    let anew = fake.recreate("/app/a");
    rig.look();
    rig.apply(vec![write(anew, LOW, limit(60 << 20))]);
    assert_eq!(text(&fake, "/app/a", LOW), (60 << 20).to_string());
}

#[test]
fn a_group_that_vanished_is_forgotten() {
    let fake = host(&["a", "b"]);
    let a = fake.mkdir("/app/a");
    let state = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(fake.clone(), state.path());
    rig.apply(vec![write(a, LOW, limit(50 << 20))]);
    fake.rmdir("/app/a");
    rig.look();
    assert!(rig.applier.priors().is_empty());
    assert!(rig.apply(vec![write(a, LOW, limit(60 << 20))]).is_empty());
    assert_eq!(rig.finish().problems, []);
}

#[test]
fn a_write_that_hangs_in_one_group_delays_no_other() {
    let fake = host(&["slow", "quick"]);
    let (slow, quick) = (fake.mkdir("/app/slow"), fake.mkdir("/app/quick"));
    let gate = Gate::new();
    fake.inject("/app/slow", "memory.high", Fault::Slow(gate.clone()));
    let state = tempfile::tempdir().unwrap();
    let config = WriterConfig {
        deadline: Duration::from_millis(200),
        ..WriterConfig::default()
    };
    let mut rig = Rig::with_writer(fake.clone(), state.path(), config);
    let began = Instant::now();
    for n in 1..=5_u64 {
        rig.submit(vec![
            write(slow, HIGH, limit(n << 24)),
            write(quick, HIGH, limit(n << 24)),
        ]);
        // Wait for the writer's outcome: before it, the next write would wait its turn.
        until("quick is written", || {
            rig.applier.settle(&mut rig.observer);
            rig.observer.knob(quick, HIGH) == Some(limit(n << 24))
        });
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    gate.open();
    assert_eq!(rig.finish().problems, []);
    assert_eq!(text(&fake, "/app/slow", HIGH), "max");
    assert_eq!(text(&fake, "/app/quick", HIGH), "max");
}

#[test]
fn raising_a_limit_never_waits_for_a_write_that_lowers_it() {
    // Above and below the limit before, and that limit.
    let cases = [80, 90, 100].map(|mib| (mib << 20, limit(mib << 20)));
    for ((bytes, raised), begun) in cases.iter().flat_map(|&case| [(case, true), (case, false)]) {
        let fake = host(&["a", "b"]);
        let (a, b) = (fake.mkdir("/app/a"), fake.mkdir("/app/b"));
        let state = tempfile::tempdir().unwrap();
        let mut rig = Rig::with_writer(fake.clone(), state.path(), ALONE);
        rig.apply(vec![write(a, HIGH, limit(90 << 20))]);
        until("the next read of its knobs is not the next look", || {
            rig.look().knobs_read.contains(&a)
        });
        let gate = Gate::new();
        // The one thread hangs with a, or with b while a waits behind it.
        let hangs = if begun { "/app/a" } else { "/app/b" };
        fake.inject(hangs, "memory.high", Fault::Slow(gate.clone()));
        let lower = [b, a].map(|group| write(group, HIGH, limit(70 << 20)));
        rig.submit(lower.to_vec());
        until("it hangs", || gate.waiting() == 1);
        fake.clear_faults(hangs);
        let seen = rig.look().snapshot.groups;
        let seen = seen.iter().find(|group| group.id == a).unwrap();
        let stands: u64 = text(&fake, "/app/a", HIGH).parse().unwrap();
        assert_eq!(seen.knobs.high, Some(Limit::Bytes(Bytes(stands))));
        rig.submit(vec![write(a, HIGH, raised)]);
        until("the limit is no lower than that", || {
            rig.applier.settle(&mut rig.observer);
            text(&fake, "/app/a", HIGH).parse::<u64>().unwrap() >= bytes
        });
        gate.open();
        until("it is known to be in force", || {
            rig.applier.settle(&mut rig.observer);
            rig.observer.knob(a, HIGH) == Some(raised)
        });
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(5));
            rig.applier.settle(&mut rig.observer);
            assert_eq!(rig.observer.knob(a, HIGH), Some(raised));
        }
        rig.applier.quiesce();
        assert_eq!(text(&fake, "/app/a", HIGH), bytes.to_string());
        let lowered = (
            "/app/a".into(),
            "memory.high".into(),
            (70 << 20).to_string(),
        );
        assert_eq!(fake.writes().contains(&lowered), begun);
    }
}

#[test]
fn however_many_groups_hang_another_groups_limit_is_raised() {
    let config = WriterConfig {
        deadline: Duration::from_millis(50),
        ..WriterConfig::default()
    };
    let threads = config.workers + config.max_stuck;
    let names: Vec<String> = (0..=threads).map(|n| format!("stuck-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["free"]).collect();
    let fake = host(&names);
    let free = fake.mkdir("/app/free");
    let state = tempfile::tempdir().unwrap();
    let mut rig = Rig::with_writer(fake.clone(), state.path(), config);
    rig.apply(vec![write(free, HIGH, limit(90 << 20))]);
    let gate = Gate::new();
    let mut writes = Vec::new();
    for name in &names[..=threads] {
        let path = format!("/app/{name}");
        fake.inject(&path, "memory.high", Fault::Slow(gate.clone()));
        writes.push(write(fake.mkdir(&path), HIGH, limit(50 << 20)));
    }
    rig.submit(writes);
    until("every thread that may hang does", || {
        rig.applier.settle(&mut rig.observer);
        gate.waiting() == threads
    });
    rig.submit(vec![write(free, HIGH, limit(100 << 20))]);
    until("the limit is raised", || {
        text(&fake, "/app/free", HIGH) == (100 << 20).to_string()
    });
    gate.open();
    rig.finish();
    for name in names {
        assert_eq!(text(&fake, &format!("/app/{name}"), HIGH), "max");
    }
}

#[test]
fn putting_back_waits_for_no_write_and_a_late_write_does_not_stay() {
    let fake = host(&["a", "b"]);
    let (a, b) = (fake.mkdir("/app/a"), fake.mkdir("/app/b"));
    let state = tempfile::tempdir().unwrap();
    let config = WriterConfig {
        workers: 1,
        max_stuck: 0,
        deadline: Duration::from_secs(60),
    };
    let mut rig = Rig::with_writer(fake.clone(), state.path(), config);
    rig.apply(vec![write(b, HIGH, limit(90 << 20))]);
    let gate = Gate::new();
    fake.inject("/app/a", "memory.high", Fault::Slow(gate.clone()));
    // The one thread hangs at a; the write to b waits behind it.
    rig.submit(vec![write(a, HIGH, limit(70 << 20))]);
    until("a hangs", || gate.waiting() == 1);
    fake.clear_faults("/app/a");
    rig.submit(vec![write(b, HIGH, limit(80 << 20))]);
    let fs = rig.fs.clone();
    assert!(rig.applier.put_back(&fs, |_| true).is_empty());
    assert_eq!(gate.waiting(), 1, "putting back waited for the write");
    until("b is back for now", || {
        rig.applier.settle(&mut rig.observer);
        text(&fake, "/app/b", HIGH) == "max"
    });
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(10));
        rig.applier.settle(&mut rig.observer);
    }
    gate.open();
    until("nothing is held", || {
        rig.applier.settle(&mut rig.observer);
        rig.applier.priors().is_empty()
    });
    rig.applier.quiesce();
    for path in ["/app/a", "/app/b"] {
        assert_eq!(text(&fake, path, HIGH), "max");
    }
    assert_eq!(rig.finish().problems, []);
}

#[test]
fn a_write_that_fails_is_a_problem_of_its_group_alone() {
    let fake = host(&["a", "b"]);
    let (a, b) = (fake.mkdir("/app/a"), fake.mkdir("/app/b"));
    fake.inject("/app/a", "memory.low", Fault::Denied);
    let state = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(fake.clone(), state.path());
    let problems = rig.apply(vec![
        write(a, LOW, limit(1 << 20)),
        write(b, LOW, limit(1 << 20)),
    ]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].group.as_deref(), Some("/app/a"));
    assert_eq!(text(&fake, "/app/b", LOW), (1 << 20).to_string());
    rig.apply(vec![write(a, HIGH, limit(1 << 20))]);
    fake.inject("/app/a", "memory.high", Fault::ReadOnly);
    let problems = rig.finish().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].group.as_deref(), Some("/app/a"));
}

#[test]
fn a_write_that_the_kernel_refuses_is_no_foreign_write() {
    let (fake, a, _state, mut rig) = one_group();
    fake.inject("/app/a", "memory.low", Fault::ReadOnly);
    for n in 1..10 {
        rig.apply(vec![write(a, LOW, limit(n << 20))]);
        rig.look();
    }
    assert!(!rig.observer.seen(a).unwrap().knobs.foreign.low);
    fake.clear_faults("/app/a");
    rig.apply(vec![write(a, LOW, limit(50 << 20))]);
    assert_eq!(text(&fake, "/app/a", LOW), (50 << 20).to_string());
    rig.finish();
    assert_eq!(text(&fake, "/app/a", LOW), "0");
}

#[test]
fn a_value_that_a_knob_has_already_is_not_written() {
    let (fake, a, _state, mut rig) = one_group();
    rig.apply(vec![
        write(a, LOW, limit(100)),
        write(a, HIGH, Value::Limit(Limit::Max)),
        write(a, WEIGHT, Value::Weight(100)),
    ]);
    assert!(fake.writes().is_empty(), "{:?}", fake.writes());
    assert!(rig.applier.priors().is_empty());
}

#[test]
fn only_writes_that_change_a_value_are_counted() {
    let (_fake, a, _state, mut rig) = one_group();
    let plan = || {
        vec![
            write(a, LOW, limit(1 << 20)),
            write(a, HIGH, limit(9 << 20)),
        ]
    };
    rig.apply(plan());
    assert_eq!(rig.applier.submitted(), 2);
    rig.look();
    rig.apply(plan());
    assert_eq!(rig.applier.submitted(), 2, "they hold it already");
    rig.look();
    rig.apply(vec![write(a, HIGH, limit(8 << 20))]);
    assert_eq!(rig.applier.submitted(), 3);
    rig.finish();
}

#[test]
fn reclaim_is_written_and_never_restored() {
    let fake = host(&["a"]);
    let a = fake.mkdir("/app/a");
    fake.update("/app/a", |group| group.file = Bytes::mib(64));
    let state = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(fake.clone(), state.path());
    rig.apply(vec![write(
        a,
        Knob::MemoryReclaim,
        Value::Reclaim(Bytes::mib(4)),
    )]);
    until("reclaimed", || fake.group("/app/a").file == Bytes::mib(60));
    assert!(rig.applier.priors().is_empty());
    assert_eq!(rig.finish().restored, 0);
}
