//! Formats change: fields come and go, and a part that is not understood is named.

use serde_json::{json, Value};

use super::*;
use crate::encode::Encoder;
use crate::frame::{frame, preamble};
use crate::model::{Session, Tick};

fn tick_json(count: u64) -> Value {
    json!({
        "count": count,
        "elapsed_ns": 1_000_000_000_u64,
        "snapshot": {"host": {}, "groups": []},
        "plan": {"writes": [], "verdicts": []},
    })
}

/// A record with a session, these frames, one tick, and an end.
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
    bytes.extend(Encoder::end().unwrap());
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Item>> {
    Reader::new(bytes, "x.jrec")?.collect()
}

#[test]
fn an_entry_of_an_unknown_kind_names_the_version_that_is_needed() {
    let unknown = frame(b"\x81\xa5dream\x01", &[]).unwrap();
    let error = read(&record(&[unknown])).unwrap_err();
    assert!(error.cause.contains("at byte"), "{error}");
    assert!(error.cause.contains("dream"), "{error}");
    assert!(error.remedy.contains("9.8.7"), "{}", error.remedy);
}

#[test]
fn a_later_format_and_a_former_one_are_named() {
    for (format, words) in [(1, "before its first release"), (3, "reads up to 2")] {
        let mut bytes = record(&[]);
        bytes[8] = format;
        let error = read(&bytes).unwrap_err();
        assert!(error.cause.contains(&format!("format {format}")), "{error}");
        assert!(error.cause.contains(words), "{error}");
        assert!(error.remedy.contains("version"), "{}", error.remedy);
    }
}

#[test]
fn an_empty_file_and_one_that_is_no_record_have_errors_of_their_own() {
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
fn nesting_without_end_is_refused() {
    // A tick whose fields are arrays in arrays.
    let deep = Encoder::frame_around(2, &[&b"\x81\xa1x"[..], &vec![0x91; 1 << 20]].concat());
    let error = read(&record(&[deep])).unwrap_err();
    assert!(error.cause.contains("depth"), "{error}");
}

#[test]
fn fields_come_and_go() {
    let mut newer = tick_json(7);
    newer["mood"] = json!("good");
    newer["config"] = json!({"mode": "observe", "haste": 3, "feedback": {"zeal": 1.0}});
    newer["snapshot"]["weather"] = json!([1, 2]);
    newer["plan"]["host"] = json!({"load": 3});
    let given = |tick: &Value| {
        let frame = Encoder::frame_around(2, &rmp_serde::to_vec_named(tick).unwrap());
        match read(&record(&[frame])).unwrap().remove(1) {
            Item::Tick(tick) => tick,
            other => panic!("{other:?}"),
        }
    };
    let tick = given(&newer);
    assert_eq!(tick.count, 7);
    assert_eq!(tick.config.mode, justitia_policy::config::Mode::Observe);
    let older = given(&tick_json(8));
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
