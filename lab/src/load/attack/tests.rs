use super::*;

/// A plan in plain directories below this one.
fn plan(dir: &Path, only: &[Attack]) -> Plan {
    let home = dir.join("home");
    fs::create_dir(&home).unwrap();
    Plan {
        attacks: Attacks {
            only: only.to_vec(),
            anon_bytes: 0,
            mapped_bytes: 0,
        },
        home,
        home_path: "/user.slice/home".into(),
        runtime: dir.join("run"),
        data: dir.to_owned(),
        others: vec!["/app/w400".into(), "/system.slice".into()],
    }
}

#[test]
fn a_tenant_attacks_as_it_is_told_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path(), &[Attack::Depth]);
    let mut done = Done::default();
    let world = build(&plan, &mut done);
    assert_eq!(done.0["levels"], LEVELS as u64 - 1);
    assert_eq!(done.0["groups"], 1, "{done:?}");
    assert!(!done.0.contains_key("records"), "{done:?}");
    let parts = parts(&plan, &world);
    assert!(parts.iter().all(|part| part.role == "write") && parts.len() == 1);
}

/// In plain directories everything that needs no kernel succeeds, and everything is counted.
#[test]
fn a_tenant_does_all_it_can_and_counts_it() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path(), &[]);
    let (home, runtime) = (plan.home.clone(), plan.runtime.clone());
    let mut done = Done::default();
    let world = build(&plan, &mut done);
    come_and_go(&plan, 1, &mut done);
    come_and_go(&plan, 2, &mut done);
    for what in ["levels", "groups", "records", "fifos", "links", "churn"] {
        assert!(done.0.get(what).is_some_and(|&n| n > 0), "{what}: {done:?}");
    }
    assert_eq!(done.0["long_names"], LONG_NAMES as u64);
    let deep = world.deep.unwrap();
    let below = deep.strip_prefix(&home).unwrap();
    assert_eq!(below.iter().count(), LEVELS);
    let forged = fs::read_to_string(runtime.join("crun/of-other-1/status")).unwrap();
    assert!(forged.contains("/system.slice"), "{forged}");
    assert!(fs::read_link(runtime.join("runc/zero/config.json")).is_ok());
    // The tree has paths that are too long to name; the drop of the directory removes it anyway.
    drop(dir);
}

#[test]
fn bytes_written_are_those_of_all_devices() {
    assert_eq!(
        written("8:0 rbytes=1 wbytes=20 rios=1\n8:16 wbytes=3\n"),
        23
    );
    assert_eq!(written(""), 0);
}
