//! A tenant gains nothing by what it writes, and hides nobody.

use super::*;

/// The part of the tree that root delegated to [`user`].
fn delegated() -> String {
    format!("/user.slice/user-{0}.slice/user@{0}.service", user())
}

/// Directory of the records of that user's runtime, relative to the root.
fn records() -> String {
    format!("run/user/{}/crun", user())
}

/// A scan of a host with these groups, where [`user`] has its own records below `root`.
fn scanned(fs: &Arc<FakeFs>, root: &Path) -> Scanner {
    let mut scanner = scanner(fs, &[], RuntimeDirs::under(root));
    scanner.rescan().unwrap();
    scanner
}

/// Gives what lies below `/run/user` to that user.
fn give_to_user(root: &Path) {
    let mut todo = vec![root.join(format!("run/user/{}", user()))];
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
fn a_container_of_a_users_own_docker_has_the_weight_in_its_record() {
    let root = tempfile::tempdir().unwrap();
    let tasks = format!(
        "run/user/{}/docker/containerd/daemon/io.containerd.runtime.v2.task",
        user()
    );
    write(
        root.path(),
        &format!("{tasks}/moby/{ID}/config.json"),
        WEIGHS_900,
    );
    std::fs::create_dir_all(root.path().join(records())).unwrap();
    give_to_user(root.path());
    let own = format!("{}/user.slice/docker-{ID}.scope", delegated());
    let roots = format!("/system.slice/docker-{ID}.scope");
    let fs = fake(&[&own, &roots]);
    fs.delegate(&delegated(), user(), false);
    let scanner = scanned(&fs, root.path());
    let scanned = scanner.groups().iter();
    let mut weights: Vec<_> = scanned.map(|g| (g.path.as_str(), g.weight.get())).collect();
    weights.sort_unstable();
    assert_eq!(
        weights,
        [(roots.as_str(), Weight::DEFAULT.get()), (own.as_str(), 900)]
    );
}

#[test]
fn the_records_of_a_trusted_user_count_for_the_directories_of_that_user_only() {
    let root = tempfile::tempdir().unwrap();
    let session = format!("/user.slice/user-{}.slice/docker-{ID}.scope", user());
    let own = format!("{}/docker-{ID}.scope", delegated());
    let path = format!("{}/{ID}/config.json", records());
    write(root.path(), &path, WEIGHS_900);
    give_to_user(root.path());
    let fs = fake(&[&own, &session]);
    for path in [delegated(), own.clone()] {
        fs.delegate(&path, user(), false);
    }
    let config = DiscoverConfig {
        trust: vec![user()],
        ..DiscoverConfig::default()
    };
    let mut scanner = scanner_with(&fs, config, RuntimeDirs::under(root.path()));
    scanner.rescan().unwrap();
    assert_eq!(paths(&scanner), [session.as_str(), own.as_str()]);
    let weights = scanner.groups().iter().map(|group| group.weight.get());
    assert_eq!(weights.collect::<Vec<_>>(), [100, 900]);
    let group = fs.open(&own).unwrap();
    group.set_xattr(xattr::WEIGHT, "700").unwrap();
    scanner.rescan().unwrap();
    assert_eq!(scanner.groups()[1].weight, weight(700), "as root's word");
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
fn the_bytes_read_and_kept_of_a_users_records_have_a_bound() {
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
    // One of the 6 MiB is read, and no path from it is kept.
    assert!((1..=6).contains(&found.count()), "{}", found.count());
    assert!(found.longest_path() <= 1024, "{}", found.longest_path());
}

#[test]
fn any_number_of_files_among_a_users_records_is_one_problem() {
    let root = tempfile::tempdir().unwrap();
    for id in 0..300 {
        write(root.path(), &format!("{}/file-{id}", records()), "");
    }
    give_to_user(root.path());
    let fs = fake(&["/app"]);
    let scanner = scanned(&fs, root.path());
    assert_eq!(scanner.problems().len(), 1, "{:?}", scanner.problems());
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
    assert!(scanner.rescan().unwrap());
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
    // A link that leaves neither the mount nor the user's files.
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
fn more_records_of_a_user_than_a_bound_are_one_problem() {
    let root = tempfile::tempdir().unwrap();
    for id in 0..1100 {
        std::fs::create_dir_all(root.path().join(format!("{}/{id}", records()))).unwrap();
    }
    give_to_user(root.path());
    let fs = fake(&["/app"]);
    let scanner = scanned(&fs, root.path());
    assert_eq!(scanner.problems().len(), 1, "{:?}", scanner.problems());
}

#[test]
fn an_attribute_that_is_too_long_is_no_weight_and_hides_nobody() {
    let fs = fake(&["/app/bad", "/app/good"]);
    let bad = fs.open("/app/bad").unwrap();
    bad.set_xattr(xattr::WEIGHT, &"9".repeat(300)).unwrap();
    let mut scanner = scanner(&fs, &["/app/*"], RuntimeDirs::none());
    scanner.rescan().unwrap();
    assert_eq!(scanner.groups().len(), 2);
    assert_eq!(scanner.groups()[0].source, WeightSource::Default);
}

#[test]
fn a_group_that_cannot_be_opened_is_one_problem_and_joins_when_it_can() {
    let fs = fake(&["/app/bad/inner", "/app/good"]);
    let mut scanner = scanner(&fs, &["/app/**"], RuntimeDirs::none());
    fs.shut("/app/bad", Some(Errno::MFILE));
    assert!(scanner.rescan().unwrap());
    assert_eq!(paths(&scanner), ["/app/good"]);
    assert_eq!(scanner.problems().len(), 1);
    fs.shut("/app/bad", None);
    assert!(scanner.rescan().unwrap());
    assert_eq!(scanner.problems().len(), 0);
    fs.shut("/app/bad", Some(Errno::MFILE));
    assert!(!scanner.rescan().unwrap(), "what is known stays");
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
    let config = DiscoverConfig::managing(&["/good", "/x*/**"]);
    let mut scanner = Scanner::new(fs, config, RuntimeDirs::none()).unwrap();
    scanner.rescan().unwrap();
    assert!(paths(&scanner).contains(&"/good"));
    assert_eq!(scanner.problems().len(), 1, "{:?}", scanner.problems());
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
fn a_container_that_writes_to_its_cgroup_of_roots_states_no_weight_of_its_own() {
    let docker = format!("/system.slice/docker-{ID}.scope");
    let fs = fake(&[&docker, "/app/db"]);
    let mut scanner = scanner(&fs, &["/app/*", "/system.slice/*"], RuntimeDirs::none());
    let group = fs.open(&docker).unwrap();
    group.set_xattr(xattr::WEIGHT, "10000").unwrap();
    scanner.rescan().unwrap();
    assert_eq!(scanner.groups()[1].weight, Weight::DEFAULT);
    let name = scanner.attribute_of(&docker);
    assert_eq!(name, xattr::WEIGHT_OF_DELEGATED);
    assert_eq!(scanner.attribute_of("/app/db"), xattr::WEIGHT);
    group.set_xattr(name, "700").unwrap();
    scanner.rescan().unwrap();
    assert_eq!(scanner.groups()[1].weight, weight(700));
}

#[test]
fn what_a_containers_root_makes_below_its_cgroup_of_roots_divides_its_weight_only() {
    let docker = format!("/system.slice/docker-{ID}.scope");
    let made = format!("{docker}/x");
    let fs = fake(&[&made, &format!("{docker}/crun-db.scope/y")]);
    let group = fs.open(&made).unwrap();
    group.set_xattr(xattr::WEIGHT, "10000").unwrap();
    for glob in ["/system.slice/**", "/system.slice/*/*"] {
        let mut scanner = scanner(&fs, &[glob], RuntimeDirs::none());
        scanner.rescan().unwrap();
        let (inside, outside): (Vec<_>, Vec<_>) =
            scanner.groups().iter().partition(|group| group.delegated);
        assert!(inside.iter().any(|group| group.weight == weight(10_000)));
        assert!(outside.iter().all(|group| group.weight == Weight::DEFAULT));
        let weighed = scanner.weighed().iter().map(|top| top.weight.get());
        let is_weighed = outside.is_empty().then_some(100);
        assert_eq!(weighed.collect::<Vec<_>>(), Vec::from_iter(is_weighed));
        assert!(scanner.find("db").is_none(), "a name of the container's");
        group.set_xattr(scanner.attribute_of(&made), "300").unwrap();
        scanner.rescan().unwrap();
        let found = scanner.find(&made).map(|group| group.weight);
        assert_eq!(found, Some(weight(300)), "root's word");
        group.remove_xattr(xattr::WEIGHT_OF_DELEGATED).unwrap();
    }
    for n in 0..300 {
        fs.mkdir(&format!("{docker}/x{n}"));
    }
    let mut scanner = scanner(&fs, &["/system.slice/*/*"], RuntimeDirs::none());
    scanner.rescan().unwrap();
    assert_eq!((scanner.groups().len(), scanner.problems().len()), (256, 1));
}

#[test]
fn the_group_that_crun_makes_below_a_scope_of_roots_is_roots() {
    let scope = format!("/machine.slice/libpod-{ID}.scope");
    let (made, inner) = (format!("{scope}/container"), format!("{scope}/container/x"));
    let root = tempfile::tempdir().unwrap();
    let status = format!(r#"{{"cgroup-path": "{made}"}}"#);
    write(root.path(), "run/crun/db/status", &status);
    write(root.path(), "run/crun/db/config.json", "{}");
    let fs = fake(&[&inner]);
    for path in [&made, &inner] {
        let group = fs.open(path).unwrap();
        group.set_xattr(xattr::WEIGHT, "10000").unwrap();
    }
    let runtime = RuntimeDirs::under(root.path());
    let mut scanner = scanner(&fs, &["/machine.slice/**"], runtime);
    scanner.rescan().unwrap();
    let groups = scanner.groups().iter();
    let seen: Vec<_> = groups.map(|g| (g.weight.get(), g.delegated)).collect();
    assert_eq!(seen, [(100, false), (100, false), (10_000, true)]);
}

#[test]
fn a_cgroup_that_a_tenant_names_neither_takes_a_name_of_roots_nor_makes_it_ambiguous() {
    let docker = format!("/system.slice/docker-{ID}.scope");
    let mine = format!("{}/docker-{}.scope", delegated(), ID.replace('a', "b"));
    let made = [
        mine.clone(),
        format!("{}/crun-db.scope", delegated()),
        format!("{}/crun-other.scope", delegated()),
        format!("{}/crun-{ID}.scope", delegated()),
    ];
    let fs = fake(&[&docker, &made[0], &made[1], &made[2], &made[3]]);
    fs.delegate(&delegated(), user(), false);
    let root = tempfile::tempdir().unwrap();
    let record = format!("var/lib/docker/containers/{ID}");
    write(root.path(), &format!("{record}/hostconfig.json"), "{}");
    let named = r#"{"Name": "/db"}"#;
    write(root.path(), &format!("{record}/config.v2.json"), named);
    let scanner = scanned(&fs, root.path());
    let found = |what: &str| scanner.find(what).map(|group| group.path.clone());
    for name in ["db", ID, "0123", "0123456789ab"] {
        assert_eq!(found(name), Some(docker.clone()), "{name}");
    }
    assert_eq!(found("other"), None);
    assert_eq!(found("crun-other.scope"), None);
    assert_eq!(found(&made[2]), Some(made[2].clone()));
    assert_eq!(found("0123456789bb"), Some(mine), "as `docker ps` shows it");
    let alias = |path: &str| {
        let group = scanner.groups().iter().find(|group| group.path == path);
        group.unwrap().alias.clone()
    };
    assert_eq!(alias(&docker), Some("db".to_owned()));
    assert_eq!(alias(&made[3]), None, "it has the ID of root's container");
}

#[test]
fn a_user_trusted_by_the_configuration_counts_as_root() {
    let fs = fake(&["/app/db"]);
    fs.delegate("/app", user(), false);
    fs.delegate("/app/db", user(), false);
    fs.open("/app/db")
        .unwrap()
        .set_xattr(xattr::WEIGHT, "700")
        .unwrap();
    let config = DiscoverConfig {
        trust: vec![user()],
        ..DiscoverConfig::managing(&["/app/*"])
    };
    let mut scanner = scanner_with(&fs, config, RuntimeDirs::none());
    scanner.rescan().unwrap();
    assert!(scanner.weighed().is_empty() && !scanner.groups()[0].delegated);
    assert_eq!(scanner.groups()[0].weight, weight(700));
}

#[test]
fn any_number_of_groups_that_a_user_makes_is_one_problem_and_a_bounded_list() {
    let fs = fake(&[&format!("/system.slice/docker-{ID}.scope")]);
    for n in 0..2500 {
        fs.mkdir(&format!("{}/docker-{n:012x}.scope", delegated()));
    }
    fs.delegate(&delegated(), user(), false);
    let root = tempfile::tempdir().unwrap();
    let scanner = scanned(&fs, root.path());
    assert_eq!(scanner.groups().len(), 1 + 256);
    assert_eq!(scanner.problems().len(), 1, "{:?}", scanner.problems());
}

proptest! {
    #[test]
    fn groups_that_a_user_makes_below_its_directory_change_no_weight_outside_of_them(
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
