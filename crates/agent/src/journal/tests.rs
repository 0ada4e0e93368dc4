//! The journal's promises: nothing announced is lost, nothing torn is believed.

use std::cell::Cell;

use justitia_cgroup::{FakeFs, Fs, WriterConfig};
use justitia_discover::{DiscoverConfig, RuntimeDirs};
use justitia_policy::plan::{Plan, Reason, Write};
use justitia_policy::units::{Bytes, Limit};
use proptest::prelude::*;

use super::*;
use crate::apply::{Applier, Writers};
use crate::observe::Observer;
use crate::restore::restore;

const BOOT: &str = "boot-1";

fn low(bytes: u64) -> Value {
    Value::Limit(Limit::Bytes(Bytes(bytes)))
}

fn hold(id: u64, knob: Knob, prior: Value) -> ((GroupId, Knob), Entry) {
    let entry = Entry::new(format!("/app/g {id}"), prior);
    ((GroupId(id), knob), entry)
}

fn hold_low(id: u64, prior: u64) -> ((GroupId, Knob), Entry) {
    hold(id, Knob::MemoryLow, low(prior))
}

fn open(dir: &Path) -> Journal {
    Journal::open(dir, BOOT).unwrap()
}

#[test]
fn held_and_written_values_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    journal
        .hold(&[
            hold(7, Knob::MemoryHigh, Value::Limit(Limit::Max)),
            hold(7, Knob::IoWeight, Value::Weight(100)),
            hold_low(8, 0),
        ])
        .unwrap();
    journal
        .wrote(&[(GroupId(7), Knob::MemoryHigh, low(4096))])
        .unwrap();
    journal.forget(&[(GroupId(8), Knob::MemoryLow)]).unwrap();
    let expected = journal.entries().clone();
    let again = open(dir.path());
    assert_eq!(again.entries(), &expected);
    assert_eq!(again.entries().len(), 2);
    assert_eq!(
        &*again.get(GroupId(7), Knob::MemoryHigh).unwrap().path,
        "/app/g 7"
    );
    assert_eq!(again.damaged(), None);
    let priors = Journal::priors(dir.path(), BOOT).unwrap();
    let max = Value::Limit(Limit::Max);
    assert_eq!(priors[&(GroupId(7), Knob::MemoryHigh)], max);
    assert_eq!(priors.len(), 2);
    let elsewhere = Journal::priors(&dir.path().join("none"), BOOT).unwrap();
    assert!(elsewhere.is_empty());
}

#[test]
fn restoring_leaves_no_damage_in_the_next_agents_journal() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path())
        .hold(&[hold_low(7, 0), hold_low(8, 0)])
        .unwrap();
    let mut next = open(dir.path());
    next.forget(&[(GroupId(7), Knob::MemoryLow)]).unwrap();
    next.forget(&[(GroupId(8), Knob::MemoryLow)]).unwrap();
    next.hold(&[hold_low(9, 0)]).unwrap();
    let after = open(dir.path());
    assert_eq!((after.entries().len(), after.damaged()), (1, None));
}

#[test]
fn a_journal_of_another_boot_is_discarded() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).hold(&[hold_low(7, 0)]).unwrap();
    assert!(Journal::open(dir.path(), "boot-2")
        .unwrap()
        .entries()
        .is_empty());
}

#[test]
fn an_unknown_format_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::new();
    push_line(&mut text, "justitia-journal 99 boot-1");
    fs::write(dir.path().join(FILE), &text).unwrap();
    let error = Journal::open(dir.path(), BOOT).unwrap_err();
    assert!(error.cause.contains("format"), "{error}");
    assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), text);
}

#[test]
fn a_damaged_line_in_the_middle_costs_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    for id in 1..=3 {
        journal.hold(&[hold_low(id, id * 4096)]).unwrap();
    }
    let path = dir.path().join(FILE);
    let text = fs::read_to_string(&path).unwrap().replace("g 2", "g 9");
    fs::write(&path, text).unwrap();
    let again = open(dir.path());
    let damage = again.damaged().unwrap();
    assert_eq!(damage.lines, 1);
    assert!(fs::read_to_string(damage.kept.as_ref().unwrap())
        .unwrap()
        .contains("g 9"));
    let held: Vec<u64> = again.entries().keys().map(|(group, _)| group.0).collect();
    assert_eq!(held, [1, 3]);
}

#[test]
fn it_does_not_grow_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    journal.hold(&[hold_low(1, 0)]).unwrap();
    for n in 0..3 * SLACK_LINES as u64 {
        journal
            .wrote(&[(GroupId(1), Knob::MemoryLow, low(n * 4096))])
            .unwrap();
    }
    let length = fs::metadata(dir.path().join(FILE)).unwrap().len();
    assert!(length < 2_000_000, "{length}");
    assert_eq!(open(dir.path()).entries(), journal.entries());
}

#[test]
fn an_empty_journal_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    journal.hold(&[hold_low(1, 0)]).unwrap();
    journal.forget(&[(GroupId(1), Knob::MemoryLow)]).unwrap();
    journal.close().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// The number of the call that fails, counted from here. `lasting`: every call after it fails, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) at: u32,
    pub(crate) lasting: bool,
}

thread_local! {
    pub(crate) static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

fn fail(at: u32, lasting: bool) {
    FAULT.set(Some(Fault { at, lasting }));
}

/// Makes the calls fail that a test ordered.
pub(super) fn called(_: Call) -> io::Result<()> {
    let Some(fault) = FAULT.get() else {
        return Ok(());
    };
    if fault.at > 0 {
        FAULT.set(Some(Fault {
            at: fault.at - 1,
            ..fault
        }));
        return Ok(());
    }
    if !fault.lasting {
        FAULT.set(None);
    }
    Err(io::ErrorKind::StorageFull.into())
}

/// A host with two groups, what an agent does there, and a journal that fails.
struct Host {
    fake: Arc<FakeFs>,
    dir: tempfile::TempDir,
    applier: Applier,
    observer: Observer,
    groups: [GroupId; 2],
}

impl Host {
    fn new() -> Host {
        let fake = FakeFs::new();
        let groups = ["/app/a", "/app/b"].map(|path| fake.mkdir(path));
        let dir = tempfile::tempdir().unwrap();
        let writers = Writers::start(WriterConfig::default()).unwrap();
        let applier = Applier::new(open(dir.path()), writers, crate::Log::captured());
        let config = DiscoverConfig::managing(&["/app/*"]);
        let observer = Observer::new(fake.clone(), config, RuntimeDirs::none()).unwrap();
        let mut host = Host {
            fake,
            dir,
            applier,
            observer,
            groups,
        };
        host.observer.observe();
        host
    }

    /// Sets each group's limit, and waits for the kernel.
    fn limit(&mut self, limits: [Limit; 2]) -> Vec<Problem> {
        let writes = self
            .groups
            .into_iter()
            .zip(limits)
            .map(|(group, limit)| Write {
                group,
                knob: Knob::MemoryHigh,
                value: Value::Limit(limit),
                reason: Reason::NoContention,
            });
        let plan = Plan {
            writes: writes.collect(),
            ..Plan::default()
        };
        let problems = self.applier.apply(&plan, &mut self.observer);
        self.applier.quiesce();
        problems
    }

    fn limits(&self) -> [Limit; 2] {
        ["/app/a", "/app/b"].map(|path| self.fake.group(path).high)
    }

    /// The limits that the next agent, or `justitia restore`, leaves after a crash now.
    fn after_a_crash(&self) -> [Limit; 2] {
        let before = self.limits();
        let dir = tempfile::tempdir().unwrap();
        let _ = fs::copy(self.dir.path().join(FILE), dir.path().join(FILE));
        let mut journal = open(dir.path());
        let writers = Writers::start(WriterConfig::default()).unwrap();
        let fs: Fs = self.fake.clone();
        restore(&fs, &mut journal, &writers);
        let restored = self.limits();
        for (path, limit) in ["/app/a", "/app/b"].into_iter().zip(before) {
            self.fake.update(path, |group| group.high = limit);
        }
        restored
    }
}

const MIB: fn(u64) -> Limit = |mib| Limit::Bytes(Bytes::mib(mib));
const FREE: [Limit; 2] = [Limit::Max, Limit::Max];

#[test]
fn while_the_journal_cannot_be_written_no_limit_falls_and_every_limit_can_rise() {
    let mut host = Host::new();
    assert!(host.limit([MIB(50), Limit::Max]).is_empty());
    fail(0, true);
    let problems = host.limit([MIB(60), MIB(40)]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(
        host.limits(),
        FREE,
        "one rose past what was planned, the other did not fall"
    );
    assert_eq!(host.after_a_crash(), FREE);
    FAULT.set(None);
    assert!(host.limit([MIB(60), MIB(40)]).is_empty());
    assert_eq!(host.limits(), [MIB(60), MIB(40)]);
}

#[test]
fn a_limit_raised_without_the_journal_is_not_taken_for_the_users() {
    let mut host = Host::new();
    let protection = Write {
        group: host.groups[0],
        knob: Knob::MemoryLow,
        value: low(20 << 20),
        reason: Reason::NoContention,
    };
    let plan = Plan {
        writes: vec![protection],
        ..Plan::default()
    };
    host.applier.apply(&plan, &mut host.observer);
    assert!(host.limit([MIB(50), MIB(50)]).is_empty());
    fail(0, true);
    for mib in 60..80 {
        host.limit([MIB(mib), MIB(mib)]);
        let observation = host.observer.observe();
        (host.applier).check(&observation.knobs_read, &mut host.observer);
    }
    assert_eq!(host.limits(), FREE);
    FAULT.set(None);
    assert!(host.limit([MIB(60), MIB(40)]).is_empty());
    assert_eq!(host.limits(), [MIB(60), MIB(40)]);
}

#[test]
fn when_any_call_fails_every_limit_can_rise_and_comes_back_after_a_crash() {
    // Enough steps to hold, to write, to forget and to rewrite the file, which takes some ten calls.
    let script: [[Limit; 2]; 5] = [
        [MIB(50), Limit::Max],
        [MIB(40), MIB(30)],
        [MIB(70), MIB(20)],
        FREE,
        [MIB(10), MIB(10)],
    ];
    let mut failed = 0;
    for at in 0..40 {
        for lasting in [false, true] {
            for anew in [false, true] {
                let mut host = Host::new();
                fail(at, lasting);
                for (n, limits) in script.into_iter().enumerate() {
                    if anew && n == 2 {
                        fs::remove_dir_all(host.dir.path()).unwrap();
                    }
                    let before = host.limits();
                    failed += host.limit(limits).len();
                    let now = host.limits();
                    for i in 0..2 {
                        assert!(
                            now[i] == limits[i] || now[i] >= before[i],
                            "{at} {lasting} {n}"
                        );
                        assert!(
                            limits[i] < Limit::Max || now[i] == Limit::Max,
                            "{at} {lasting} {n}"
                        );
                    }
                    // Nothing is left of a journal that was removed and cannot be written again.
                    if host.dir.path().join(FILE).exists() || now == FREE || !anew {
                        assert_eq!(host.after_a_crash(), FREE, "{at} {lasting} {anew} {n}");
                    }
                }
                FAULT.set(None);
                assert!(host.limit([MIB(15), MIB(25)]).is_empty(), "{at} {lasting}");
                assert_eq!(host.limits(), [MIB(15), MIB(25)]);
                assert_eq!(host.after_a_crash(), FREE);
            }
        }
    }
    assert!(failed > 100, "{failed} failures were met");
}

#[test]
fn a_damaged_first_line_costs_only_itself_and_the_bytes_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    journal.hold(&[hold_low(1, 4096)]).unwrap();
    let path = dir.path().join(FILE);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("justitia", "justit1a", 1)).unwrap();
    let mut again = open(dir.path());
    assert_eq!(again.entries(), journal.entries());
    let kept = again.damaged().unwrap().kept.clone().unwrap();
    let file = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(file(&kept), file(&path), "a full disk keeps it as well");
    again.hold(&[hold_low(2, 0)]).unwrap();
    assert!(fs::read_to_string(kept).unwrap().contains("justit1a"));
    assert_eq!(open(dir.path()).damaged(), None);
}

#[test]
fn a_lost_first_line_costs_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    journal.hold(&[hold_low(1, 4096)]).unwrap();
    let path = dir.path().join(FILE);
    let text = fs::read_to_string(&path).unwrap();
    let records = text.split_once('\n').unwrap().1;
    fs::write(&path, records).unwrap();
    let again = open(dir.path());
    assert_eq!(again.entries(), journal.entries());
    assert_eq!(again.damaged().unwrap().lines, 1);
}

#[test]
fn of_many_damaged_files_the_first_and_the_last_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..6 {
        fs::write(dir.path().join(FILE), format!("damage {n}\nmore\n")).unwrap();
        let damage = open(dir.path()).damaged().cloned().unwrap();
        let kept = fs::read_to_string(damage.kept.unwrap()).unwrap();
        assert!(kept.contains(&format!("damage {n}")));
        fs::remove_file(dir.path().join(FILE)).unwrap();
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), KEPT as usize);
}

#[test]
fn a_journal_that_was_removed_is_written_anew_with_all_its_entries() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let mut journal = open(&state);
    journal.hold(&[hold_low(1, 4096)]).unwrap();
    fs::remove_dir_all(&state).unwrap();
    journal.hold(&[hold_low(2, 8192)]).unwrap();
    assert_eq!(open(&state).entries(), journal.entries());
    assert_eq!(journal.entries().len(), 2);
}

#[test]
fn values_are_compared_as_the_kernel_keeps_them() {
    assert!(same(low(4097), low(4096)) || rustix::param::page_size() != 4096);
    assert!(same(low(u64::MAX), Value::Limit(Limit::Max)));
    assert!(!same(low(0), Value::Limit(Limit::Max)));
    assert!(!same(Value::Weight(100), Value::Weight(101)));
}

#[derive(Debug, Clone)]
enum Act {
    Hold(u64, u64),
    Wrote(u64, u64),
    Forget(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (1..6_u64, 0..9_u64).prop_map(|(id, prior)| Act::Hold(id, prior * 4096)),
        (1..6_u64, 0..9_u64).prop_map(|(id, value)| Act::Wrote(id, value * 4096)),
        (1..6_u64).prop_map(Act::Forget),
    ]
}

proptest! {
    /// A file that is cut anywhere reads as some prefix of the acts, and nothing counts as damage.
    #[test]
    fn a_torn_journal_is_an_earlier_journal(
        acts in proptest::collection::vec(act(), 1..30),
        cut in any::<proptest::sample::Index>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(dir.path());
        let length = |dir: &Path| fs::metadata(dir.join(FILE)).map_or(0, |file| file.len());
        let mut history = vec![(0, BTreeMap::new())];
        for act in acts {
            match act {
                Act::Hold(id, prior) => {
                    // A knob is held once: its prior value is the first one.
                    if journal.get(GroupId(id), Knob::MemoryLow).is_none() {
                        journal.hold(&[hold_low(id, prior)]).unwrap();
                    }
                }
                Act::Wrote(id, value) => {
                    if journal.get(GroupId(id), Knob::MemoryLow).is_some() {
                        journal.wrote(&[(GroupId(id), Knob::MemoryLow, low(value))]).unwrap();
                    }
                }
                Act::Forget(id) => journal.forget(&[(GroupId(id), Knob::MemoryLow)]).unwrap(),
            }
            history.push((length(dir.path()), journal.entries().clone()));
        }
        let path = dir.path().join(FILE);
        let whole = fs::read(&path).unwrap_or_default();
        let length = cut.index(whole.len() + 1);
        fs::write(&path, &whole[..length]).unwrap();
        let again = open(dir.path());
        let expected = history.iter().rev().find(|(at, _)| *at <= length as u64).unwrap();
        prop_assert_eq!(again.entries(), &expected.1);
        prop_assert_eq!(again.damaged(), None);
    }
}

#[test]
fn a_record_behind_one_that_was_torn_has_no_hole_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    journal.hold(&[hold_low(6, 0)]).unwrap();
    fail(0, false);
    journal.hold(&[hold_low(7, 0)]).unwrap_err();
    assert!(!fs::read_to_string(dir.path().join(FILE))
        .unwrap()
        .ends_with('\n'));
    journal.hold(&[hold_low(8, 0)]).unwrap();
    let again = open(dir.path());
    assert_eq!((again.entries().len(), again.damaged()), (2, None));
}

#[test]
fn a_journal_of_an_earlier_version_names_its_knobs_and_values_as_before() {
    let mut text = String::new();
    push_line(&mut text, &format!("justitia-journal 1 {BOOT}"));
    let earlier = [
        ("memory.low", "0", Knob::MemoryLow, low(0)),
        (
            "memory.high",
            "max",
            Knob::MemoryHigh,
            Value::Limit(Limit::Max),
        ),
        ("io.weight", "100", Knob::IoWeight, Value::Weight(100)),
        (
            "io.bfq.weight",
            "300",
            Knob::IoBfqWeight,
            Value::Weight(300),
        ),
        ("low_latency", "1", Knob::BfqLowLatency, Value::Switch(true)),
    ];
    for (name, prior, _, _) in &earlier {
        push_line(&mut text, &format!("hold 7 {name} {prior} /app/g 7"));
    }
    let read = replay(text.as_bytes(), BOOT, Path::new(FILE)).unwrap();
    assert_eq!((read.entries.len(), read.damaged), (earlier.len(), 0));
    for (_, _, knob, prior) in earlier {
        assert_eq!(read.entries[&(GroupId(7), knob)].prior, prior);
    }
}
