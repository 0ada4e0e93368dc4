//! Tests that reports survive JSON, and that groups are found by their names.

use justitia_policy::units::Weight;

use super::*;

fn tick(paths: &[&str]) -> Tick {
    let group = |(id, path): (u64, &&str)| Group {
        weight: Some(Weight::DEFAULT),
        ..Group::new(GroupId(id), path)
    };
    let groups = (1..).zip(paths).map(group).collect();
    Tick {
        snapshot: Snapshot {
            groups,
            ..Snapshot::default()
        },
        ..Tick::default()
    }
}

fn report(tick: &Tick) -> Report {
    let setup = Setup {
        since: UNIX_EPOCH + Duration::from_secs(5),
        ..Setup::default()
    };
    Report::new(&setup, tick)
}

#[test]
fn a_report_survives_json() {
    let report = report(&tick(&["/app/a", "/app/b"]));
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    assert!(json.contains("\"since_unix_s\":5"));
}

#[test]
fn the_hosts_stalls_are_reported_and_unknown_ones_are_null() {
    let mut tick = tick(&[]);
    tick.plan.host.memory_some = Some(0.25);
    let report = report(&tick);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["host"]["memory_some"], 0.25);
    assert!(json["host"]["io_some"].is_null());
    assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
}

#[test]
fn memory_held_for_others_is_null_where_nothing_sees_the_users_of_files() {
    let mut tick = tick(&["/app/a"]);
    let (state, config) = (
        justitia_policy::State::default(),
        justitia_policy::Config::default(),
    );
    tick.plan = justitia_policy::step(&state, &tick.snapshot, &config, Duration::ZERO).1;
    let held = |tick: &Tick| {
        let json = serde_json::to_value(report(tick)).unwrap();
        ["held_for_others_bytes", "held_by_others_bytes"]
            .map(|name| json["groups"][0][name].clone())
    };
    assert!(held(&tick).iter().all(serde_json::Value::is_null));
    tick.snapshot.shared = Some(Vec::new());
    assert_eq!(held(&tick), [0, 0], "seen, and none");
}

#[test]
fn a_table_calls_a_container_by_its_owners_name_and_not_by_its_id() {
    let id = "0123456789ab";
    let docker = format!("/system.slice/docker-{id}.scope");
    for (kind, name, path, label) in [
        ("container", "db", &*docker, "db"),
        ("container", id, &*docker, &*docker),
        ("container", "w100", "/app/w100", "/app/w100"),
        ("pod", "shop/db", "/kubepods/pod1", "shop/db"),
        (
            "service",
            "cron",
            "/system.slice/cron.service",
            "/system.slice/cron.service",
        ),
    ] {
        let mut tick = tick(&[path]);
        let names = Names {
            kind: kind.to_owned(),
            name: name.to_owned(),
            ..Names::default()
        };
        tick.names = Arc::new([(GroupId(1), names)].into());
        assert_eq!(report(&tick).groups[0].label(), label);
    }
}

#[test]
fn a_group_is_found_by_path_or_by_a_name_that_only_it_has() {
    let called = |name: &str| Names {
        name: name.to_owned(),
        ..Names::default()
    };
    let id = "0123456789ab";
    let mut tick = tick(&["/app/a", "/app/b", "/vm/b", "/docker/a", "/docker/c"]);
    let names = [(1, "db2"), (2, "web"), (3, "web"), (4, "a"), (5, id)];
    let names = names.map(|(id, name)| (GroupId(id), called(name)));
    tick.names = Arc::new(names.into());
    let report = report(&tick);
    assert_eq!(report.find("/app/b").unwrap().id, 2);
    assert_eq!(report.find("db2").unwrap().id, 1);
    assert_eq!(
        report.find("a").unwrap().id,
        4,
        "its owner's word comes first"
    );
    assert!(report.find("b").is_none() && report.find("web").is_none());
    assert!(report.find("pp/a").is_none());
    assert_eq!(report.find("0123").unwrap().id, 5, "as IDs are shortened");
    assert!(report.find("db").is_none() && report.find("").is_none());
}

#[test]
fn a_group_that_a_tenant_names_takes_no_name_of_roots() {
    let (id, mine) = ("0123456789ab", "ba9876543210");
    let mut tick = tick(&["/docker/a", "/user/db", "/user/c", "/user/d"]);
    for group in &mut tick.snapshot.groups[1..] {
        group.delegated = true;
    }
    let names = [(1, "db"), (2, "db"), (3, id), (4, mine)].map(|(id, name)| {
        let named = Names {
            name: name.to_owned(),
            ..Names::default()
        };
        (GroupId(id), named)
    });
    tick.names = Arc::new(names.into());
    let mut report = report(&tick);
    let found = |name: &str| report.find(name).map(|group| group.id);
    assert_eq!(found("db"), Some(1), "its owner's word, not the tenant's");
    assert_eq!([found("/user/db"), found(mine)], [Some(2), Some(4)]);
    assert_eq!([found("c"), found("0123"), found("ba98")], [None; 3]);
    report.groups.remove(0);
    let error = report.named("db").unwrap_err();
    assert!(error.remedy.contains("use its path"), "{error}");
}
