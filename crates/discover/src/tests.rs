//! What a scan promises, on a fake host with imitated runtime directories.

use std::path::Path;
use std::sync::Arc;

use justitia_cgroup::{xattr, CgroupFs, FakeFs, Fs};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

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
        .set_weights(&[("/app/d*".into(), weight(700)), ("/**".into(), weight(1))])
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
