//! Records stay readable. A fixture is never rewritten: a new format gets a new file.

use std::path::{Path, PathBuf};

use crate::simulated::{session, ticks, Run};
use justitia_policy::config::Mode;
use justitia_policy::plan::{Knob, Reason};
use justitia_policy::units::{Bytes, Limit, Weight};
use justitia_policy::Config;
use justitia_record::{Item, Options, Reader, Replayer, Source, Writer};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn read(name: &str) -> Vec<Item> {
    let reader = Reader::open(&fixture(name)).unwrap();
    reader.map(|item| item.unwrap()).collect()
}

#[test]
fn a_record_of_format_2_is_read() {
    let items = read("v2.jrec");
    let Some(Item::Session(session)) = items.first() else {
        panic!("{items:?}")
    };
    assert_eq!(session.written_by, "0.1.0");
    assert_eq!(
        (session.kernel.as_str(), session.source),
        ("6.12.0", Source::Own)
    );
    assert_eq!(items.last(), Some(&Item::End));
    let ticks = ticks(&items);
    assert_eq!(ticks.len(), 20);
    for (tick, count) in ticks.iter().zip(11..) {
        assert_eq!(tick.count, count);
        assert_eq!(tick.config.mode, Mode::Proportional);
        let paths: Vec<&str> = tick.snapshot.groups.iter().map(|g| &g.path[..]).collect();
        assert_eq!(paths, ["/app/2", "/app/3", "/app/4"]);
        assert_eq!(tick.plan.verdicts.len(), 3);
    }
    let last = &ticks[19];
    assert_eq!(
        (last.at_unix_ms, last.elapsed_ns),
        (1_700_000_030_030, 1_002_616_043)
    );
    let heavy = &last.snapshot.groups[2];
    assert_eq!(heavy.weight.map(Weight::get), Some(800));
    assert_eq!(heavy.traffic.read_bytes, Some(699_662_336));
    assert_eq!(heavy.cache.throttled_us, Some(854_124));
    assert_eq!(heavy.knobs.low, Some(Limit::Bytes(Bytes(387_121_152))));
    assert_eq!(heavy.memory.refault_pages, Some(10_048));
    // Numbers that were omitted, and numbers that were not, to the last bit.
    let light = &last.plan.verdicts[0];
    assert_eq!(light.gain.to_bits(), 4_607_391_098_456_694_477);
    assert_eq!(light.bytes_per_s, Some(3_398_980.121_845_108));
    assert_eq!(light.cache.hit_ratio, Some(0.463_942_307_692_307_7));
    assert_eq!(light.threshold, Bytes(48_395_815));
    assert_eq!(last.plan.pv, Some(1.858_974_358_974_359_3));
    let written = ticks.iter().flat_map(|tick| &tick.plan.writes);
    let high = written.filter(|write| write.knob == Knob::MemoryHigh);
    let reasons: Vec<_> = high.map(|write| write.reason).collect();
    assert_eq!(reasons.len(), 5);
    assert!(
        matches!(reasons[0], Reason::AboveShare { .. }),
        "{reasons:?}"
    );
    // Any policy can replay it, if not to the same plans.
    let mut replayer = Replayer::new(Options::as_recorded());
    let steps = ticks.into_iter().map(|tick| replayer.step(tick));
    assert_eq!(
        steps.map(|step| step.plan.verdicts.len()).sum::<usize>(),
        60
    );
}

/// The code that made `v2.jrec`. It refuses to make the file again.
#[test]
#[ignore = "makes the fixture of a new format"]
fn make() {
    let mut run = Run::new(Config::default(), &[100, 400, 800]).counted();
    run.ticks(10);
    let mut writer = Writer::open(&fixture("v2.jrec"), false).unwrap();
    writer.session(&session()).unwrap();
    writer.tick(&run.tick(true)).unwrap();
    for _ in 0..9 {
        writer.tick(&run.tick(false)).unwrap();
    }
    writer.tick(&run.tick(true)).unwrap();
    for _ in 0..9 {
        writer.tick(&run.tick(false)).unwrap();
    }
    writer.finish().unwrap();
}
