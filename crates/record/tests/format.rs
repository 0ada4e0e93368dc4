//! The file: exact, compact, and whole up to where it was cut or damaged.

mod simulated;

use std::fs;
use std::path::Path;

use justitia_policy::Config;
use justitia_record::{Encoder, Existing, Item, Kind, Note, Reader, Session, Source, Tick, Writer};
use proptest::prelude::*;
use simulated::{frames, items, session, ticks, Run};

const EIGHT: [u32; 8] = [100, 200, 300, 400, 500, 600, 700, 800];

fn notes(items: &[Item]) -> Vec<&Note> {
    let notes = items.iter().filter_map(|item| match item {
        Item::Note(note) => Some(note),
        _ => None,
    });
    notes.collect()
}

#[test]
fn ticks_come_back_to_the_last_bit() {
    let mut run = Run::new(Config::default(), &[100, 300, 800]).counted();
    let mut given = run.ticks(70);
    let late = run.add(500);
    given.extend(run.ticks(20));
    run.remove(late);
    given.extend(run.ticks(5));
    given.push(Tick {
        missed: 3,
        ..run.tick(true)
    });
    given.extend(run.ticks(5));
    let bytes = frames(&given).concat();
    let found = ticks(&items(&bytes));
    assert_eq!(found.len(), given.len());
    for (found, given) in found.iter().zip(&given) {
        assert_eq!(found, given);
        // Equality takes -0.0 for 0.0; JSON does not.
        let json = |tick: &Tick| serde_json::to_string(tick).unwrap();
        assert_eq!(json(found), json(given));
    }
}

#[test]
fn a_busy_group_costs_tens_of_bytes_a_tick() {
    for (counted, most) in [(false, 55.0), (true, 75.0)] {
        let mut run = Run::new(Config::default(), &EIGHT);
        if counted {
            run = run.counted();
        }
        let given = run.ticks(125);
        let frames = frames(&given);
        let total: usize = frames[1..].iter().map(Vec::len).sum();
        let each = total as f64 / (given.len() * EIGHT.len()) as f64;
        let key = frames[61].len() as f64 / 8.0;
        let delta = frames[100].len() as f64 / 8.0;
        println!("{each:.1} bytes, keyframe {key:.0}, tick 100 {delta:.1} (counted: {counted})");
        assert!(each < most, "{each} bytes for each group and tick");
    }
}

#[test]
fn idle_groups_cost_next_to_nothing() {
    let mut given = Run::new(Config::default(), &EIGHT).tick(true);
    given.plan.writes.clear();
    let many: Vec<Tick> = (0..50)
        .map(|more| Tick {
            count: given.count + more,
            before: None,
            ..given.clone()
        })
        .collect();
    let frames = frames(&many);
    let last = frames.last().unwrap().len();
    assert!(last < 40, "{last} bytes for eight groups");
}

#[test]
fn a_cut_anywhere_costs_the_last_tick_at_most() {
    let given = Run::new(Config::default(), &[100, 800]).ticks(4);
    let frames = frames(&given);
    let bytes = frames.concat();
    let mut ends: Vec<usize> = Vec::new();
    for frame in &frames {
        ends.push(ends.last().unwrap_or(&0) + frame.len());
    }
    for cut in ends[0]..bytes.len() {
        let found = items(&bytes[..cut]);
        let whole = ends[1..].iter().filter(|&&end| end <= cut).count();
        assert_eq!(ticks(&found), given[..whole], "cut at {cut}");
        let torn = !ends.contains(&cut);
        assert_eq!(notes(&found).len(), usize::from(torn), "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_is_found_and_reading_goes_on_at_the_next_keyframe() {
    let mut run = Run::new(Config::default(), &[100, 800]);
    let mut given = run.ticks(3);
    given.push(run.tick(true));
    given.extend(run.ticks(1));
    let frames = frames(&given);
    let starts: Vec<usize> = frames
        .iter()
        .scan(0, |end, frame| {
            let start = *end;
            *end += frame.len();
            Some(start)
        })
        .collect();
    let bytes = frames.concat();
    let (first, next) = (starts[2], starts[3]);
    for bit in first * 8..next * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = items(&bytes);
        // The second tick is hit, the third builds on it, the fourth is a keyframe.
        let expected = [&given[..1], &given[3..]].concat();
        assert_eq!(ticks(&found), expected, "bit {bit}");
        let expected = Note::Damaged {
            offset: first as u64,
            bytes: (next - first) as u64,
            unusable: 1,
            resumed_at: Some(starts[4] as u64),
        };
        assert_eq!(notes(&found), [&expected], "bit {bit}");
    }
}

#[test]
fn a_frame_that_was_cut_out_is_missed() {
    let given = Run::new(Config::default(), &[100, 800]).ticks(4);
    let mut frames = frames(&given);
    frames.remove(2);
    let found = items(&frames.concat());
    assert_eq!(ticks(&found), given[..1]);
    assert!(matches!(
        notes(&found)[..],
        [Note::Damaged { unusable: 2, .. }]
    ));
}

#[test]
fn going_on_with_a_file_cuts_off_its_torn_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jrec");
    let given = Run::new(Config::default(), &[100, 800]).ticks(6);
    let mut writer = Writer::open(&path, Existing::Refuse).unwrap();
    writer.session(&session()).unwrap();
    given[..3]
        .iter()
        .for_each(|tick| writer.tick(tick).unwrap());
    let length = writer.length();
    assert_eq!(length, fs::metadata(&path).unwrap().len());
    // Killed in the middle of a write.
    drop(writer);
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 7);
    fs::write(&path, &bytes).unwrap();

    let mut writer = Writer::open(&path, Existing::Append).unwrap();
    assert!(writer.dropped() > 0 && writer.length() < length);
    let second = Session {
        source: Source::Agent,
        agent: Some("0.2.0".into()),
        ..session()
    };
    writer.session(&second).unwrap();
    given[3..]
        .iter()
        .for_each(|tick| writer.tick(tick).unwrap());
    writer.finish().unwrap();

    let found: Vec<Item> = Reader::open(&path)
        .unwrap()
        .map(|item| item.unwrap())
        .collect();
    let expected = [&given[..2], &given[3..]].concat();
    assert_eq!(ticks(&found), expected);
    assert!(notes(&found).is_empty());
    let agents: Vec<_> = found
        .iter()
        .filter_map(|item| match item {
            Item::Session(session) => Some(session.agent.as_deref()),
            _ => None,
        })
        .collect();
    assert_eq!(agents, [None, Some("0.2.0")]);
    assert_eq!(found.last(), Some(&Item::End));
}

#[test]
fn nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    fs::write(&path, "precious, and longer than a preamble").unwrap();
    let refused = Writer::open(&path, Existing::Refuse).unwrap_err();
    assert_eq!(refused.kind, Kind::Usage);
    let refused = Writer::open(&path, Existing::Append).unwrap_err();
    assert!(refused.cause.contains("is not a record"), "{refused}");
    assert!(fs::read_to_string(&path).unwrap().starts_with("precious"));
    let record = dir.path().join("a.jrec");
    let _writing = Writer::open(&record, Existing::Refuse).unwrap();
    let refused = Writer::open(&record, Existing::Append).unwrap_err();
    assert!(refused.cause.contains("another recorder"), "{refused}");
}

#[test]
fn a_full_disk_leaves_what_was_recorded() {
    let full = Path::new("/dev/full");
    let refused = Writer::open(full, Existing::Append).unwrap_err();
    assert!(refused.cause.contains("no space left"), "{refused}");
    assert!(refused.remedy.contains("make room"), "{}", refused.remedy);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
        if let Ok(reader) = Reader::new(&bytes[..], "test") {
            reader.count();
        }
        let mut record = Encoder::preamble();
        record.extend(&bytes);
        Reader::new(&record[..], "test").unwrap().count();
        for kind in 1..=4 {
            let mut record = Encoder::preamble();
            record.extend(Encoder::frame_around(kind, &bytes));
            Reader::new(&record[..], "test").unwrap().count();
        }
    }
}

#[test]
fn no_damage_makes_the_reader_panic_or_lie() {
    let given = Run::new(Config::default(), &[100, 800]).ticks(3);
    let bytes = frames(&given).concat();
    let runner = |changes: Vec<(usize, u8)>| {
        let mut bytes = bytes.clone();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        let Ok(reader) = Reader::new(&bytes[..], "test") else {
            return;
        };
        for item in reader.flatten() {
            if let Item::Tick(tick) = item {
                assert!(given.contains(&tick));
            }
        }
    };
    proptest!(|(changes in proptest::collection::vec((0..100_000_usize, any::<u8>()), 1..8))| {
        runner(changes);
    });
}
