//! Tests that the output is reproducible, names its source, and has the right values.

use std::path::PathBuf;

use super::*;

/// A record from the tests of the record format: three writers, 20 ticks of an agent's run.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../record/tests/fixtures/v2.jrec")
}

fn weights(arguments: &[&str]) -> Weights {
    let named = arguments.iter().map(|argument| weights::weight(argument));
    Weights::new(&named.collect::<Result<Vec<_>>>().unwrap(), None).unwrap()
}

/// The output as text and as JSON.
fn replayed(arguments: &[&str], mode: Option<&str>) -> (String, serde_json::Value) {
    let weights = weights(arguments);
    let weight = |group: &_| weights.of(group);
    let options = Options {
        config: None,
        mode: mode.map(|mode| parse_mode(mode).unwrap()),
        objective: None,
        weight: &weight,
        more: &|_| None,
    };
    let mut record = Record {
        file: "v2.jrec".into(),
        ..Record::default()
    };
    let mut summary = Summary::new(3);
    let mut configs = None;
    walk(&fixture(), options, &mut record, |step| {
        summary.add(&step);
        configs = Some((step.config, step.tick.config));
        Ok(true)
    })
    .unwrap();
    weights.named.check_used().unwrap();
    let (config, recorded) = configs.unwrap();
    let summary = summary.finish();
    (
        render::summary(&record, &config, &recorded, &summary, Screen::FILE).to_string(),
        render::summary_json(&record, &config, &recorded, &summary),
    )
}

#[test]
fn groups_are_shown_with_what_they_had_and_should_have() {
    let (text, json) = replayed(&[], None);
    assert!(
        text.contains("20 ticks over") && text.contains("3 groups"),
        "{text}"
    );
    assert!(text.contains("recorded without an agent by justitia 0.1.0 on kernel 6.12.0"));
    let line = text
        .lines()
        .find(|line| line.starts_with("/app/4"))
        .unwrap();
    assert!(line.contains("800") && line.contains("61.5%"), "{line}");
    assert_eq!(json["ticks"], 20);
    assert_eq!(json["complete"], true);
    assert_eq!(json["groups"][2]["path"], "/app/4");
}

#[test]
fn other_decisions_are_marked_open_loop_and_their_writes_are_shown() {
    let (text, json) = replayed(&["/app/2=800", "3=100"], None);
    assert!(text.contains("Open loop"), "{text}");
    assert!(text.contains("writes that differ"), "{text}");
    assert_eq!(json["open_loop"], true);
    assert_eq!(json["groups"][0]["weight"], 800);
    assert_eq!(json["groups"][0]["recorded_weight"], 100);
    assert_eq!(json["groups"][1]["weight"], 100);
    let (text, json) = replayed(&[], Some("observe"));
    assert!(text.contains("mode observe"), "{text}");
    assert_eq!(json["writes"], 0);
}

#[test]
fn the_same_replay_prints_the_same() {
    let arguments: &[&str] = &["4=10"];
    let (first, second) = (replayed(arguments, None), replayed(arguments, None));
    assert_eq!(first.0, second.0);
    assert_eq!(first.1.to_string(), second.1.to_string());
}

#[test]
fn a_step_is_the_first_at_or_after_its_time() {
    let mut record = Record::default();
    let step = step_at(&fixture(), 2.5, Options::as_recorded(), &mut record).unwrap();
    assert_eq!(step.tick.count, 14);
    let text = render::step(&record, &step, Screen::FILE);
    assert!(text.contains("Step 14 at 3.0"), "{text}");
    for path in ["/app/2", "/app/3", "/app/4"] {
        assert!(text.contains(path), "{text}");
    }
    assert_eq!(render::step_json(&record, &step)["count"], 14);
    let error = step_at(&fixture(), 1e6, Options::as_recorded(), &mut record).unwrap_err();
    assert!(error.to_string().contains("no step there"), "{error}");
}

#[test]
fn a_step_tells_of_damage_in_json_as_in_text() {
    let mut record = Record::default();
    let step = step_at(&fixture(), 2.5, Options::as_recorded(), &mut record).unwrap();
    record.notes.push(Note::Damaged {
        offset: 40,
        bytes: 7,
    });
    let json = render::step_json(&record, &step);
    let note = json["notes"][0].as_str().unwrap();
    let text = render::step(&record, &step, Screen::FILE).to_string();
    assert!(text.contains(note), "{text}");
    assert_eq!(json["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_record_without_a_whole_step_says_that_its_end_is_missing() {
    let whole = std::fs::read(fixture()).unwrap();
    for bytes in [40, 100] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &whole[..bytes]).unwrap();
        let mut record = Record::default();
        walk(file.path(), Options::as_recorded(), &mut record, |_| {
            Ok(true)
        })
        .unwrap();
        let error = nothing_there(&record, None);
        assert!(error.cause.contains("are incomplete"), "{error}");
        assert!(!error.remedy.contains("longer"), "{}", error.remedy);
    }
}

#[test]
fn a_weight_for_nobody_or_out_of_range_is_wrong_usage() {
    let unused = weights(&["nobody=5"]).named.check_used().unwrap_err();
    assert_eq!(unused.exit.code(), 2);
    assert!(unused.cause.contains("no group nobody"), "{unused}");
    for wrong in ["db", "db=0", "db=many", "=", "db=10001"] {
        let error = weights::weight(wrong).unwrap_err();
        assert_eq!(error.exit.code(), 2, "{wrong}");
    }
}

#[test]
fn an_export_has_every_step() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let mut export = Export::new(&path).unwrap();
    walk(
        &fixture(),
        Options::as_recorded(),
        &mut Record::default(),
        |step| {
            export.add(&step)?;
            Ok(true)
        },
    )
    .unwrap();
    export.finish().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let steps: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(steps.len(), 20);
    assert_eq!(steps[3]["snapshot"]["groups"][1]["path"], "/app/3");
}
