//! The agent's lock on a full or read-only disk: the agent must be able to restore from it.

use std::fs;
use std::path::Path;
use std::process::Command;

use justitia_agent::lock::Lock;

fn mount(arguments: &[&str], at: &Path) {
    let status = Command::new("mount").args(arguments).arg(at).status();
    assert!(status.unwrap().success(), "mount {arguments:?}");
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn on_a_full_or_read_only_disk_an_existing_lock_holds_and_a_missing_one_is_no_error() {
    for read_only in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        mount(
            &["-t", "tmpfs", "-o", "size=64k,nr_inodes=3", "tmpfs"],
            dir.path(),
        );
        let (there, missing) = (dir.path().join("there"), dir.path().join("missing"));
        drop(Lock::take(&there).unwrap());
        if read_only {
            mount(&["-o", "remount,ro"], dir.path());
        } else {
            let error = fs::write(dir.path().join("more"), "").unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        }
        let first = Lock::take(&there).unwrap();
        let refused = Lock::take(&there).unwrap_err();
        assert!(refused.cause.contains("runs already"), "{refused}");
        drop(first);
        Lock::take(&there).unwrap();
        Lock::take(&missing).unwrap();
        let status = Command::new("umount").arg(dir.path()).status();
        assert!(status.unwrap().success());
    }
}
