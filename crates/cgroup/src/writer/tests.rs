//! Properties of the writer: no group waits for a stuck one; within a group, writes keep their order and
//! newer values supersede; each ticket has one outcome.

use std::time::{Duration, Instant};

use justitia_policy::plan::{Knob, Value};
use justitia_policy::units::{Bytes, Limit};
use rustix::io::Errno;

use super::*;
use crate::fake::{Fault, Gate};
use crate::{CgroupFs, FakeFs};

const PATIENCE: Duration = Duration::from_secs(20);

fn config() -> WriterConfig {
    WriterConfig {
        workers: 2,
        max_stuck: 4,
        deadline: Duration::from_millis(50),
    }
}

fn mib(n: u64) -> Value {
    Value::Limit(Limit::Bytes(Bytes::mib(n)))
}

/// Takes outcomes until the condition holds.
fn until(writer: &Writer, enough: impl Fn(&[Outcome]) -> bool) -> Vec<Outcome> {
    let start = Instant::now();
    let mut out = Vec::new();
    while !enough(&out) {
        assert!(start.elapsed() < PATIENCE, "{out:?}");
        writer.outcomes(&mut out);
        std::thread::sleep(Duration::from_millis(1));
    }
    out
}

/// Waits until `count` writers hang at the gate.
fn until_waiting(gate: &Gate, count: usize) {
    let start = Instant::now();
    while gate.waiting() != count {
        assert!(start.elapsed() < PATIENCE, "{} wait", gate.waiting());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn of(outcomes: &[Outcome], ticket: Ticket) -> Vec<WriteResult> {
    outcomes
        .iter()
        .filter(|outcome| outcome.ticket == ticket)
        .map(|outcome| outcome.result.clone())
        .collect()
}

fn stuck_host() -> (Arc<FakeFs>, Gate) {
    let fs = FakeFs::new();
    fs.mkdir("/stuck");
    let gate = Gate::new();
    fs.inject("/stuck", "memory.high", Fault::Slow(gate.clone()));
    (fs, gate)
}

/// A writer that waits patiently for the first write, which hangs at the gate.
fn hanging() -> (Arc<FakeFs>, Gate, Group, Writer, Ticket) {
    let (fs, gate) = stuck_host();
    let group = fs.open("/stuck").unwrap();
    let patient = WriterConfig {
        deadline: PATIENCE,
        ..config()
    };
    let writer = Writer::new(patient).unwrap();
    let first = writer.submit(&group, Knob::MemoryHigh, mib(1));
    until_waiting(&gate, 1);
    (fs, gate, group, writer, first)
}

#[test]
fn a_write_is_done_and_reported_once() {
    let fs = FakeFs::new();
    fs.mkdir("/a");
    let writer = Writer::new(config()).unwrap();
    let ticket = writer.submit(&fs.open("/a").unwrap(), Knob::MemoryLow, mib(8));
    assert!(writer.drain(PATIENCE));
    let mut out = Vec::new();
    writer.outcomes(&mut out);
    assert_eq!(of(&out, ticket), [WriteResult::Done]);
    assert_eq!(fs.text("/a", "memory.low").unwrap(), "8388608\n");
}

#[test]
fn a_value_that_replaced_the_one_read_stays() {
    let (fs, gate, group, writer, _) = hanging();
    let (found, wanted) = (Value::Weight(100), Value::Weight(760));
    let lost = writer.submit_over(&group, Knob::IoWeight, found, wanted);
    let won = writer.submit_over(&group, Knob::MemoryLow, mib(0), mib(8));
    fs.foreign_write("/stuck", "io.weight", "default 400");
    gate.open();
    assert!(writer.drain(PATIENCE));
    let mut out = Vec::new();
    writer.outcomes(&mut out);
    assert_eq!(of(&out, lost), [WriteResult::Changed]);
    assert_eq!(of(&out, won), [WriteResult::Done]);
    assert_eq!(fs.text("/stuck", "io.weight").unwrap(), "default 400\n");
}

#[test]
fn stuck_groups_never_delay_the_others() {
    let (fs, gate) = stuck_host();
    let writer = Writer::new(config()).unwrap();
    // More stuck groups than workers.
    for n in 0..4 {
        let path = format!("/stuck{n}");
        fs.mkdir(&path);
        fs.inject(&path, "memory.high", Fault::Slow(gate.clone()));
        writer.submit(&fs.open(&path).unwrap(), Knob::MemoryHigh, mib(1));
    }
    let tickets: Vec<Ticket> = (0..50)
        .map(|n| {
            let path = format!("/fine{n}");
            fs.mkdir(&path);
            writer.submit(&fs.open(&path).unwrap(), Knob::MemoryLow, mib(1))
        })
        .collect();
    let out = until(&writer, |out| {
        tickets.iter().all(|ticket| !of(out, *ticket).is_empty())
    });
    for ticket in tickets {
        assert_eq!(of(&out, ticket), [WriteResult::Done]);
    }
    // They hang, and no other group waited.
    until_waiting(&gate, 4);
    gate.open();
}

#[test]
fn a_worker_that_returns_takes_the_place_of_one_that_was_not_replaced() {
    let fs = FakeFs::new();
    let gates = ["/first", "/second"].map(|path| {
        fs.mkdir(path);
        let gate = Gate::new();
        fs.inject(path, "memory.high", Fault::Slow(gate.clone()));
        gate
    });
    let few = WriterConfig {
        workers: 1,
        max_stuck: 1,
        ..config()
    };
    let writer = Writer::new(few).unwrap();
    let [first, second] = ["/first", "/second"]
        .map(|path| writer.submit(&fs.open(path).unwrap(), Knob::MemoryHigh, mib(1)));
    let timed_out = |out: &[Outcome], ticket| of(out, ticket).contains(&WriteResult::TimedOut);
    until(&writer, |out| timed_out(out, second));
    gates[0].open();
    until(&writer, |out| {
        of(out, first)
            .iter()
            .any(|r| matches!(r, WriteResult::Late(_)))
    });
    fs.mkdir("/fine");
    let fine = writer.submit(&fs.open("/fine").unwrap(), Knob::MemoryLow, mib(1));
    until(&writer, |out| of(out, fine) == [WriteResult::Done]);
    gates[1].open();
}

#[test]
fn a_timed_out_write_is_reported_again_when_it_comes_back() {
    let (fs, gate) = stuck_host();
    let writer = Writer::new(config()).unwrap();
    let ticket = writer.submit(&fs.open("/stuck").unwrap(), Knob::MemoryHigh, mib(1));
    let out = until(&writer, |out| !of(out, ticket).is_empty());
    assert_eq!(of(&out, ticket), [WriteResult::TimedOut]);
    assert!(writer.drain(PATIENCE), "a timed-out write does not count");
    gate.open();
    let out = until(&writer, |out| !of(out, ticket).is_empty());
    assert_eq!(of(&out, ticket), [WriteResult::Late(Ok(Written::Done))]);
}

#[test]
fn settling_waits_for_a_timed_out_write_of_the_knob_and_for_no_other() {
    let (fs, gate) = stuck_host();
    let writer = Writer::new(config()).unwrap();
    let ticket = writer.submit(&fs.open("/stuck").unwrap(), Knob::MemoryHigh, mib(1));
    until(&writer, |out| of(out, ticket) == [WriteResult::TimedOut]);
    let high = |knob| knob == Knob::MemoryHigh;
    assert!(writer.drain(PATIENCE), "draining does not wait for it");
    assert!(writer.settle(PATIENCE, |knob| !high(knob)));
    assert!(!writer.settle(Duration::from_millis(20), high));
    gate.open();
    assert!(writer.settle(PATIENCE, high));
    assert_eq!(fs.text("/stuck", "memory.high").unwrap(), "1048576\n");
}

#[test]
fn raising_the_limit_gets_past_the_write_that_hangs() {
    let (fs, gate) = stuck_host();
    let group = fs.open("/stuck").unwrap();
    let writer = Writer::new(config()).unwrap();
    writer.submit(&group, Knob::MemoryHigh, mib(1));
    until_waiting(&gate, 1);
    until(&writer, |out| !out.is_empty());
    fs.clear_faults("/stuck");
    let raise = writer.submit(&group, Knob::MemoryHigh, Value::Limit(Limit::Max));
    let out = until(&writer, |out| !of(out, raise).is_empty());
    assert_eq!(of(&out, raise), [WriteResult::Done]);
    assert_eq!(gate.waiting(), 1);
    assert_eq!(fs.text("/stuck", "memory.high").unwrap(), "max\n");
    gate.open();
}

#[test]
fn a_stuck_group_never_takes_more_than_two_workers() {
    let (fs, gate) = stuck_host();
    let group = fs.open("/stuck").unwrap();
    let writer = Writer::new(config()).unwrap();
    for n in 1..=5 {
        writer.submit(&group, Knob::MemoryHigh, mib(n));
        std::thread::sleep(Duration::from_millis(80));
    }
    until_waiting(&gate, 2);
    std::thread::sleep(4 * config().deadline);
    assert_eq!(gate.waiting(), 2);
    gate.open();
    assert!(writer.drain(PATIENCE));
    assert_eq!(fs.text("/stuck", "memory.high").unwrap(), "5242880\n");
}

#[test]
fn a_newer_value_supersedes_a_queued_one() {
    let (fs, gate, group, writer, first) = hanging();
    let tickets = [2, 3, 4].map(|n| writer.submit(&group, Knob::MemoryLow, mib(n)));
    gate.open();
    assert!(writer.drain(PATIENCE));
    let mut out = Vec::new();
    writer.outcomes(&mut out);
    assert_eq!(of(&out, first), [WriteResult::Done]);
    assert_eq!(of(&out, tickets[0]), [WriteResult::Superseded]);
    assert_eq!(of(&out, tickets[1]), [WriteResult::Superseded]);
    assert_eq!(of(&out, tickets[2]), [WriteResult::Done]);
    let lows = fs.writes().into_iter().filter(|w| w.1 == "memory.low");
    assert_eq!(lows.count(), 1);
}

#[test]
fn writes_to_one_group_keep_their_order() {
    let fs = FakeFs::new();
    fs.mkdir("/a");
    fs.update("/a", |group| group.bfq_weight = Some(100));
    let group = fs.open("/a").unwrap();
    let writer = Writer::new(config()).unwrap();
    for round in 1..50 {
        fs.clear_writes();
        writer.submit(&group, Knob::MemoryLow, mib(round));
        writer.submit(&group, Knob::MemoryHigh, mib(100 + round));
        writer.submit(&group, Knob::IoBfqWeight, Value::Weight(round as u32));
        assert!(writer.drain(PATIENCE));
        let files: Vec<String> = fs.writes().into_iter().map(|write| write.1).collect();
        assert_eq!(files, ["memory.low", "memory.high", "io.bfq.weight"]);
    }
}

#[test]
fn failures_name_their_cause() {
    let fs = FakeFs::new();
    fs.mkdir("/denied");
    fs.inject("/denied", "memory.low", Fault::Denied);
    fs.mkdir("/gone");
    let writer = Writer::new(config()).unwrap();
    let gone = fs.open("/gone").unwrap();
    fs.recreate("/gone");
    let denied = writer.submit(&fs.open("/denied").unwrap(), Knob::MemoryLow, mib(1));
    let gone = writer.submit(&gone, Knob::MemoryLow, mib(1));
    assert!(writer.drain(PATIENCE));
    let mut out = Vec::new();
    writer.outcomes(&mut out);
    let expected = Error::from_errno("/denied", "memory.low", Errno::ACCESS);
    assert_eq!(of(&out, denied), [WriteResult::Failed(expected)]);
    assert!(matches!(&of(&out, gone)[..], [WriteResult::Failed(error)] if error.is_gone()));
}

#[test]
fn dropping_the_writer_does_not_wait_for_the_stuck() {
    let (fs, gate) = stuck_host();
    let writer = Writer::new(config()).unwrap();
    writer.submit(&fs.open("/stuck").unwrap(), Knob::MemoryHigh, mib(1));
    until_waiting(&gate, 1);
    let start = Instant::now();
    drop(writer);
    assert!(start.elapsed() < Duration::from_secs(1));
    gate.open();
}
