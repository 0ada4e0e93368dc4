//! Tests how much page cache is read, and which files are found.

use super::*;
use crate::commands::status::tests::example;
use justitia_cgroup::{FakeFs, Fs};
use std::fs;
use std::path::Path;

/// Removes a file from the page cache.
fn evict(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

fn bytes_of(found: &[files::Found]) -> Vec<u64> {
    found.iter().map(|file| file.bytes).collect()
}

#[test]
fn directories_are_read_with_all_that_is_in_them_and_each_file_once() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::create_dir(root.join("sub")).unwrap();
    fs::write(root.join("b"), [0; 20]).unwrap();
    fs::write(root.join("sub/a"), [0; 10]).unwrap();
    fs::hard_link(root.join("b"), root.join("c")).unwrap();
    std::os::unix::fs::symlink(root, root.join("sub/loop")).unwrap();
    let found = files::find(&[root.to_owned(), root.join("b")]).unwrap();
    assert_eq!(bytes_of(&found), [20, 10]);
    let link = root.join("link");
    std::os::unix::fs::symlink(root.join("b"), &link).unwrap();
    assert_eq!(bytes_of(&files::find(&[link]).unwrap()), [20]);
}

#[test]
fn a_path_that_is_not_there_and_a_directory_without_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = files::find(&[dir.path().join("none")]).unwrap_err();
    assert!(error.cause.contains("none"), "{error}");
    let error = files::find(&[dir.path().to_owned()]).unwrap_err();
    assert!(error.cause.contains("no regular file"), "{error}");
}

#[test]
fn a_group_may_hold_what_its_weight_earns_or_what_it_is_granted() {
    let mut report = example();
    let mib = |n: u64| Some(n << 20);
    report.host.file_bytes = mib(900);
    report.host.free_bytes = mib(110);
    report.host.high_watermark_bytes = mib(10);
    let group = |report: &Report| report.groups[0].clone();
    let mut db = group(&report);
    let verdict = db.verdict.as_mut().unwrap();
    verdict.proportion = 0.25;
    verdict.entitlement_bytes = 8 << 20;
    assert_eq!(entitled(&report, &db), Some(Bytes::mib(250)));
    db.verdict.as_mut().unwrap().entitlement_bytes = 400 << 20;
    assert_eq!(entitled(&report, &db), Some(Bytes::mib(400)));
    report.host.free_bytes = None;
    assert_eq!(entitled(&report, &db), None);
}

#[test]
fn reading_stops_before_the_group_holds_more_than_it_may() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), vec![1; 3 << 20]).unwrap();
    let found = files::find(&[dir.path().to_owned()]).unwrap();
    let fake = FakeFs::new();
    fake.mkdir("/app/db");
    let fs: Fs = fake.clone();
    let group = fs.open("/app/db").unwrap();
    let warmed = warm(&found, &group, Bytes::mib(64)).unwrap();
    assert!(warmed.complete && warmed.read_bytes == 3 << 20);
    assert!(words(&warmed).starts_with("3.0 MiB in 1 file read in "));
    evict(&dir.path().join("a"));
    // The group holds as much as it may.
    fake.update("/app/db", |group| group.file = Bytes::mib(64));
    let warmed = warm(&found, &group, Bytes::mib(64)).unwrap();
    assert!(!warmed.complete && warmed.read_bytes == 0);
    // The group's own limit leaves less.
    fake.update("/app/db", |group| {
        group.file = Bytes::mib(10);
        group.anon = Bytes::mib(20);
        group.max = Limit::Bytes(Bytes::mib(33));
    });
    let warmed = warm(&found, &group, Bytes::mib(64)).unwrap();
    assert_eq!(warmed.entitled_bytes, 11 << 20);
}

#[test]
fn a_full_group_reads_on_while_all_is_cached() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, vec![1; 3 << 20]).unwrap();
    let mut piece = vec![0; PIECE];
    let mut next = |held, before| {
        let mut file = File::open(&path).unwrap();
        next_piece(&mut file, &mut piece, held, Bytes::mib(64), before).unwrap()
    };
    let file = File::open(&path).unwrap();
    let look = preadv2(
        &file,
        &mut [IoSliceMut::new(&mut [0])],
        0,
        ReadWriteFlags::NOWAIT,
    );
    if look == Err(rustix::io::Errno::OPNOTSUPP) {
        // tmpfs cannot tell what is cached.
        return;
    }
    let (full, more) = (Some(Bytes::mib(64)), Some(Bytes::mib(65)));
    assert_eq!(next(full, full), Some(PIECE));
    assert_eq!(next(more, more), Some(PIECE));
    assert_eq!(
        next(more, full),
        None,
        "the group grew beyond what it may hold"
    );
    assert_eq!(next(None, None), None, "its page cache is unknown");
    evict(&path);
    assert_eq!(next(full, full), None);

    fs::write(&path, vec![1; 3 << 20]).unwrap();
    let found = files::find(&[path]).unwrap();
    let fake = FakeFs::new();
    fake.mkdir("/app/db");
    fake.update("/app/db", |group| group.file = Bytes::mib(64));
    let fs: Fs = fake.clone();
    let warmed = warm(&found, &fs.open("/app/db").unwrap(), Bytes::mib(64)).unwrap();
    assert!(warmed.complete && warmed.read_bytes == 3 << 20);
}

#[test]
fn a_file_that_is_removed_before_its_turn_does_not_keep_the_others_from_being_read() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::write(dir.path().join(name), [1; 4096]).unwrap();
    }
    let found = files::find(&[dir.path().to_owned()]).unwrap();
    fs::remove_file(&found[0].path).unwrap();
    let fake = FakeFs::new();
    fake.mkdir("/app/db");
    let fs: Fs = fake.clone();
    let warmed = warm(&found, &fs.open("/app/db").unwrap(), Bytes::mib(64)).unwrap();
    assert!(warmed.complete && warmed.read_bytes == 4096);
}

#[test]
fn no_room_is_needed_once_there_is_nothing_left_to_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("empty"), []).unwrap();
    let found = files::find(&[dir.path().to_owned()]).unwrap();
    let fake = FakeFs::new();
    fake.mkdir("/app/db");
    let fs: Fs = fake.clone();
    let group = fs.open("/app/db").unwrap();
    fake.update("/app/db", |group| group.file = Bytes::mib(64));
    assert!(warm(&found, &group, Bytes::mib(64)).unwrap().complete);
}

#[test]
fn a_group_that_holds_groups_cannot_pay() {
    let mut report = example();
    let error = unknown(&report, &report.groups[1]);
    assert_eq!(error.remedy, "try again in a second");
    report.groups[1].path = "/app".into();
    let error = unknown(&report, &report.groups[1]);
    assert!(error.remedy.contains("--group"), "{error}");
}

#[test]
fn a_caller_outside_of_all_groups_must_name_the_payer() {
    let report = example();
    let error = payer(&report, "/user.slice/me", false).unwrap_err();
    assert!(error.remedy.contains("--group"), "{error}");
    assert_eq!(payer(&report, "db", true).unwrap().path, "/app/db");
}
