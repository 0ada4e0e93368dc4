//! What a scan promises, on a fake host with imitated runtime directories.

use std::path::Path;
use std::sync::Arc;

use justitia_cgroup::{xattr, CgroupFs, FakeFs, Fs, RealFs};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use proptest::prelude::*;
use rustix::fs::{chown, mkfifoat, Mode, Uid, CWD};
use rustix::io::Errno;

use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn weight(value: u32) -> Weight {
    Weight::new(value).unwrap()
}

fn fake(paths: &[&str]) -> Arc<FakeFs> {
    let fs = FakeFs::new();
    for path in paths {
        fs.mkdir(path);
    }
    fs
}

fn scanner(fs: &Arc<FakeFs>, manage: &[&str], runtime: RuntimeDirs) -> Scanner {
    let config = DiscoverConfig {
        manage: manage.iter().map(ToString::to_string).collect(),
        ..DiscoverConfig::default()
    };
    Scanner::new(Arc::clone(fs) as Fs, config, runtime).unwrap()
}

fn paths(scanner: &Scanner) -> Vec<&str> {
    scanner
        .groups()
        .iter()
        .map(|group| group.path.as_str())
        .collect()
}

fn write(root: &Path, file: &str, text: &str) {
    let file = root.join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

#[test]
fn globs_choose_what_is_managed_parents_first() {
    let fs = fake(&["/app/db/inner", "/app/web", "/other/x", "/app-2"]);
    let mut scanner = scanner(&fs, &["/app/**", "/app-*"], RuntimeDirs::none());
    let changes = scanner.rescan().unwrap();
    assert_eq!(
        paths(&scanner),
        ["/app-2", "/app/db", "/app/db/inner", "/app/web"]
    );
    assert_eq!(changes.added.len(), 4);
    assert!(scanner.rescan().unwrap().is_empty());
}

#[test]
fn without_globs_containers_pods_and_machines_are_managed_and_services_are_not() {
    let pod = "/kubepods.slice/kubepods-podab_cd.slice";
    let in_pod = format!("{pod}/cri-containerd-{ID}.scope");
    let inside = format!("/system.slice/docker-{ID}.scope/system.slice/docker-{ID}.scope");
    let fs = fake(&[
        &in_pod,
        &inside,
        "/system.slice/nginx.service",
        r"/machine.slice/machine-qemu\x2d1\x2dvm.scope",
        "/user.slice/user-0.slice/session-1.scope",
    ]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::none());
    scanner.rescan().unwrap();
    let docker = format!("/system.slice/docker-{ID}.scope");
    let kinds: Vec<(&str, Kind)> = scanner
        .groups()
        .iter()
        .map(|group| (group.path.as_str(), group.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            (pod, Kind::Pod),
            (in_pod.as_str(), Kind::Container),
            (r"/machine.slice/machine-qemu\x2d1\x2dvm.scope", Kind::Vm),
            (docker.as_str(), Kind::Container),
        ]
    );
}

#[test]
fn what_is_excluded_is_not_managed_nor_what_is_below_it() {
    let fs = fake(&["/app/db/x", "/app/web"]);
    let config = DiscoverConfig {
        manage: vec!["/app/**".into()],
        exclude: vec!["/app/db".into()],
        ..DiscoverConfig::default()
    };
    let mut scanner = Scanner::new(Arc::clone(&fs) as Fs, config, RuntimeDirs::none()).unwrap();
    scanner.rescan().unwrap();
    assert_eq!(paths(&scanner), ["/app/web"]);
}

#[test]
fn a_group_made_again_under_its_path_is_removed_and_added() {
    let fs = fake(&["/app/db"]);
    let old = fs.open("/app/db").unwrap().id();
    let mut scanner = scanner(&fs, &["/app/*"], RuntimeDirs::none());
    scanner.rescan().unwrap();
    let new = fs.recreate("/app/db");
    let changes = scanner.rescan().unwrap();
    assert_eq!((changes.added, changes.removed), (vec![new], vec![old]));
    assert_eq!(scanner.groups()[0].group.id(), new);
    fs.rmdir("/app/db");
    assert_eq!(scanner.rescan().unwrap().removed, [new]);
    assert!(scanner.groups().is_empty());
}

#[test]
fn the_first_place_that_states_a_weight_counts() {
    let root = tempfile::tempdir().unwrap();
    let fs = fake(&["/app/db"]);
    let mut scanner = scanner(&fs, &["/app/*"], RuntimeDirs::under(root.path()));
    let mut now = |expected: u32, source: WeightSource| {
        scanner.rescan().unwrap();
        let group = &scanner.groups()[0];
        assert_eq!((group.weight.get(), group.source), (expected, source));
    };
    now(100, WeightSource::Default);
    write(
        root.path(),
        "run/crun/db/config.json",
        r#"{"linux": {"cgroupsPath": "/app/db", "resources": {"blockIO": {"weight": 400}}}}"#,
    );
    now(400, WeightSource::OciBlockIo);
    let db = fs.open("/app/db").unwrap();
    db.set_xattr(xattr::WEIGHT, "250").unwrap();
    now(250, WeightSource::Xattr);
    db.set_xattr(xattr::WEIGHT, "20000").unwrap();
    now(400, WeightSource::OciBlockIo);
    db.set_xattr(xattr::WEIGHT, "250").unwrap();
    scanner
        .set_weights(&[
            ("/app/d*".into(), weight(700)),
            ("/app/**".into(), weight(1)),
        ])
        .unwrap();
    assert_eq!(scanner.rescan().unwrap().reweighted, [db.id()]);
    assert_eq!(scanner.groups()[0].weight, weight(700));
    assert_eq!(scanner.groups()[0].source, WeightSource::Config);
}

#[test]
fn an_annotation_counts_before_block_io() {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        "run/crun/db/config.json",
        r#"{"annotations": {"io.justitia.weight": "300"},
            "linux": {"cgroupsPath": "/app/db", "resources": {"blockIO": {"weight": 400}}}}"#,
    );
    let fs = fake(&["/app/db"]);
    let mut scanner = scanner(&fs, &["/app/*"], RuntimeDirs::under(root.path()));
    scanner.rescan().unwrap();
    let group = &scanner.groups()[0];
    assert_eq!(group.weight, weight(300));
    assert_eq!(group.source, WeightSource::OciAnnotation);
    assert_eq!(group.kind, Kind::Container, "a runtime says so");
}

#[test]
fn dockers_distorted_io_weight_is_not_believed_when_the_bundle_is_there() {
    let root = tempfile::tempdir().unwrap();
    let tasks = "run/containerd/io.containerd.runtime.v2.task/moby";
    write(
        root.path(),
        &format!("{tasks}/{ID}/config.json"),
        &format!(
            r#"{{"annotations": null, "linux": {{"cgroupsPath": "system.slice:docker:{ID}",
                "resources": {{"blockIO": {{"weight": 800}}}}}}}}"#
        ),
    );
    let path = format!("/system.slice/docker-{ID}.scope");
    let fs = fake(&[&path]);
    fs.update(&path, |group| group.io_weight = Some(7980));
    let mut scanner = scanner(&fs, &[], RuntimeDirs::under(root.path()));
    scanner.rescan().unwrap();
    assert_eq!(scanner.groups()[0].weight, weight(800));
}

#[test]
fn runc_and_podman_records_are_found_too() {
    let root = tempfile::tempdir().unwrap();
    let bundle = root.path().join("bundle");
    let spec = r#"{"linux": {"resources": {"blockIO": {"weight": 50}}}}"#;
    write(&bundle, "config.json", spec);
    write(
        root.path(),
        "run/runc/web/state.json",
        &format!(
            r#"{{"config": {{"labels": ["bundle={}"], "cgroups": {{"path": "/app/web"}}}}}}"#,
            bundle.display()
        ),
    );
    write(
        root.path(),
        &format!("var/lib/containers/storage/overlay-containers/{ID}/userdata/config.json"),
        r#"{"linux": {"resources": {"blockIO": {"weight": 60}}}}"#,
    );
    let podman = format!("/machine.slice/libpod-{ID}.scope");
    let fs = fake(&["/app/web", &podman]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::under(root.path()));
    scanner.rescan().unwrap();
    assert_eq!(paths(&scanner), ["/app/web", podman.as_str()]);
    assert_eq!(scanner.groups()[0].weight, weight(50));
    assert_eq!(scanner.groups()[1].weight, weight(60));
}

#[test]
fn crun_tells_the_cgroup_by_its_status() {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        "run/crun/web/status",
        r#"{"pid": 1, "cgroup-path": "/lab/c1", "bundle": "/nowhere"}"#,
    );
    write(
        root.path(),
        "run/crun/web/config.json",
        r#"{"linux": {"resources": {"blockIO": {"weight": 90}}}}"#,
    );
    let fs = fake(&["/lab/c1", "/lab/c2"]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::under(root.path()));
    scanner.rescan().unwrap();
    assert_eq!(paths(&scanner), ["/lab/c1"]);
    assert_eq!(scanner.groups()[0].weight, weight(90));
}

#[test]
fn a_record_that_cannot_be_understood_is_no_record() {
    let root = tempfile::tempdir().unwrap();
    for (id, text) in [
        ("torn", r#"{"linux": {"cgroupsPath": "/app/db"#),
        ("wrong", r#"{"linux": {"cgroupsPath": 7}}"#),
        (
            "zero",
            r#"{"linux": {"cgroupsPath": "/app/db", "resources": {"blockIO": {"weight": 0}}}}"#,
        ),
        ("list", "[1, 2]"),
        ("empty", ""),
    ] {
        write(root.path(), &format!("run/crun/{id}/config.json"), text);
    }
    let fs = fake(&["/app/db"]);
    let mut scanner = scanner(&fs, &["/app/*"], RuntimeDirs::under(root.path()));
    scanner.rescan().unwrap();
    assert_eq!(scanner.groups()[0].source, WeightSource::Default);
}

#[test]
fn the_kernels_files_count_once_before_we_write_to_them() {
    let fs = fake(&["/app/systemd", "/app/runc"]);
    fs.update("/app/systemd", |group| {
        group.io_weight = Some(800);
        group.bfq_weight = Some(163);
    });
    fs.update("/app/runc", |group| group.bfq_weight = Some(400));
    let mut scanner = scanner(&fs, &["/app/*"], RuntimeDirs::none());
    scanner.rescan().unwrap();
    let weights = |scanner: &Scanner| -> Vec<u32> {
        let weights = scanner.groups().iter().map(|group| group.weight.get());
        weights.collect()
    };
    assert_eq!(weights(&scanner), [400, 800]);
    fs.foreign_write("/app/runc", "io.bfq.weight", "7");
    assert!(scanner.rescan().unwrap().is_empty());
    let id = scanner.groups()[0].id;
    scanner.set_file_weight(id, Some(weight(55)));
    assert_eq!(scanner.rescan().unwrap().reweighted, [id]);
    assert_eq!(weights(&scanner), [55, 800]);
}

#[test]
fn what_a_running_agent_wrote_is_not_taken_for_its_owners_weight() {
    let fs = fake(&["/app/default", "/app/runc", "/app/systemd"]);
    fs.update("/app/default", |group| group.bfq_weight = Some(33));
    fs.update("/app/runc", |group| group.bfq_weight = Some(77));
    fs.update("/app/systemd", |group| {
        group.io_weight = Some(800);
        group.bfq_weight = Some(500);
    });
    let mut scanner = scanner(&fs, &["/app/*"], RuntimeDirs::none());
    let id = |path: &str| fs.open(path).unwrap().id();
    let prior = |path, weight| ((id(path), Knob::IoBfqWeight), Value::Weight(weight));
    scanner.set_priors(Priors::from([
        prior("/app/default", 100),
        prior("/app/runc", 400),
        prior("/app/systemd", 163),
    ]));
    scanner.rescan().unwrap();
    let weights = scanner.groups().iter().map(|group| group.weight.get());
    assert_eq!(weights.collect::<Vec<_>>(), [100, 400, 800]);
}

#[test]
fn a_group_is_found_by_path_name_or_what_is_unmistakable() {
    let docker = format!("/system.slice/docker-{ID}.scope");
    let fs = fake(&[&docker, "/lxc/web", "/lxc/web2"]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::none());
    scanner.rescan().unwrap();
    let found = |what: &str| scanner.find(what).map(|group| group.path.as_str());
    assert_eq!(found(&docker), Some(docker.as_str()));
    assert_eq!(found("lxc/web"), Some("/lxc/web"));
    assert_eq!(found("web"), Some("/lxc/web"));
    assert_eq!(found("0123456789ab"), Some(docker.as_str()));
    assert_eq!(found("we"), None, "two begin so");
    assert_eq!(found(""), None);
}

#[test]
fn a_bad_glob_is_refused_by_name() {
    let config = DiscoverConfig {
        manage: vec!["/a**".into()],
        ..DiscoverConfig::default()
    };
    let error = Scanner::new(fake(&[]) as Fs, config, RuntimeDirs::none());
    assert_eq!(error.err().unwrap().glob, "/a**");
}

/// An unprivileged user: 1000 where the tests run as root, otherwise who runs them.
fn user() -> u32 {
    match rustix::process::getuid().as_raw() {
        0 => 1000,
        uid => uid,
    }
}

/// The part of the tree that root delegated to that user.
fn delegated() -> String {
    format!("/user.slice/user-{0}.slice/user@{0}.service", user())
}

/// Where that user's runtime keeps its records, relative to the root.
fn records() -> String {
    format!("run/user/{}/crun", user())
}

/// What a scan of a host with these groups finds, where [`user`] has its own records below `root`.
fn scanned(fs: &Arc<FakeFs>, root: &Path) -> Scanner {
    let mut scanner = scanner(fs, &[], RuntimeDirs::under(root));
    scanner.rescan().unwrap();
    scanner
}

/// Gives what lies below `/run/user` to that user.
fn give_to_user(root: &Path) {
    let mut todo = vec![root.join(records())];
    while let Some(path) = todo.pop() {
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        chown(&path, Some(Uid::from_raw(user())), None).unwrap();
    }
}

const WEIGHS_900: &str = r#"{"linux": {"resources": {"blockIO": {"weight": 900}}}}"#;

#[test]
fn a_users_record_counts_below_that_users_slice_only() {
    let root = tempfile::tempdir().unwrap();
    let docker = format!("/system.slice/docker-{ID}.scope");
    let own = format!("{}/app", delegated());
    for (id, cgroup) in [
        ("a", docker.as_str()),
        ("b", "/system.slice"),
        ("c", own.as_str()),
    ] {
        let dir = format!("{}/{id}", records());
        write(root.path(), &format!("{dir}/config.json"), WEIGHS_900);
        write(
            root.path(),
            &format!("{dir}/status"),
            &format!(r#"{{"cgroup-path": "{cgroup}"}}"#),
        );
    }
    write(
        root.path(),
        &format!("{}/{ID}/config.json", records()),
        WEIGHS_900,
    );
    let records = format!("run/containerd/io.containerd.runtime.v2.task/moby/{ID}/config.json");
    write(
        root.path(),
        &records,
        r#"{"linux": {"resources": {"blockIO": {"weight": 50}}}}"#,
    );
    give_to_user(root.path());
    let fs = fake(&[&docker, &own, "/system.slice/cron.service"]);
    fs.delegate(&delegated(), user(), false);
    let scanner = scanned(&fs, root.path());
    assert_eq!(paths(&scanner), [docker.as_str(), own.as_str()]);
    let weights: Vec<u32> = scanner.groups().iter().map(|g| g.weight.get()).collect();
    assert_eq!(weights, [50, 900]);
}

#[test]
fn a_users_record_says_nothing_of_a_cgroup_that_is_roots() {
    let root = tempfile::tempdir().unwrap();
    let session = format!("/user.slice/user-{}.slice/session-1.scope", user());
    for (id, cgroup) in [("a", &session), ("b", &delegated())] {
        let dir = format!("{}/{id}", records());
        let annotated = r#"{"annotations": {"io.justitia.weight": "10000"}}"#;
        write(root.path(), &format!("{dir}/config.json"), annotated);
        let status = format!(r#"{{"cgroup-path": "{cgroup}"}}"#);
        write(root.path(), &format!("{dir}/status"), &status);
    }
    give_to_user(root.path());
    let fs = fake(&[&session, &delegated()]);
    fs.delegate(&delegated(), user(), false);
    assert!(paths(&scanned(&fs, root.path())).is_empty());
    let mut scanner = scanner(&fs, &["/user.slice/*/*"], RuntimeDirs::under(root.path()));
    scanner.rescan().unwrap();
    let sources = scanner.groups().iter().map(|group| group.source);
    assert_eq!(sources.collect::<Vec<_>>(), [WeightSource::Default; 2]);
}

#[test]
fn what_is_read_and_kept_of_a_users_records_has_a_bound() {
    let root = tempfile::tempdir().unwrap();
    let long = "x".repeat(200 << 10);
    for id in 0..30 {
        let text = format!(r#"{{"linux": {{"cgroupsPath": "/user.slice/{long}"}}}}"#);
        write(
            root.path(),
            &format!("{}/{id}/config.json", records()),
            &text,
        );
    }
    give_to_user(root.path());
    let mut found = oci::Records::new(RuntimeDirs::under(root.path()));
    found.refresh(&mut Vec::new());
    // Of 6 MiB one is read; of what is read no path is kept.
    assert!((1..=6).contains(&found.count()), "{}", found.count());
    assert!(found.longest_path() <= 1024, "{}", found.longest_path());
}

#[test]
fn any_number_of_files_among_a_users_records_is_one_trouble() {
    let root = tempfile::tempdir().unwrap();
    for id in 0..300 {
        write(root.path(), &format!("{}/file-{id}", records()), "");
    }
    give_to_user(root.path());
    let fs = fake(&["/app"]);
    let scanner = scanned(&fs, root.path());
    assert_eq!(scanner.troubles().len(), 1, "{:?}", scanner.troubles());
}

#[test]
fn a_file_that_a_tenant_may_write_states_no_weight_of_roots_directory() {
    let fs = fake(&["/app/db"]);
    fs.delegate("/app/db", user(), true);
    fs.delegate("/app/db", 0, false);
    fs.update("/app/db", |group| group.io_weight = Some(9000));
    let mut scanner = scanner(&fs, &["/app/*"], RuntimeDirs::none());
    scanner.rescan().unwrap();
    assert_eq!(scanner.groups()[0].weight, Weight::DEFAULT);
}

#[test]
fn a_directory_that_cannot_be_read_keeps_no_neighbor_whose_name_begins_alike() {
    let fs = fake(&["/app/bad", "/app/bad2"]);
    let mut scanner = scanner(&fs, &["/app/*"], RuntimeDirs::none());
    scanner.rescan().unwrap();
    fs.shut("/app/bad", Some(Errno::MFILE));
    fs.rmdir("/app/bad2");
    assert_eq!(scanner.rescan().unwrap().removed.len(), 1);
    assert_eq!(paths(&scanner), ["/app/bad"]);
}

#[test]
fn the_weight_of_a_delegated_subtree_stays_while_it_cannot_be_opened() {
    let made = format!("{}/app.slice/docker-{ID}.scope", delegated());
    let fs = fake(&[&made]);
    fs.delegate(&delegated(), user(), false);
    let top = fs.open(&delegated()).unwrap();
    top.set_xattr(xattr::WEIGHT_OF_DELEGATED, "300").unwrap();
    let root = tempfile::tempdir().unwrap();
    let mut scanner = scanned(&fs, root.path());
    let between = made.rsplit_once('/').unwrap().0;
    let inside = |scanner: &Scanner| {
        [delegated().as_str(), between, &made].map(|path| scanner.is_delegated(path))
    };
    assert_eq!(inside(&scanner), [false, true, true]);
    fs.shut(&delegated(), Some(Errno::MFILE));
    scanner.rescan().unwrap();
    let weights = scanner.weighed().iter().map(|top| top.weight.get());
    assert_eq!(weights.collect::<Vec<_>>(), [300]);
    assert_eq!(inside(&scanner), [false, true, true]);
}

#[test]
fn neither_a_fifo_nor_a_device_nor_a_link_nor_a_large_file_of_a_user_is_read() {
    let root = tempfile::tempdir().unwrap();
    let dir = |id: &str| root.path().join(records()).join(id);
    let cgroup = |id: &str| format!("{}/{id}", delegated());
    let record = |id: &str| format!(r#"{{"linux": {{"cgroupsPath": "{}"}}}}"#, cgroup(id));
    for id in ["fifo", "zero", "link", "near", "large", "good"] {
        std::fs::create_dir_all(dir(id)).unwrap();
    }
    mkfifoat(
        CWD,
        dir("fifo").join("config.json"),
        Mode::from_raw_mode(0o644),
    )
    .unwrap();
    mkfifoat(CWD, dir("good").join("status"), Mode::from_raw_mode(0o644)).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir("zero").join("config.json")).unwrap();
    let elsewhere = root.path().join("elsewhere.json");
    std::fs::write(&elsewhere, record("link")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, dir("link").join("config.json")).unwrap();
    // One that leaves neither the mount nor the user's files.
    std::fs::write(dir("near").join("other"), record("near")).unwrap();
    std::os::unix::fs::symlink("other", dir("near").join("config.json")).unwrap();
    let padding = " ".repeat(1 << 20);
    std::fs::write(dir("large").join("config.json"), record("large") + &padding).unwrap();
    std::fs::write(dir("good").join("config.json"), record("good")).unwrap();
    std::os::unix::fs::symlink(dir("good"), dir("directory")).unwrap();
    give_to_user(root.path());
    let ids = ["fifo", "zero", "link", "near", "large", "directory", "good"].map(cgroup);
    let fs = fake(&ids.each_ref().map(String::as_str));
    fs.delegate(&delegated(), user(), false);
    assert_eq!(paths(&scanned(&fs, root.path())), [cgroup("good")]);
}

#[test]
fn a_file_that_is_not_roots_is_no_record_of_roots() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.json"), "7").unwrap();
    let us = rustix::process::getuid().as_raw();
    let read = |root: u32| {
        let place = trusted::Place::of_root(dir.path(), root).unwrap();
        place.json::<u32>(Path::new("a.json"))
    };
    assert_eq!((read(us), read(us + 1)), (Some(7), None));
}

#[test]
fn more_records_of_a_user_than_a_bound_are_one_trouble() {
    let root = tempfile::tempdir().unwrap();
    for id in 0..1100 {
        std::fs::create_dir_all(root.path().join(format!("{}/{id}", records()))).unwrap();
    }
    give_to_user(root.path());
    let fs = fake(&["/app"]);
    let scanner = scanned(&fs, root.path());
    assert_eq!(scanner.troubles().len(), 1, "{:?}", scanner.troubles());
}

#[test]
fn an_attribute_that_is_too_long_is_no_weight_and_hides_nobody() {
    let fs = fake(&["/app/bad", "/app/good"]);
    let bad = fs.open("/app/bad").unwrap();
    bad.set_xattr(xattr::WEIGHT, &"9".repeat(300)).unwrap();
    let mut scanner = scanner(&fs, &["/app/*"], RuntimeDirs::none());
    assert_eq!(scanner.rescan().unwrap().added.len(), 2);
    assert_eq!(scanner.groups()[0].source, WeightSource::Default);
}

#[test]
fn a_group_that_cannot_be_opened_is_one_trouble_and_joins_when_it_can() {
    let fs = fake(&["/app/bad/inner", "/app/good"]);
    let mut scanner = scanner(&fs, &["/app/**"], RuntimeDirs::none());
    fs.shut("/app/bad", Some(Errno::MFILE));
    let changes = scanner.rescan().unwrap();
    assert_eq!(paths(&scanner), ["/app/good"]);
    assert_eq!((changes.added.len(), scanner.troubles().len()), (1, 1));
    fs.shut("/app/bad", None);
    let changes = scanner.rescan().unwrap();
    assert_eq!((changes.added.len(), scanner.troubles().len()), (2, 0));
    fs.shut("/app/bad", Some(Errno::MFILE));
    assert!(scanner.rescan().unwrap().is_empty(), "what is known stays");
    assert_eq!(paths(&scanner), ["/app/bad", "/app/bad/inner", "/app/good"]);
}

#[test]
fn a_path_that_is_too_long_to_open_hides_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut at = rustix::fs::open(dir.path(), rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    let long = "x".repeat(255);
    for _ in 0..17 {
        rustix::fs::mkdirat(&at, &long, Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, &long, rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
    }
    std::fs::create_dir(dir.path().join("good")).unwrap();
    let fs: Fs = Arc::new(RealFs::on_directory(dir.path()).unwrap());
    let config = DiscoverConfig {
        manage: vec!["/good".into(), "/x*/**".into()],
        ..DiscoverConfig::default()
    };
    let mut scanner = Scanner::new(fs, config, RuntimeDirs::none()).unwrap();
    scanner.rescan().unwrap();
    assert!(paths(&scanner).contains(&"/good"));
    assert_eq!(scanner.troubles().len(), 1, "{:?}", scanner.troubles());
}

#[test]
fn only_roots_word_is_a_weight_outside_a_delegated_subtree() {
    let docker = format!("/system.slice/docker-{ID}.scope");
    let made = format!("{}/docker-{ID}.scope", delegated());
    let fs = fake(&[&docker, &made]);
    fs.delegate(&delegated(), user(), false);
    fs.delegate(&made, user(), true);
    fs.delegate(&docker, user(), true);
    let set = |path: &str, name: &str, weight: &str| {
        fs.open(path).unwrap().set_xattr(name, weight).unwrap();
    };
    for path in [delegated().as_str(), &made, &docker] {
        set(path, xattr::WEIGHT, "10000");
    }
    fs.update(&docker, |group| group.io_weight = Some(9000));
    let root = tempfile::tempdir().unwrap();
    let scanner = scanned(&fs, root.path());
    let seen: Vec<(u32, bool)> = scanner
        .groups()
        .iter()
        .map(|g| (g.weight.get(), g.delegated))
        .collect();
    assert_eq!(seen, [(100, false), (10_000, true)]);
    let weights = |scanner: &Scanner| -> Vec<u32> {
        scanner
            .weighed()
            .iter()
            .map(|top| top.weight.get())
            .collect()
    };
    assert_eq!(weights(&scanner), [100]);
    set(&delegated(), xattr::WEIGHT_OF_DELEGATED, "300");
    set(&docker, xattr::WEIGHT_OF_DELEGATED, "700");
    let scanner = scanned(&fs, root.path());
    assert_eq!(
        (weights(&scanner), scanner.groups()[0].weight),
        (vec![300], weight(700))
    );
}

#[test]
fn a_user_whom_the_configuration_trusts_is_as_good_as_root() {
    let fs = fake(&["/app/db"]);
    fs.delegate("/app", user(), false);
    fs.delegate("/app/db", user(), false);
    fs.open("/app/db")
        .unwrap()
        .set_xattr(xattr::WEIGHT, "700")
        .unwrap();
    let config = DiscoverConfig {
        manage: vec!["/app/*".into()],
        trust: vec![user()],
        ..DiscoverConfig::default()
    };
    let mut scanner = Scanner::new(Arc::clone(&fs) as Fs, config, RuntimeDirs::none()).unwrap();
    scanner.rescan().unwrap();
    assert!(scanner.weighed().is_empty() && !scanner.groups()[0].delegated);
    assert_eq!(scanner.groups()[0].weight, weight(700));
}

#[test]
fn any_number_of_groups_that_a_user_makes_is_one_trouble_and_a_bounded_list() {
    let fs = fake(&[&format!("/system.slice/docker-{ID}.scope")]);
    for n in 0..2500 {
        fs.mkdir(&format!("{}/docker-{n:012x}.scope", delegated()));
    }
    fs.delegate(&delegated(), user(), false);
    let root = tempfile::tempdir().unwrap();
    let scanner = scanned(&fs, root.path());
    assert_eq!(scanner.groups().len(), 1 + 256);
    assert_eq!(scanner.troubles().len(), 1, "{:?}", scanner.troubles());
}

proptest! {
    #[test]
    fn whatever_a_user_makes_below_its_directory_others_weights_and_its_own_stay(
        made in prop::collection::vec(("[a-z]{1,8}", 0u32..20_000, any::<bool>()), 0..20),
    ) {
        let docker = format!("/system.slice/docker-{ID}.scope");
        let fs = fake(&[&docker, &delegated()]);
        fs.delegate(&delegated(), user(), false);
        for (name, weight, container) in &made {
            let last = if *container { format!("docker-{weight:012x}.scope") } else { name.clone() };
            let path = format!("{}/{name}/{last}", delegated());
            fs.mkdir(&path);
            fs.delegate(&path, user(), true);
            let text = weight.to_string();
            fs.open(&path).unwrap().set_xattr(xattr::WEIGHT, &text).unwrap();
            fs.update(&path, |group| group.io_weight = Some(weight % 10_000 + 1));
        }
        let root = tempfile::tempdir().unwrap();
        let scanner = scanned(&fs, root.path());
        let outside: Vec<_> = scanner.groups().iter().filter(|g| !g.delegated).collect();
        prop_assert_eq!(outside.len(), 1);
        prop_assert_eq!((outside[0].path.as_str(), outside[0].weight.get()), (docker.as_str(), 100));
        prop_assert!(scanner.weighed().iter().all(|top| top.weight == Weight::DEFAULT));
    }
}

#[test]
fn a_group_above_managed_ones_has_the_weight_that_it_was_given_and_loses_it() {
    let fs = fake(&["/app/vip/a", "/app/other/b"]);
    fs.update("/app/vip", |group| group.io_weight = Some(600));
    let mut scanner = scanner(&fs, &["/app/*/*"], RuntimeDirs::none());
    let weighed = |scanner: &Scanner| {
        let weighed = scanner.weighed().iter();
        weighed
            .map(|inner| (inner.path.clone(), inner.weight.get()))
            .collect::<Vec<_>>()
    };
    scanner.rescan().unwrap();
    assert_eq!(weighed(&scanner), [("/app/vip".to_owned(), 600)]);
    let vip = fs.open("/app/vip").unwrap();
    vip.set_xattr(xattr::WEIGHT, "250").unwrap();
    assert_eq!(scanner.rescan().unwrap().reweighted, [vip.id()]);
    assert_eq!(weighed(&scanner), [("/app/vip".to_owned(), 250)]);
    vip.remove_xattr(xattr::WEIGHT).unwrap();
    scanner.rescan().unwrap();
    // An agent wrote the file: what was there before counts.
    fs.update("/app/vip", |group| group.io_weight = Some(77));
    scanner.set_priors(Priors::from([(
        (vip.id(), Knob::IoWeight),
        Value::Weight(600),
    )]));
    scanner.rescan().unwrap();
    assert_eq!(weighed(&scanner), [("/app/vip".to_owned(), 600)]);
    scanner.set_priors(Priors::new());
    fs.update("/app/vip", |group| group.io_weight = Some(100));
    assert_eq!(scanner.rescan().unwrap().reweighted, [vip.id()]);
    assert_eq!(weighed(&scanner), []);
}

#[test]
fn services_are_managed_beside_containers_when_a_glob_or_their_weight_says_so() {
    let docker = format!("/system.slice/docker-{ID}.scope");
    let db = "/system.slice/db.service";
    let slice = format!("/user.slice/user-{}.slice", user() + 1);
    let fs = fake(&[
        &docker,
        db,
        "/system.slice/web.service",
        "/system.slice/cron.service",
        &slice,
    ]);
    let config = DiscoverConfig {
        manage_also: vec!["/system.slice/web.*".into()],
        ..DiscoverConfig::default()
    };
    let mut scanner = Scanner::new(fs.clone() as Fs, config, RuntimeDirs::none()).unwrap();
    scanner.rescan().unwrap();
    assert_eq!(paths(&scanner), [&docker, "/system.slice/web.service"]);
    fs.update(db, |group| group.io_weight = Some(800));
    fs.update(&slice, |group| group.io_weight = Some(50));
    scanner.rescan().unwrap();
    assert_eq!(
        paths(&scanner),
        [db, &docker, "/system.slice/web.service", &slice]
    );
    let found = &scanner.groups()[0];
    assert_eq!((found.kind, found.weight), (Kind::Service, weight(800)));
    assert_eq!(found.source, WeightSource::IoWeight);
    // systemctl set-property, while an agent holds the other file.
    let id = found.id;
    fs.update(db, |group| {
        group.io_weight = Some(300);
        group.bfq_weight = Some(77);
    });
    scanner.set_priors(Priors::from([(
        (id, Knob::IoBfqWeight),
        Value::Weight(163),
    )]));
    assert_eq!(scanner.rescan().unwrap().reweighted, [id]);
    assert_eq!(scanner.groups()[0].weight, weight(300));
    scanner.set_priors(Priors::new());
    fs.update(db, |group| {
        group.io_weight = Some(100);
        group.bfq_weight = Some(100);
    });
    assert_eq!(scanner.rescan().unwrap().removed, [id]);
}

#[test]
fn a_running_machines_weight_by_virsh_blkiotune_counts_at_the_next_look() {
    let machine = r"/machine.slice/machine-qemu\x2d1\x2ddb.scope";
    let fs = fake(&[machine]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::none());
    scanner.rescan().unwrap();
    fs.update(machine, |group| group.io_weight = Some(300));
    let id = scanner.groups()[0].id;
    assert_eq!(scanner.rescan().unwrap().reweighted, [id]);
    assert_eq!(scanner.groups()[0].weight, weight(300));
}

#[test]
fn docker_update_counts_at_the_next_look_and_a_container_is_found_by_its_name() {
    let root = tempfile::tempdir().unwrap();
    // The containerd of dockerd, and Docker's data where its configuration says.
    let task = "run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby";
    write(
        root.path(),
        &format!("{task}/{ID}/config.json"),
        &format!(
            r#"{{"linux": {{"cgroupsPath": "system.slice:docker:{ID}",
                "resources": {{"blockIO": {{"weight": 400}}}}}}}}"#
        ),
    );
    write(
        root.path(),
        "etc/docker/daemon.json",
        r#"{"data-root": "/srv/docker"}"#,
    );
    let docker = format!("srv/docker/containers/{ID}");
    let update = |weight: u32| {
        let text = format!(r#"{{"BlkioWeight": {weight}, "CgroupParent": "", "Binds": null}}"#);
        write(root.path(), &format!("{docker}/hostconfig.new"), &text);
        let dir = root.path().join(&docker);
        std::fs::rename(dir.join("hostconfig.new"), dir.join("hostconfig.json")).unwrap();
    };
    let path = format!("/system.slice/docker-{ID}.scope");
    let fs = fake(&[&path]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::under(root.path()));
    let mut now = |expected: u32| {
        scanner.rescan().unwrap();
        let found = &scanner.groups()[0];
        assert_eq!(
            (found.weight, found.source),
            (weight(expected), WeightSource::OciBlockIo)
        );
        scanner.find("web").is_some()
    };
    assert!(!now(400), "no record of Docker's");
    write(
        root.path(),
        &format!("{docker}/config.v2.json"),
        r#"{"Name": "/web", "ID": "x"}"#,
    );
    update(0);
    assert!(now(400), "not set");
    for changed in [800, 300] {
        update(changed);
        assert!(now(changed));
    }
    write(root.path(), &format!("{docker}/hostconfig.json"), "{");
    assert!(now(300), "a torn record changes nothing");
}

#[test]
fn podman_update_counts_at_the_next_look_although_crun_keeps_what_it_began_with() {
    let root = tempfile::tempdir().unwrap();
    let spec = |weight: &str| {
        format!(r#"{{"linux": {{"resources": {{"blockIO": {{"weight": {weight}}}}}}}}}"#)
    };
    let crun = format!("run/crun/{ID}");
    let path = format!("/machine.slice/libpod-{ID}.scope");
    let status = format!(r#"{{"cgroup-path": "{path}"}}"#);
    write(root.path(), &format!("{crun}/status"), &status);
    write(root.path(), &format!("{crun}/config.json"), &spec("800"));
    let userdata = format!("var/lib/containers/storage/overlay-containers/{ID}/userdata");
    let fs = fake(&[&path]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::under(root.path()));
    for (weight, counts) in [("800", 800), ("300", 300), ("400}", 300), ("500", 500)] {
        write(
            root.path(),
            &format!("{userdata}/config.json"),
            &spec(weight),
        );
        scanner.rescan().unwrap();
        assert_eq!(scanner.groups()[0].weight.get(), counts, "{weight}");
    }
}

#[test]
fn podmans_containers_have_the_names_of_its_storage_and_cri_os_those_of_their_pods() {
    let root = tempfile::tempdir().unwrap();
    let storage = "containers/storage/overlay-containers";
    let record = format!("var/lib/{storage}/{ID}/userdata/config.json");
    write(root.path(), &record, "{}");
    let fs = fake(&[&format!("/machine.slice/libpod-{ID}.scope")]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::under(root.path()));
    let list =
        |name: &str| format!(r#"[{{"id": "{ID}", "names": ["{name}"]}}, {{"names": null}}]"#);
    for (list_of, text, name) in [
        ("var/lib", "[]", None),
        ("var/lib", &list("db"), Some("db")),
        ("var/lib", &list("web"), Some("web")),
        ("var/lib", "[]", None),
        ("run", &list("once"), Some("once")),
    ] {
        let volatile = if list_of == "run" { "volatile-" } else { "" };
        let file = format!("{list_of}/{storage}/{volatile}containers.json");
        write(root.path(), &file, text);
        scanner.rescan().unwrap();
        assert_eq!(scanner.groups()[0].alias.as_deref(), name, "{text}");
    }

    write(root.path(), &record, &container_of_pod(""));
    scanner.rescan().unwrap();
    assert_ne!(scanner.groups()[0].alias.as_deref(), Some("once"));
}

#[test]
fn with_userns_remap_dockers_records_are_found_below_its_data() {
    let root = tempfile::tempdir().unwrap();
    let docker = format!("var/lib/docker/231072.231072/containers/{ID}");
    write(
        root.path(),
        &format!("{docker}/hostconfig.json"),
        r#"{"BlkioWeight": 800}"#,
    );
    write(
        root.path(),
        &format!("{docker}/config.v2.json"),
        r#"{"Name": "/db"}"#,
    );
    let other = format!("var/lib/docker/v.2/containers/{ID}");
    write(
        root.path(),
        &format!("{other}/hostconfig.json"),
        r#"{"BlkioWeight": 100}"#,
    );
    let fs = fake(&[&format!("/system.slice/docker-{ID}.scope")]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::under(root.path()));
    scanner.rescan().unwrap();
    let found = scanner.find("db").expect("by its name");
    assert_eq!(found.weight, weight(800));
}

#[test]
fn containers_of_k3s_and_rke2_are_found() {
    let root = tempfile::tempdir().unwrap();
    let task = "run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/c1";
    write(
        root.path(),
        &format!("{task}/config.json"),
        r#"{"annotations": {"io.justitia.weight": "300"}, "linux": {"cgroupsPath": "/own/c1"}}"#,
    );
    let fs = fake(&["/own/c1"]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::under(root.path()));
    scanner.rescan().unwrap();
    assert_eq!(scanner.groups()[0].weight, weight(300));
}

const POD: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice";

/// The configuration of a container as containerd writes it for the kubelet.
fn container_of_pod(more: &str) -> String {
    format!(
        r#"{{"annotations": {{"io.kubernetes.cri.sandbox-uid": "ab-cd", "io.kubernetes.cri.sandbox-name": "db-0",
            "io.kubernetes.cri.sandbox-namespace": "shop", "io.kubernetes.cri.container-name": "main" {more}}},
            "linux": {{"cgroupsPath": "kubepods-burstable-podab_cd.slice:cri-containerd:{ID}"}}}}"#
    )
}

fn of_kubernetes(fs: &Arc<FakeFs>, root: &Path, caps: &[(&str, u32)]) -> Scanner {
    let caps = caps
        .iter()
        .map(|(name, cap)| ((*name).to_owned(), weight(*cap)));
    let config = DiscoverConfig {
        kubernetes: KubernetesConfig {
            caps: caps.collect(),
            ..KubernetesConfig::default()
        },
        ..DiscoverConfig::default()
    };
    let runtime = RuntimeDirs::under(root);
    Scanner::new(Arc::clone(fs) as Fs, config, runtime).unwrap()
}

type Seen = (String, u32, WeightSource, Option<String>);

/// Of each group: path, weight, its source and what it is called.
fn seen(scanner: &mut Scanner) -> Vec<Seen> {
    scanner.rescan().unwrap();
    let groups = scanner.groups().iter();
    let of = |group: &Discovered| {
        let alias = group.alias.clone();
        (group.path.clone(), group.weight.get(), group.source, alias)
    };
    groups.map(of).collect()
}

#[test]
fn a_pod_of_which_only_its_cgroup_is_known_has_the_weight_of_its_qos_class() {
    let root = tempfile::tempdir().unwrap();
    let (guaranteed, best_effort) = ("/kubepods/podab-cd", "/kubepods/besteffort/podab-ce");
    let fs = fake(&[guaranteed, best_effort, POD]);
    let class = |path: &str, weight| (path.to_owned(), weight, WeightSource::QosClass, None);
    let expected = [
        class(POD, 200),
        class(best_effort, 50),
        class(guaranteed, 400),
    ];
    assert_eq!(seen(&mut of_kubernetes(&fs, root.path(), &[])), expected);
}

#[test]
fn an_annotation_of_a_pod_counts_up_to_the_cap_of_its_namespace() {
    let root = tempfile::tempdir().unwrap();
    let container = format!("{POD}/cri-containerd-{ID}.scope");
    let fs = fake(&[&container]);
    let record = format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json");
    let asks = r#", "justitia.io/weight": "900", "justitia.io/weight.main": "3000", "io.justitia.weight": "9000""#;
    write(root.path(), &record, &container_of_pod(asks));
    let named = |name: &str| Some(name.to_owned());
    for (caps, expected) in [
        (&[][..], (200, WeightSource::PodCap)),
        (&[("shop", 500), ("*", 10_000)], (500, WeightSource::PodCap)),
        (&[("*", 1000)], (900, WeightSource::PodAnnotation)),
        (&[("other", 1000)], (200, WeightSource::PodCap)),
    ] {
        let (weight, source) = expected;
        let expected = [
            (POD.to_owned(), weight, source, named("shop/db-0")),
            (
                container.clone(),
                3000,
                WeightSource::PodAnnotation,
                named("shop/db-0/main"),
            ),
        ];
        assert_eq!(
            seen(&mut of_kubernetes(&fs, root.path(), caps)),
            expected,
            "{caps:?}"
        );
    }
    // Where only containers are managed, the pod's weight bounds them all the same.
    let config = DiscoverConfig {
        manage: vec!["/kubepods.slice/**/*.scope".into()],
        ..DiscoverConfig::default()
    };
    let runtime = RuntimeDirs::under(root.path());
    let mut scanner = Scanner::new(Arc::clone(&fs) as Fs, config, runtime).unwrap();
    assert_eq!(seen(&mut scanner)[0].0, container);
    let weighed = scanner.weighed();
    assert_eq!(
        (weighed[0].path.as_str(), weighed[0].weight.get()),
        (POD, 200)
    );
}

#[test]
fn what_a_runtime_tells_of_a_pod_comes_before_what_is_recorded_and_counts_at_the_next_look() {
    let root = tempfile::tempdir().unwrap();
    let container = format!("{POD}/cri-containerd-{ID}.scope");
    let fs = fake(&[&container]);
    let record = format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json");
    write(root.path(), &record, &container_of_pod(""));
    let mut scanner = of_kubernetes(&fs, root.path(), &[]);
    assert_eq!(seen(&mut scanner)[0].2, WeightSource::QosClass);
    let mut pods = Pods::default();
    let annotations = [
        ("justitia.io/weight", "70"),
        ("justitia.io/weight.main", "30"),
    ];
    pods.add_pod("ab-cd", Pod::new("shop", "db-1", annotations).unwrap());
    pods.add_container(ID, "ab-cd", "main");
    scanner.set_pods(Arc::new(pods));
    let changes = scanner.rescan().unwrap();
    assert_eq!((changes.reweighted.len(), changes.renamed.len()), (2, 2));
    assert!(scanner.rescan().unwrap().is_empty());
    let weights = seen(&mut scanner).into_iter().map(|group| group.1);
    assert_eq!(weights.collect::<Vec<_>>(), [70, 30]);
    let names = scanner.groups()[1].pod.clone().unwrap();
    let expected = PodNames {
        namespace: "shop".into(),
        pod: "db-1".into(),
        container: Some("main".into()),
    };
    assert_eq!(names, expected);
    assert_eq!(scanner.find("shop/db-1").unwrap().path, POD);
}

#[test]
fn roots_word_comes_before_a_pods_annotation_and_its_kernel_files_before_the_qos_class() {
    let root = tempfile::tempdir().unwrap();
    let fs = fake(&[POD]);
    fs.open(POD)
        .unwrap()
        .write_knob(Knob::IoWeight, Value::Weight(700))
        .unwrap();
    let mut scanner = of_kubernetes(&fs, root.path(), &[]);
    assert_eq!(seen(&mut scanner)[0].2, WeightSource::IoWeight);
    let mut pods = Pods::default();
    pods.add_pod(
        "ab-cd",
        Pod::new("shop", "db-0", [("justitia.io/weight", "70")]).unwrap(),
    );
    scanner.set_pods(Arc::new(pods));
    assert_eq!(seen(&mut scanner)[0].2, WeightSource::PodAnnotation);
    fs.open(POD)
        .unwrap()
        .set_xattr(xattr::WEIGHT, "800")
        .unwrap();
    assert_eq!(
        (seen(&mut scanner)[0].1, seen(&mut scanner)[0].2),
        (800, WeightSource::Xattr)
    );
}

#[test]
fn cri_o_records_the_annotations_of_a_pod_as_text_in_an_annotation() {
    let root = tempfile::tempdir().unwrap();
    let fs = fake(&[POD]);
    let text = r#"{"annotations": {"io.kubernetes.pod.uid": "ab-cd", "io.kubernetes.pod.name": "db-0",
        "io.kubernetes.pod.namespace": "shop", "io.kubernetes.cri-o.Annotations": "{\"justitia.io/weight\": \"90\"}"}}"#;
    let record = format!("var/lib/containers/storage/overlay-containers/{ID}/userdata/config.json");
    write(root.path(), &record, text);
    let of_pod = seen(&mut of_kubernetes(&fs, root.path(), &[])).remove(0);
    let alias = Some("shop/db-0".to_owned());
    assert_eq!(
        of_pod,
        (POD.to_owned(), 90, WeightSource::PodAnnotation, alias)
    );
}

#[test]
fn a_containers_annotation_is_no_weight_where_no_pods_cgroup_bounds_it() {
    let root = tempfile::tempdir().unwrap();
    let outside = format!("/system.slice/cri-containerd-{ID}.scope");
    let fs = fake(&[&outside]);
    let record = format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json");
    let asks = r#", "justitia.io/weight": "900", "justitia.io/weight.main": "3000""#;
    write(root.path(), &record, &container_of_pod(asks));
    let found = seen(&mut of_kubernetes(&fs, root.path(), &[("*", 10_000)])).remove(0);
    assert_eq!((found.1, found.2), (100, WeightSource::Default));
}
