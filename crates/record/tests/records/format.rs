//! The file is exact and compact, and whole up to a cut or damage.

use std::fs;
use std::path::Path;

use crate::simulated::{frames, items, session, ticks, Run};
use justitia_policy::Config;
use justitia_record::{Encoder, Item, Note, Reader, Session, Source, Tick, Writer};
use justitia_report::Exit;
use proptest::prelude::*;

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
        // Equality takes -0.0 for 0.0, but JSON does not.
        let json = |tick: &Tick| serde_json::to_string(tick).unwrap();
        assert_eq!(json(found), json(given));
    }
}

/// CPU time of this thread.
fn cpu_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// Bytes per group and tick.
fn cost(groups: usize, counted: bool, count: usize) -> f64 {
    let weights: Vec<u32> = EIGHT.into_iter().cycle().take(groups).collect();
    let mut run = Run::new(Config::default(), &weights);
    if counted {
        run = run.counted();
    }
    let given = run.ticks(count);
    let began = cpu_ms();
    let frames = frames(&given);
    let wrote = cpu_ms() - began;
    let bytes = frames.concat();
    let began = cpu_ms();
    assert_eq!(items(&bytes).len(), 1 + count);
    let read = cpu_ms() - began;
    let total: usize = frames[1..].iter().map(Vec::len).sum();
    let each = total as f64 / (count * groups) as f64;
    println!(
        "{groups} groups, counted {counted}: {each:.1} bytes each; a tick is written in {:.3} ms of CPU, read in {:.3}",
        wrote / count as f64,
        read / count as f64
    );
    each
}

#[test]
fn a_busy_group_costs_some_hundred_bytes_a_tick() {
    for (counted, most) in [(false, 92.0), (true, 190.0)] {
        let each = cost(8, counted, 125);
        assert!(each < most, "{each} bytes for each group and tick");
    }
}

#[test]
#[ignore = "a measurement of minutes: run it with --release --nocapture"]
fn many_groups_cost_less_each() {
    for counted in [false, true] {
        let each = cost(200, counted, 125);
        assert!(
            each < cost(8, counted, 125),
            "{each} bytes for each group and tick"
        );
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
    assert!(last < 60, "{last} bytes for eight groups");
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
fn a_flipped_bit_changes_nothing_or_is_found_and_reading_goes_on_at_the_next_key_frame() {
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
    let mut found_out = 0;
    let hit = starts[2] * 8..starts[3] * 8;
    for bit in hit.clone() {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = items(&bytes);
        if ticks(&found) == given {
            // zstd has more than one way to write some contents.
            continue;
        }
        found_out += 1;
        // The second tick is hit, the third builds on it, the fourth is a key frame.
        let expected = [&given[..1], &given[3..]].concat();
        assert_eq!(ticks(&found), expected, "bit {bit}");
        let expected = Note::Damaged {
            offset: starts[2] as u64,
            bytes: (starts[4] - starts[2]) as u64,
        };
        assert_eq!(notes(&found), [&expected], "bit {bit}");
    }
    assert!(found_out > hit.len() * 9 / 10, "{found_out} bits");
}

#[test]
fn a_frame_that_was_cut_out_is_missed() {
    let mut run = Run::new(Config::default(), &[100, 800]);
    let mut given = run.ticks(4);
    given.push(run.tick(true));
    let mut frames = frames(&given);
    frames.remove(2);
    let found = items(&frames.concat());
    assert_eq!(ticks(&found), [given[0].clone(), given[4].clone()]);
    assert!(matches!(notes(&found)[..], [Note::Damaged { .. }]));
}

#[test]
fn going_on_with_a_file_cuts_off_its_torn_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jrec");
    let given = Run::new(Config::default(), &[100, 800]).ticks(6);
    let mut writer = Writer::open(&path, false).unwrap();
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

    let mut writer = Writer::open(&path, true).unwrap();
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
    let refused = Writer::open(&path, false).unwrap_err();
    assert_eq!(refused.exit, Exit::Usage);
    let refused = Writer::open(&path, true).unwrap_err();
    assert!(refused.cause.contains("is not a record"), "{refused}");
    assert!(fs::read_to_string(&path).unwrap().starts_with("precious"));
    let record = dir.path().join("a.jrec");
    let _writing = Writer::open(&record, false).unwrap();
    let refused = Writer::open(&record, true).unwrap_err();
    assert!(refused.cause.contains("another recorder"), "{refused}");
}

#[test]
fn a_full_disk_leaves_what_was_recorded() {
    let full = Path::new("/dev/full");
    let refused = Writer::open(full, true).unwrap_err();
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
        for kind in 0..3 {
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
