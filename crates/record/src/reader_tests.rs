//! Formats change: what is unknown is passed over or named, what is missing has its default.

use serde_json::{json, Value};

use super::*;
use crate::encode::Encoder;
use crate::frame::{frame, preamble};

fn tick_json(count: u64) -> Value {
    json!({
        "count": count,
        "elapsed_ns": 1_000_000_000_u64,
        "snapshot": {"host": {}, "groups": []},
        "plan": {"writes": [], "verdicts": []},
    })
}

/// A record with a session, these frames, and one tick.
fn record(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = preamble(FORMAT).to_vec();
    let mut encoder = Encoder::new();
    let session = Session {
        written_by: "9.8.7".into(),
        ..Session::default()
    };
    bytes.extend(encoder.session(&session).unwrap());
    bytes.extend(frames.iter().flatten());
    let tick: Tick = serde_json::from_value(tick_json(1)).unwrap();
    bytes.extend(encoder.tick(&tick).unwrap());
    bytes.extend(Encoder::end());
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Item>> {
    Reader::new(bytes, "x.jrec")?.collect()
}

fn kinds(items: &[Item]) -> Vec<&'static str> {
    let kinds = items.iter().map(|item| match item {
        Item::Session(_) => "session",
        Item::Tick(_) => "tick",
        Item::Note(_) => "note",
        Item::End => "end",
    });
    kinds.collect()
}

#[test]
fn a_frame_of_an_unknown_kind_is_passed_over() {
    let items = read(&record(&[frame(77, 0, b"whatever")])).unwrap();
    assert_eq!(kinds(&items), ["session", "tick", "end"]);
}

#[test]
fn an_unknown_frame_that_matters_names_the_version_that_is_needed() {
    for unknown in [
        frame(77, CRITICAL, b"whatever"),
        frame(KEY, CRITICAL | 4, b"x"),
    ] {
        let error = read(&record(&[unknown])).unwrap_err();
        assert!(error.cause.contains("does not understand"), "{error}");
        assert!(error.remedy.contains("9.8.7"), "{}", error.remedy);
    }
}

#[test]
fn a_later_format_is_named() {
    let mut bytes = record(&[]);
    bytes[8] = 2;
    let error = read(&bytes).unwrap_err();
    assert!(error.cause.contains("format 2"), "{error}");
}

#[test]
fn what_is_no_record_and_what_is_empty_is_said() {
    for (bytes, words) in [
        (&b""[..], "is empty"),
        (b"hello, world, this is text", "is not a record"),
        (&preamble(FORMAT)[..11], "is not a record"),
        (&preamble(0), "is not a record"),
    ] {
        let error = read(bytes).unwrap_err();
        assert!(error.cause.contains(words), "{error}");
        assert!(!error.remedy.is_empty());
    }
    assert_eq!(read(&preamble(FORMAT)).unwrap(), []);
}

#[test]
fn fields_come_and_go() {
    let mut newer = tick_json(7);
    newer["mood"] = json!("good");
    newer["config"] = json!({"mode": "observe", "haste": 3, "feedback": {"zeal": 1.0}});
    newer["snapshot"]["weather"] = json!([1, 2]);
    newer["plan"]["host"] = json!({"load": 3});
    let tick: Tick = serde_json::from_value(newer).unwrap();
    assert_eq!(tick.count, 7);
    assert_eq!(tick.config.mode, justitia_policy::config::Mode::Observe);
    let older: Tick = serde_json::from_value(tick_json(8)).unwrap();
    assert_eq!((older.missed, older.before), (0, None));
}

#[test]
fn a_state_of_another_version_is_not_taken_for_one_of_ours() {
    let state = justitia_policy::State::default();
    let mut remembered = crate::Remembered::new(&state).unwrap();
    assert_eq!(remembered.state(), Some(state));
    remembered.version += 1;
    assert_eq!(remembered.state(), None);
}
