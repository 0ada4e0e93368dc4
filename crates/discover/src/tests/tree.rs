//! Groups that a scan finds, and their names.

use super::*;

#[test]
fn globs_choose_what_is_managed_parents_first() {
    let fs = fake(&["/app/db/inner", "/app/web", "/other/x", "/app-2"]);
    let mut scanner = scanner(&fs, &["/app/**", "/app-*"], RuntimeDirs::none());
    assert!(scanner.rescan().unwrap());
    assert_eq!(
        paths(&scanner),
        ["/app-2", "/app/db", "/app/db/inner", "/app/web"]
    );
    assert!(!scanner.rescan().unwrap());
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
fn neither_an_excluded_group_nor_the_groups_below_it_are_managed() {
    let fs = fake(&["/app/db/x", "/app/web"]);
    let config = DiscoverConfig {
        exclude: vec!["/app/db".into()],
        ..DiscoverConfig::managing(&["/app/**"])
    };
    let mut scanner = scanner_with(&fs, config, RuntimeDirs::none());
    scanner.rescan().unwrap();
    assert_eq!(paths(&scanner), ["/app/web"]);
}

#[test]
fn a_group_made_again_under_its_path_is_another() {
    let fs = fake(&["/app/db"]);
    let mut scanner = scanner(&fs, &["/app/*"], RuntimeDirs::none());
    scanner.rescan().unwrap();
    let new = fs.recreate("/app/db");
    assert!(scanner.rescan().unwrap());
    let ids = scanner
        .groups()
        .iter()
        .map(|group| (group.id, group.group.id()));
    assert_eq!(ids.collect::<Vec<_>>(), [(new, new)]);
    fs.rmdir("/app/db");
    assert!(scanner.rescan().unwrap());
    assert!(scanner.groups().is_empty());
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
    assert_eq!(found("0123"), Some(docker.as_str()));
    assert_eq!(found("012"), None, "too short");
    assert_eq!(found(""), None);
    fs.rmdir("/lxc/web");
    scanner.rescan().unwrap();
    assert_eq!(
        scanner.find("web").map(|group| &group.path),
        None,
        "web2 is another"
    );
}

#[test]
fn a_bad_glob_is_refused_by_name() {
    let config = DiscoverConfig::managing(&["/a**"]);
    let error = Scanner::new(fake(&[]) as Fs, config, RuntimeDirs::none());
    assert_eq!(error.err().unwrap().glob, "/a**");
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
    assert!(scanner.rescan().unwrap());
    assert_eq!(weighed(&scanner), [("/app/vip".to_owned(), 250)]);
    vip.remove_xattr(xattr::WEIGHT).unwrap();
    scanner.rescan().unwrap();
    // An agent wrote the file, so the value before it counts.
    fs.update("/app/vip", |group| group.io_weight = Some(77));
    scanner.set_priors(Priors::from([(
        (vip.id(), Knob::IoWeight),
        Value::Weight(600),
    )]));
    scanner.rescan().unwrap();
    assert_eq!(weighed(&scanner), [("/app/vip".to_owned(), 600)]);
    scanner.set_priors(Priors::new());
    fs.update("/app/vip", |group| group.io_weight = Some(100));
    assert!(scanner.rescan().unwrap());
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
    let mut scanner = scanner_with(&fs, config, RuntimeDirs::none());
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
    // Like systemctl set-property, while an agent holds the other file.
    let id = found.id;
    fs.update(db, |group| {
        group.io_weight = Some(300);
        group.bfq_weight = Some(77);
    });
    scanner.set_priors(Priors::from([(
        (id, Knob::IoBfqWeight),
        Value::Weight(163),
    )]));
    assert!(scanner.rescan().unwrap());
    assert_eq!(scanner.groups()[0].weight, weight(300));
    scanner.set_priors(Priors::new());
    fs.update(db, |group| {
        group.io_weight = Some(100);
        group.bfq_weight = Some(100);
    });
    assert!(scanner.rescan().unwrap());
    assert!(!paths(&scanner).contains(&db));
}
