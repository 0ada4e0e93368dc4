//! Tests of silences, the restriction to a group, IDs and their pages.

use std::collections::BTreeSet;

use justitia_discover::Glob;

use super::{check, gib, mib, Host};
use crate::{examine, find_check, Silence, Verdict, CHECKS};

fn silence(check: &str, group: Option<&str>) -> Silence {
    Silence {
        check: check.into(),
        group: group.map(|glob| Glob::new(glob).unwrap()),
        reason: "a test".into(),
    }
}

/// A host on which two groups are cut off from protection: `/app/db` and `/app/web`.
fn cut_off() -> Host {
    let host = Host::healthy();
    host.group("/app", |app| app.low = mib(0));
    host
}

#[test]
fn a_silenced_finding_is_listed_with_its_reason_and_does_not_count() {
    let facts = cut_off().look(1, |_| {});
    let open = examine(&facts, &[], None);
    assert_eq!((open.findings_total, open.silenced_total), (2, 0));
    let half = examine(
        &facts,
        &[silence("protection-cut-off", Some("/app/db"))],
        None,
    );
    assert_eq!((half.findings_total, half.silenced_total), (1, 1));
    assert_eq!(half.verdict, Verdict::Finding);
    let all = examine(&facts, &[silence("protection-cut-off", None)], None);
    assert_eq!((all.findings_total, all.silenced_total), (0, 2));
    assert_eq!(all.verdict, Verdict::Silenced);
    let findings = &check(&all, "protection-cut-off").findings;
    assert!(findings
        .iter()
        .all(|finding| finding.silenced.as_deref() == Some("a test")));
}

#[test]
fn a_silence_covers_no_other_check_and_no_other_group() {
    let facts = cut_off().look(1, |_| {});
    let others = [
        silence("recursiveprot-unclaimed", None),
        silence("protection-cut-off", Some("/other/*")),
    ];
    assert_eq!(examine(&facts, &others, None).findings_total, 2);
}

#[test]
fn with_a_group_only_findings_that_concern_it_are_reported() {
    let host = cut_off();
    host.files.set("/proc/sys/vm/swappiness", "0\n");
    host.group("/app", |app| app.max = gib(5));
    let facts = host.look(1, |_| {});
    let about = |group| examine(&facts, &[], Some(group));
    let db = about("/app/db");
    let paths: Vec<String> = db
        .checks
        .iter()
        .flat_map(|check| &check.findings)
        .map(|finding| format!("{:?}", finding.subject))
        .collect();
    assert!(paths.contains(&"Host".to_owned()), "{paths:?}");
    assert!(
        paths.contains(&r#"Group("/app")"#.to_owned()),
        "above: {paths:?}"
    );
    assert!(
        paths.contains(&r#"Group("/app/db")"#.to_owned()),
        "{paths:?}"
    );
    assert!(
        !paths.contains(&r#"Group("/app/web")"#.to_owned()),
        "{paths:?}"
    );
    assert_eq!(about("/system.slice").findings_total, 1, "the host's only");
}

#[test]
fn ids_are_unique_and_found() {
    let ids: BTreeSet<&str> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(ids.len(), CHECKS.len());
    for id in ids {
        assert!(id
            .bytes()
            .all(|byte| byte == b'-' || byte.is_ascii_lowercase() || byte == b'1'));
        assert_eq!(find_check(id).map(|check| check.id), Some(id));
    }
    assert!(find_check("no-such-check").is_none());
}

#[test]
fn every_check_has_a_section_in_the_documentation_and_no_section_is_left_over() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
    let text = std::fs::read_to_string(page).unwrap();
    let sections: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    let ids: Vec<&str> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(sections, ids);
    for check in &CHECKS {
        assert!(text.contains(check.title), "{}: {}", check.id, check.title);
    }
}

#[test]
fn the_report_is_json_with_everything_a_fleet_needs() {
    let facts = cut_off().look(1, |_| {});
    let report = serde_json::to_value(examine(&facts, &[], None)).unwrap();
    assert_eq!(report["verdict"], "finding");
    let checks = report["checks"].as_array().unwrap();
    let check = checks
        .iter()
        .find(|check| check["id"] == "protection-cut-off")
        .unwrap();
    assert_eq!(check["severity"], "warning");
    assert_eq!(check["documentation"], "docs/doctor.md#protection-cut-off");
    let finding = &check["findings"][0];
    assert_eq!(finding["subject"]["kind"], "group");
    assert_eq!(finding["subject"]["name"], "/app/db");
    assert_eq!(finding["numbers"]["protection_bytes"], 2_147_483_648.0);
    assert!(finding["silenced"].is_null());
}
