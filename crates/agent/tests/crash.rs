//! Killed at any instant, whatever else happens: every knob ends as its owner left it.
//!
//! After a number of writes the agent counts as dead: its later writes do not arrive, and its journal is
//! taken as it was at that instant. Then the next start restores.

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{host, limit, restore_from, text, write, Rig};
use justitia_cgroup::{
    Buffer, CgroupFs, Child, Device, Directory, Error, FakeFs, File, Fs, Group, Owner, Process,
    Quirks, Watch,
};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::{GroupId, Host};
use justitia_policy::units::Limit;
use proptest::prelude::*;
use rustix::io::Errno;

const NAMES: [&str; 3] = ["a", "b", "c"];
const KNOBS: [Knob; 3] = [Knob::MemoryLow, Knob::MemoryHigh, Knob::IoWeight];

/// Lets a number of writes through; then the agent is dead.
struct Fuse {
    fake: Arc<FakeFs>,
    left: Mutex<usize>,
    journal: PathBuf,
    /// The journal at the instant of death.
    at_death: Mutex<Option<Vec<u8>>>,
}

impl Fuse {
    fn write(&self, path: &str, file: File, text: &[u8]) {
        let mut left = self.left.lock().unwrap();
        if *left == 0 {
            let mut at_death = self.at_death.lock().unwrap();
            at_death.get_or_insert_with(|| std::fs::read(&self.journal).unwrap());
        } else {
            *left -= 1;
            let text = std::str::from_utf8(text).unwrap();
            self.fake.foreign_write(path, file.name(), text);
        }
    }
}

struct FusedFs(Arc<Fuse>);

struct FusedDirectory {
    fuse: Arc<Fuse>,
    group: Group,
    quirks: Quirks,
}

impl CgroupFs for FusedFs {
    fn open(&self, path: &str) -> Result<Group, Error> {
        let group = self.0.fake.open(path)?;
        let (fuse, quirks) = (self.0.clone(), Quirks::default());
        Ok(Group::new(Arc::new(FusedDirectory {
            fuse,
            group,
            quirks,
        })))
    }
    fn children(&self, path: &str, most: usize, out: &mut Vec<Child>) -> Result<(), Error> {
        self.0.fake.children(path, most, out)
    }
    fn owner(&self, path: &str, file: Option<File>) -> Result<Owner, Error> {
        self.0.fake.owner(path, file)
    }
    fn read_host(&self) -> Host {
        self.0.fake.read_host()
    }
    fn process(&self, pid: u32) -> Result<Box<dyn Process>, Errno> {
        self.0.fake.process(pid)
    }
    fn stacked(&self, device: Device) -> bool {
        self.0.fake.stacked(device)
    }
    fn block_devices(&self, all: bool, out: &mut Vec<String>) {
        self.0.fake.block_devices(all, out);
    }
    fn watch_host_pressure(&self) -> Result<Watch, Errno> {
        Err(Errno::OPNOTSUPP)
    }
    fn now_boottime(&self) -> Duration {
        self.0.fake.now_boottime()
    }
}

impl Directory for FusedDirectory {
    fn id(&self) -> GroupId {
        self.group.id()
    }
    fn path(&self) -> &str {
        self.group.path()
    }
    fn exists(&self) -> bool {
        self.group.exists()
    }
    fn read(&self, file: File, buffer: &mut Buffer) -> Result<(), Errno> {
        self.group.read(file, buffer).map_err(|error| {
            if error.is_gone() {
                Errno::NODEV
            } else {
                Errno::NOENT
            }
        })
    }
    fn write(&self, file: File, text: &[u8]) -> Result<(), Errno> {
        if !self.group.exists() {
            return Err(Errno::NODEV);
        }
        self.fuse.write(self.path(), file, text);
        Ok(())
    }
    fn can_write(&self, _: File) -> bool {
        true
    }
    fn xattr(&self, _: &str, _: &mut Buffer) -> Result<(), Errno> {
        Err(Errno::NODATA)
    }
    fn set_xattr(&self, _: &str, _: Option<&[u8]>) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }
    fn watch(&self, _: File) -> Result<Watch, Errno> {
        Err(Errno::OPNOTSUPP)
    }
    fn quirks(&self) -> &Quirks {
        &self.quirks
    }
}

#[derive(Debug, Clone)]
enum Act {
    /// One plan of writes: group, knob, value.
    Plan(Vec<(usize, usize, u64)>),
    /// Another program writes a value that nobody else uses.
    Foreign(usize, usize),
    /// A group goes and comes back under the same name.
    Recreate(usize),
    /// Time passes: the agent looks.
    Look,
}

fn act() -> impl Strategy<Value = Act> {
    // A plan writes each knob at most once.
    let planned = proptest::collection::btree_map((0..3_usize, 0..3_usize), 1..6_u64, 1..8)
        .prop_map(|knobs| {
            knobs
                .into_iter()
                .map(|((group, knob), n)| (group, knob, n))
                .collect()
        });
    prop_oneof![
        6 => planned.prop_map(Act::Plan),
        1 => (0..3_usize, 0..3_usize).prop_map(|(group, knob)| Act::Foreign(group, knob)),
        1 => (0..3_usize).prop_map(Act::Recreate),
        2 => Just(Act::Look),
    ]
}

fn value(knob: Knob, n: u64) -> Value {
    match knob {
        Knob::IoWeight => Value::Weight(100 + n as u32),
        Knob::MemoryHigh if n == 1 => Value::Limit(Limit::Max),
        _ => limit(n * (1 << 20) + 77),
    }
}

fn path(group: usize) -> String {
    format!("/app/{}", NAMES[group])
}

/// The values that knobs should hold in the end.
type Expected = BTreeMap<(usize, usize), String>;

fn fresh(fake: &FakeFs, group: usize, expected: &mut Expected) {
    for (at, &knob) in KNOBS.iter().enumerate() {
        expected.insert((group, at), text(fake, &path(group), knob));
    }
}

fn run(acts: &[Act], lifetime: usize) -> Result<(), TestCaseError> {
    let fake = host(&NAMES);
    fake.foreign_write("/app/a", "memory.low", "40960");
    fake.foreign_write("/app/b", "io.weight", "default 333");
    let disk = fake.add_disk("sda", true);
    let state = tempfile::tempdir().unwrap();
    let fuse = Arc::new(Fuse {
        fake: fake.clone(),
        left: Mutex::new(lifetime),
        journal: state.path().join("journal"),
        at_death: Mutex::default(),
    });
    let mut rig = Rig::new(Arc::new(FusedFs(fuse.clone())), state.path());
    let mut ids: Vec<GroupId> = (0..3).map(|group| fake.mkdir(&path(group))).collect();
    let mut expected = Expected::new();
    for group in 0..3 {
        fresh(&fake, group, &mut expected);
    }
    let mut foreign = 0;
    for act in acts {
        match act {
            Act::Plan(writes) => {
                let writes = writes
                    .iter()
                    .map(|&(group, knob, n)| write(ids[group], KNOBS[knob], value(KNOBS[knob], n)));
                let switch = write(disk, Knob::BfqLowLatency, Value::Switch(false));
                rig.apply(std::iter::once(switch).chain(writes).collect());
            }
            &Act::Foreign(group, knob) => {
                foreign += 1;
                let text_of_it = match KNOBS[knob] {
                    Knob::IoWeight => format!("default {}", 9000 + foreign),
                    _ => ((1_u64 << 30) + foreign * 4096).to_string(),
                };
                fake.foreign_write(&path(group), KNOBS[knob].file_name(), &text_of_it);
                expected.insert((group, knob), text_of_it);
            }
            &Act::Recreate(group) => {
                ids[group] = fake.recreate(&path(group));
                fresh(&fake, group, &mut expected);
                rig.look();
            }
            Act::Look => {
                rig.look();
            }
        }
    }
    let journal = fuse.at_death.lock().unwrap().take();
    let journal = journal.unwrap_or_else(|| std::fs::read(&fuse.journal).unwrap_or_default());
    let next = tempfile::tempdir().unwrap();
    std::fs::write(next.path().join("journal"), journal).unwrap();
    let fs: Fs = fake.clone();
    let restored = restore_from(&fs, next.path());
    prop_assert_eq!(&restored.problems, &Vec::new());
    for (&(group, knob), expected) in &expected {
        let present = text(&fake, &path(group), KNOBS[knob]);
        prop_assert_eq!(&present, expected, "{} {}", path(group), KNOBS[knob]);
    }
    prop_assert_eq!(text(&fake, "block:sda", Knob::BfqLowLatency), "1");
    // And once more, on a journal that is empty now: nothing happens.
    fake.clear_writes();
    restore_from(&fs, next.path());
    prop_assert!(fake.writes().is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn killed_at_any_write_every_knob_ends_as_its_owner_left_it(
        acts in proptest::collection::vec(act(), 1..12),
        lifetime in 0..40_usize,
    ) {
        run(&acts, lifetime)?;
    }
}
