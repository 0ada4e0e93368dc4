//! Weights and names that a scan takes from runtimes and the kernel.

use super::*;

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
    db.set_xattr(xattr::WEIGHT_OF_DELEGATED, "250").unwrap();
    now(250, WeightSource::Xattr);
    db.set_xattr(xattr::WEIGHT_OF_DELEGATED, "20000").unwrap();
    now(400, WeightSource::OciBlockIo);
    db.set_xattr(xattr::WEIGHT_OF_DELEGATED, "250").unwrap();
    let config = DiscoverConfig {
        weights: vec![
            ("/app/d*".into(), weight(700)),
            ("/app/**".into(), weight(1)),
        ],
        ..DiscoverConfig::managing(&["/app/*"])
    };
    let mut scanner = scanner_with(&fs, config, RuntimeDirs::under(root.path()));
    scanner.rescan().unwrap();
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
fn the_cgroup_of_a_crun_container_is_in_its_status() {
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
fn a_container_made_again_under_its_id_has_the_weight_of_its_new_record() {
    let root = tempfile::tempdir().unwrap();
    let fs = fake(&["/lab/web"]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::under(root.path()));
    for expected in [90, 500] {
        let spec =
            format!(r#"{{"linux": {{"resources": {{"blockIO": {{"weight": {expected}}}}}}}}}"#);
        let status = r#"{"cgroup-path": "/lab/web"}"#;
        write(root.path(), "run/crun/web/status", status);
        write(root.path(), "run/crun/web/config.json", &spec);
        scanner.rescan().unwrap();
        assert_eq!(scanner.groups()[0].weight, weight(expected));
        std::fs::remove_dir_all(root.path().join("run/crun/web")).unwrap();
        fs.recreate("/lab/web");
    }
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
    let runc = scanner.groups()[0].id;
    scanner.set_priors(Priors::from([(
        (runc, Knob::IoBfqWeight),
        Value::Weight(400),
    )]));
    fs.foreign_write("/app/runc", "io.bfq.weight", "7");
    assert!(!scanner.rescan().unwrap(), "an agent wrote 7");
    fs.foreign_write("/app/systemd", "io.weight", "default 55");
    assert!(scanner.rescan().unwrap());
    assert_eq!(weights(&scanner), [400, 55]);
}

#[test]
fn a_running_agents_writes_are_not_taken_for_the_owners_weight() {
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
fn a_running_machines_weight_by_virsh_blkiotune_counts_at_the_next_look() {
    let machine = r"/machine.slice/machine-qemu\x2d1\x2ddb.scope";
    let fs = fake(&[machine]);
    let mut scanner = scanner(&fs, &[], RuntimeDirs::none());
    scanner.rescan().unwrap();
    fs.update(machine, |group| group.io_weight = Some(300));
    assert!(scanner.rescan().unwrap());
    assert_eq!(scanner.groups()[0].weight, weight(300));
}

#[test]
fn docker_update_counts_at_the_next_look_and_a_container_is_found_by_its_name() {
    let root = tempfile::tempdir().unwrap();
    // The containerd of dockerd, and Docker's data at the place that its configuration names.
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
    let elsewhere = "[storage]\ndriver = \"overlay\"\ngraphroot = \"/srv/podman\"\n";
    for (conf, text, storage) in [
        ("etc/containers", "", "var/lib/containers/storage"),
        ("etc/containers", "[storage", "var/lib/containers/storage"),
        ("etc/containers", elsewhere, "srv/podman"),
        ("usr/share/containers", elsewhere, "srv/podman"),
    ] {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &format!("{conf}/storage.conf"), text);
        let spec = |weight: &str| {
            format!(r#"{{"linux": {{"resources": {{"blockIO": {{"weight": {weight}}}}}}}}}"#)
        };
        let crun = format!("run/crun/{ID}");
        let path = format!("/machine.slice/libpod-{ID}.scope");
        let status = format!(r#"{{"cgroup-path": "{path}"}}"#);
        write(root.path(), &format!("{crun}/status"), &status);
        write(root.path(), &format!("{crun}/config.json"), &spec("800"));
        let config = format!("{storage}/overlay-containers/{ID}/userdata/config.json");
        let fs = fake(&[&path]);
        let mut scanner = scanner(&fs, &[], RuntimeDirs::under(root.path()));
        for (weight, counts) in [("800", 800), ("300", 300), ("400}", 300), ("500", 500)] {
            write(root.path(), &config, &spec(weight));
            scanner.rescan().unwrap();
            let found = scanner.groups()[0].weight.get();
            assert_eq!(found, counts, "{weight} {conf} {text:?}");
        }
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

    let of_pod = r#"{"annotations": {"io.kubernetes.pod.uid": "ab-cd", "io.kubernetes.pod.name": "db-0",
        "io.kubernetes.pod.namespace": "shop"}}"#;
    write(root.path(), &record, of_pod);
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
fn containers_of_k3s_rke2_and_k0s_are_found() {
    for state in ["run/k3s/containerd", "run/k0s/containerd"] {
        let root = tempfile::tempdir().unwrap();
        let task = format!("{state}/io.containerd.runtime.v2.task/k8s.io/c1");
        write(
            root.path(),
            &format!("{task}/config.json"),
            r#"{"annotations": {"io.justitia.weight": "300"}, "linux": {"cgroupsPath": "/own/c1"}}"#,
        );
        let fs = fake(&["/own/c1"]);
        let mut scanner = scanner(&fs, &[], RuntimeDirs::under(root.path()));
        scanner.rescan().unwrap();
        assert_eq!(scanner.groups()[0].weight, weight(300), "{state}");
    }
}
