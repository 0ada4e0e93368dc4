//! Tests the history's values and its bounds.

use std::time::UNIX_EPOCH;

use justitia_policy::plan::{Value, Verdict};
use justitia_policy::snapshot::GroupId;
use justitia_policy::units::Bytes;
use justitia_report::example;
use justitia_report::status::Tick;
use serde_json::Value as Json;

use super::*;
use crate::tests;

fn report(tick: &Tick) -> Report {
    tests::report(tick, Duration::from_secs(1))
}

/// A history of `ticks` ticks, one a second, and the time after the last.
fn history(ticks: u64, groups: usize) -> (History, Instant) {
    let mut history = History::default();
    let mut at = Instant::now();
    for count in 1..=ticks {
        history.push(&report(&example::tick(count, groups)), at);
        at += Duration::from_secs(1);
    }
    (history, at)
}

fn json(history: &History, since: u64, now: Instant) -> Json {
    let clock = UNIX_EPOCH + Duration::from_secs(1_000_000);
    let age = Some(Duration::from_millis(1500));
    let text = history.json(&report(&example::tick(1, 1)), since, (now, clock), age);
    serde_json::from_str(&text).unwrap()
}

/// The value of a column in a group's row of a point.
fn cell<'a>(answer: &'a Json, point: usize, path: &str, column: &str) -> &'a Json {
    let groups = answer["groups"].as_array().unwrap();
    let group = groups
        .iter()
        .position(|group| group["path"] == path)
        .unwrap();
    let rows = answer["points"][point]["groups"].as_array().unwrap();
    let row = rows.iter().find(|row| row[0] == group).unwrap();
    let columns = answer["columns"].as_array().unwrap();
    &row[columns.iter().position(|name| name == column).unwrap()]
}

fn close(a: &Json, b: f64) -> bool {
    a.as_f64()
        .is_some_and(|a| (a - b).abs() <= 1e-4 + b.abs() * 1e-6)
}

#[test]
fn the_values_of_a_tick_are_in_the_history() {
    let (history, now) = history(3, 8);
    let answer = json(&history, 0, now);
    let tick = example::tick(3, 8);
    let verdict = &tick.plan.verdicts[1];
    let told = |column| cell(&answer, 2, "/app/db", column);
    assert!(close(told("proportion"), verdict.proportion));
    assert!((told("bytes_per_s").as_f64().unwrap() - verdict.bytes_per_s.unwrap()).abs() < 2.0);
    assert!(close(told("threshold_bytes"), verdict.threshold.as_f64()));
    assert!(close(told("of_ideal"), verdict.of_ideal.unwrap()));
    assert_eq!(told("contending"), verdict.contending);
    assert!(close(&answer["points"][2]["pv"], tick.plan.pv.unwrap()));
    assert_eq!(answer["points"][2]["tick"], 3);
    assert_eq!(answer["points"][2]["unix_ms"], 999_999_000_u64);
    assert_eq!(answer["since_unix_s"], 5);
    assert_eq!(answer["age_s"], 1.5);
}

#[test]
fn only_values_after_the_tick_that_was_named_are_returned() {
    let (history, now) = history(10, 3);
    let answer = json(&history, 8, now);
    let ticks: Vec<u64> = answer["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["tick"].as_u64().unwrap())
        .collect();
    assert_eq!(ticks, [9, 10]);
    assert_eq!(json(&history, 10, now)["points"], serde_json::json!([]));
    assert_eq!(json(&history, 10, now)["decisions"], serde_json::json!([]));
}

#[test]
fn unknown_is_null_and_not_in_a_sum() {
    let mut history = History::default();
    let mut tick = example::tick(1, GROUPS + 2);
    for verdict in &mut tick.plan.verdicts {
        verdict.cache.hit_ratio = None;
        verdict.bytes_per_s = None;
    }
    tick.plan.pv = None;
    let now = Instant::now();
    history.push(&report(&tick), now);
    let answer = json(&history, 0, now);
    assert!(answer["points"][0]["pv"].is_null());
    assert!(cell(&answer, 0, "/app/web", "hit_ratio").is_null());
    assert_eq!(answer["points"][0]["rest"]["groups"], 2);
    assert!(answer["points"][0]["rest"]["file_bytes"].as_f64().unwrap() > 0.0);
}

#[test]
fn with_many_groups_the_largest_have_places_and_the_sum_is_kept() {
    let (history, now) = history(2, 300);
    let answer = json(&history, 0, now);
    let tick = example::tick(2, 300);
    let point = &answer["points"][1];
    let rows = point["groups"].as_array().unwrap();
    assert_eq!(rows.len(), GROUPS);
    assert_eq!(point["rest"]["groups"], 300 - GROUPS);
    let all: f64 = tick
        .plan
        .verdicts
        .iter()
        .filter_map(|v| v.bytes_per_s)
        .sum();
    let told: f64 = rows.iter().filter_map(|row| row[2].as_f64()).sum::<f64>()
        + point["rest"]["bytes_per_s"].as_f64().unwrap();
    assert!((told / all - 1.0).abs() < 1e-4, "{told} of {all}");
    let rival = |(_, verdict): &(usize, &Verdict)| verdict.contending;
    let rivals = tick.plan.verdicts.iter().enumerate().filter(rival);
    let weight: f64 = rivals.map(|(_, verdict)| verdict.proportion).sum();
    let told = rows
        .iter()
        .filter(|row| row[7] == true)
        .filter_map(|row| row[1].as_f64());
    let told = told.sum::<f64>() + point["rest"]["contending_proportion"].as_f64().unwrap();
    assert!((told / weight - 1.0).abs() < 0.01, "{told} of {weight}");
    let least = rows
        .iter()
        .filter_map(|row| row[2].as_f64())
        .fold(f64::MAX, f64::min);
    let mut rates: Vec<f64> = tick
        .plan
        .verdicts
        .iter()
        .filter_map(|v| v.bytes_per_s)
        .collect();
    rates.sort_by(|a, b| b.total_cmp(a));
    assert!(
        least * 2.0 >= rates[GROUPS],
        "{least} has a place before {}",
        rates[GROUPS]
    );
}

#[test]
fn groups_of_equal_size_do_not_take_turns() {
    let mut history = History::default();
    let mut at = Instant::now();
    // By then bandwidths have settled, except for noise of some percent.
    for count in 1000..1060 {
        history.push(&report(&example::tick(count, 300)), at);
        at += Duration::from_secs(1);
    }
    let ids = |point: &Point| point.groups.iter().map(|one| one.id).collect::<Vec<_>>();
    assert_eq!(ids(&history.points[0]), ids(&history.points[59]));
}

#[test]
fn memory_is_bounded_in_time_and_in_groups() {
    let (history, now) = history(700, 40);
    assert!(history.points.len() <= POINTS);
    assert!(now.duration_since(history.points[0].at) <= AGE + Duration::from_secs(1));
    assert!(history
        .points
        .iter()
        .all(|point| point.groups.len() <= GROUPS));
    // Points share the names, which are freed with the last point.
    let first = &history.points[0].groups[0];
    assert!(Arc::strong_count(&first.path) > 100);
}

#[test]
fn short_intervals_do_not_fill_it_sooner() {
    let mut history = History::default();
    let began = Instant::now();
    for count in 1..=100 {
        let at = began + Duration::from_millis(100 * count);
        history.push(&report(&example::tick(count, 2)), at);
    }
    assert!(
        (10..=12).contains(&history.points.len()),
        "{}",
        history.points.len()
    );
}

#[test]
fn a_recycled_path_is_another_group() {
    let mut history = History::default();
    let mut at = Instant::now();
    for (count, id) in [(1, 7), (2, 8)] {
        let mut tick = example::tick(count, 1);
        tick.snapshot.groups[0].id = GroupId(id);
        tick.plan.verdicts[0].group = GroupId(id);
        history.push(&report(&tick), at);
        at += Duration::from_secs(1);
    }
    let answer = json(&history, 0, at);
    let ids: Vec<&Json> = answer["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| &g["id"])
        .collect();
    assert_eq!(ids, ["7", "8"]);
}

#[test]
fn the_same_decision_again_is_counted() {
    let (history, now) = history(5, 1);
    let answer = json(&history, 0, now);
    let decisions = answer["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 3);
    let low = decisions
        .iter()
        .find(|one| one["knob"] == "memory.low")
        .unwrap();
    assert_eq!(
        (low["times"].as_u64(), low["tick"].as_u64()),
        (Some(5), Some(5))
    );
    assert_eq!(low["why"], "threshold");
    assert!(low["because"].as_str().unwrap().starts_with("threshold "));
    assert!(low["first_unix_ms"].as_u64() < low["last_unix_ms"].as_u64());
}

#[test]
fn decisions_are_bounded() {
    let mut history = History::default();
    let now = Instant::now();
    for count in 1..=5 {
        let mut tick = example::tick(count, 1);
        let one = tick.plan.writes[0].clone();
        tick.plan.writes = (0..1000)
            .map(|n| justitia_policy::plan::Write {
                group: GroupId(count * 1000 + n),
                value: Value::Reclaim(Bytes(n)),
                ..one.clone()
            })
            .collect();
        history.push(&report(&tick), now + Duration::from_secs(count));
    }
    assert_eq!(history.decisions.len(), DECISIONS);
}

#[test]
fn a_group_that_holds_groups_is_not_counted_beside_them() {
    let mut history = History::default();
    let mut tick = example::tick(1, 3);
    // `/app/db` is a pod, and its container is in place of `/app/mail`.
    tick.snapshot.groups[2].path = "/app/db/main".into();
    tick.plan.verdicts.remove(1);
    let now = Instant::now();
    history.push(&report(&tick), now);
    let answer = json(&history, 0, now);
    let paths: Vec<&Json> = answer["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| &g["path"])
        .collect();
    assert_eq!(paths, ["/app/web", "/app/db/main"]);
}

#[test]
fn a_group_that_was_renamed_has_its_new_name() {
    let mut history = History::default();
    let mut at = Instant::now();
    for (count, path) in [(1, "/app/old"), (2, "/app/new")] {
        let mut tick = example::tick(count, 1);
        tick.snapshot.groups[0].path = path.into();
        history.push(&report(&tick), at);
        at += Duration::from_secs(1);
    }
    assert_eq!(json(&history, 1, at)["groups"][0]["path"], "/app/new");
}
