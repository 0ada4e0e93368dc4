//! A real process killed with a real SIGKILL, on a tree of ordinary files taken for cgroups.
//!
//! The test starts itself again as the agent. The next start restores what that agent left behind.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::{limit, restore_from, until, write, Rig};
use justitia_cgroup::{Fs, RealFs};
use justitia_policy::plan::{Knob, Value};
use proptest::prelude::*;

const CHILD: &str = "JUSTITIA_TEST_KILL_DIR";
const FILES: [(&str, &str); 3] = [
    ("memory.low", "40960\n"),
    ("memory.high", "max\n"),
    ("io.weight", "default 250\n"),
];

fn tree(root: &Path) -> Vec<PathBuf> {
    let names = ["a", "b"];
    for name in names {
        let group = root.join("app").join(name);
        fs::create_dir_all(&group).unwrap();
        for (file, text) in FILES {
            fs::write(group.join(file), text).unwrap();
        }
    }
    names
        .iter()
        .map(|name| root.join("app").join(name))
        .collect()
}

/// Not a test by itself: the agent that is killed. Writes as fast as it can.
#[test]
fn agent_to_be_killed() {
    let Some(dir) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let fs: Fs = Arc::new(RealFs::on_directory(dir.join("tree")).unwrap());
    let ids = ["/app/a", "/app/b"].map(|path| fs.open(path).unwrap().id());
    let mut rig = Rig::new(fs, &dir.join("state"));
    for n in 1.. {
        let writes = ids.iter().flat_map(|&id| {
            [
                write(id, Knob::MemoryLow, limit(n << 12)),
                write(id, Knob::MemoryHigh, limit(n << 13)),
                write(id, Knob::IoWeight, Value::Weight(300 + (n % 100) as u32)),
            ]
        });
        rig.apply(writes.collect());
        rig.look();
    }
}

fn start(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["agent_to_be_killed", "--exact", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn run(after: Duration) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("state")).unwrap();
    let groups = tree(&dir.path().join("tree"));
    let mut child = start(dir.path());
    let changed =
        || fs::read_to_string(groups[0].join("memory.low")).is_ok_and(|text| text != FILES[0].1);
    until("the agent writes", changed);
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    // An ordinary file is emptied before it is written, a cgroup file is not.
    let torn = |group: &PathBuf| {
        FILES
            .iter()
            .any(|(file, _)| fs::read(group.join(file)).unwrap().is_empty())
    };
    prop_assume!(!groups.iter().any(torn));
    let fs: Fs = Arc::new(RealFs::on_directory(dir.path().join("tree")).unwrap());
    let restored = restore_from(&fs, &dir.path().join("state"));
    prop_assert_eq!(&restored.problems, &Vec::new());
    for group in &groups {
        for (file, text) in FILES {
            let present = fs::read_to_string(group.join(file)).unwrap();
            // An ordinary file keeps the text as it was written.
            prop_assert_eq!(present.trim(), text.trim(), "{}/{}", group.display(), file);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sigkill_at_any_instant_leaves_nothing_that_cannot_be_put_back(micros in 0..30_000_u64) {
        run(Duration::from_micros(micros))?;
    }
}
