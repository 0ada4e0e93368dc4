//! The journal's promises: nothing announced is lost, nothing torn is believed.

use justitia_policy::units::{Bytes, Limit};
use proptest::prelude::*;

use super::*;

const BOOT: &str = "boot-1";

fn low(bytes: u64) -> Value {
    Value::Limit(Limit::Bytes(Bytes(bytes)))
}

fn hold(id: u64, knob: Knob, prior: Value) -> Hold {
    Hold {
        group: GroupId(id),
        path: format!("/app/g {id}").into(),
        knob,
        prior,
    }
}

fn open(dir: &Path) -> Journal {
    Journal::open(dir, BOOT).unwrap()
}

#[test]
fn what_was_held_and_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    journal
        .hold(&[
            hold(7, Knob::MemoryHigh, Value::Limit(Limit::Max)),
            hold(7, Knob::IoWeight, Value::Weight(100)),
            hold(8, Knob::MemoryLow, low(0)),
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
    assert_eq!(again.damaged(), 0);
    let priors = Journal::priors(dir.path(), BOOT).unwrap();
    let max = Value::Limit(Limit::Max);
    assert_eq!(priors[&(GroupId(7), Knob::MemoryHigh)], max);
    assert_eq!(priors.len(), 2);
    let elsewhere = Journal::priors(&dir.path().join("none"), BOOT).unwrap();
    assert!(elsewhere.is_empty());
}

#[test]
fn a_journal_of_another_boot_is_discarded() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path())
        .hold(&[hold(7, Knob::MemoryLow, low(0))])
        .unwrap();
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
        journal
            .hold(&[hold(id, Knob::MemoryLow, low(id * 4096))])
            .unwrap();
    }
    let path = dir.path().join(FILE);
    let text = fs::read_to_string(&path).unwrap().replace("g 2", "g 9");
    fs::write(&path, text).unwrap();
    let again = open(dir.path());
    assert_eq!(again.damaged(), 1);
    let held: Vec<u64> = again.entries().keys().map(|(group, _)| group.0).collect();
    assert_eq!(held, [1, 3]);
}

#[test]
fn it_does_not_grow_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    journal.hold(&[hold(1, Knob::MemoryLow, low(0))]).unwrap();
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
    journal.hold(&[hold(1, Knob::MemoryLow, low(0))]).unwrap();
    journal.forget(&[(GroupId(1), Knob::MemoryLow)]).unwrap();
    journal.close().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn without_a_journal_nothing_is_written_to_the_host() {
    use crate::apply::Applier;
    use crate::observe::Observer;
    use justitia_cgroup::{FakeFs, Writer, WriterConfig};
    use justitia_discover::{DiscoverConfig, RuntimeDirs};
    use justitia_policy::plan::{Plan, Reason, Write};

    let fake = FakeFs::new();
    let group = fake.mkdir("/app/a");
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    // A file system without room.
    journal.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let writer = Writer::new(WriterConfig::default(), None).unwrap();
    let mut applier = Applier::new(journal, writer, crate::Log::captured());
    let config = DiscoverConfig {
        manage: vec!["/app/*".into()],
        ..DiscoverConfig::default()
    };
    let mut observer = Observer::new(fake.clone(), config, RuntimeDirs::none()).unwrap();
    observer.observe();
    let (knob, value, reason) = (Knob::MemoryLow, low(1 << 20), Reason::NoContention);
    let plan = Plan {
        writes: vec![Write {
            group,
            knob,
            value,
            reason,
        }],
        ..Plan::default()
    };
    let error = applier.apply(&plan, &mut observer).unwrap_err();
    assert!(error.remedy.contains("make room"), "{error:?}");
    applier.quiesce(|_| true);
    assert!(fake.writes().is_empty());
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
    /// Cut the file anywhere: what is read is what was announced by some prefix of the acts, and
    /// nothing is taken for damage.
    #[test]
    fn a_torn_journal_is_an_earlier_journal(
        acts in proptest::collection::vec(act(), 1..30),
        cut in any::<proptest::sample::Index>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(dir.path());
        let mut history = vec![(0, BTreeMap::new()), (journal.length, BTreeMap::new())];
        for act in acts {
            match act {
                Act::Hold(id, prior) => {
                    // A knob is held once: its prior value is the first one.
                    if journal.get(GroupId(id), Knob::MemoryLow).is_none() {
                        journal.hold(&[hold(id, Knob::MemoryLow, low(prior))]).unwrap();
                    }
                }
                Act::Wrote(id, value) => {
                    if journal.get(GroupId(id), Knob::MemoryLow).is_some() {
                        journal.wrote(&[(GroupId(id), Knob::MemoryLow, low(value))]).unwrap();
                    }
                }
                Act::Forget(id) => journal.forget(&[(GroupId(id), Knob::MemoryLow)]).unwrap(),
            }
            history.push((journal.length, journal.entries().clone()));
        }
        let path = dir.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        let length = cut.index(whole.len() + 1);
        fs::write(&path, &whole[..length]).unwrap();
        let again = open(dir.path());
        let expected = history.iter().rev().find(|(at, _)| *at <= length as u64).unwrap();
        prop_assert_eq!(again.entries(), &expected.1);
        prop_assert_eq!(again.damaged(), 0);
    }
}

#[test]
fn a_record_behind_one_that_was_cut_off_has_no_hole_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    // As a full disk leaves it: a part was written, then cut off.
    journal
        .file
        .write_all(b"0123456789abcdef hold 7 mem")
        .unwrap();
    journal.file.set_len(journal.length).unwrap();
    journal
        .hold(&[
            hold(7, Knob::MemoryLow, low(0)),
            hold(8, Knob::MemoryLow, low(0)),
        ])
        .unwrap();
    let again = open(dir.path());
    assert_eq!((again.entries().len(), again.damaged()), (2, 0));
}
