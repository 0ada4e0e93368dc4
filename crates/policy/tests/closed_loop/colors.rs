//! Colors in the closed loop: the gain from true declarations, and the cost of false ones.

use justitia_policy::plan::{Knob, Verdict};
use justitia_policy::snapshot::Snapshot;
use justitia_policy::Color;

use super::*;

/// A file of 750 MiB.
const TOO_LARGE: u64 = 12_000;

/// Two readers on a host of 600 MiB: one wants all of a file; the other filled 300 MiB and needs only 80 MiB
/// from now on. Returns the rig and their IDs.
pub(super) fn two(config: Config) -> (Rig, u64, u64) {
    let mut rig = Rig::new(config);
    let hungry = rig.host.add(100, Load::Read { chunks: TOO_LARGE });
    let sated = rig.host.add(100, Load::Idle);
    rig.host.fill(sated, 0..4800);
    rig.host.set_load(sated, Load::Read { chunks: 1280 });
    (rig, hungry, sated)
}

fn memoplight() -> Config {
    Config::in_mode(Mode::Memoplight)
}

fn verdict(rig: &Rig, id: u64) -> &Verdict {
    let mut verdicts = rig.last.verdicts.iter();
    verdicts.find(|v| v.group.0 == id).expect("a verdict")
}

fn held(snapshot: &Snapshot, id: u64) -> Bytes {
    let mut groups = snapshot.groups.iter();
    let group = groups.find(|g| g.id.0 == id).expect("a group");
    group.memory.file.expect("the model knows")
}

/// A probe of the second group, which is red while it reads clearly less than memory could deliver.
pub(super) fn probe(rig: &mut Rig, id: u64) {
    let rate = rig.periods.last().map_or(0, |moved| moved[1]);
    let color = if rate < 170_000_000 {
        Color::Red
    } else {
        Color::Green
    };
    rig.host.declare(id, Some(color));
}

#[test]
fn the_satisfied_lend_to_the_red_and_stay_well() {
    let (mut silent, _, _) = two(Config::default());
    silent.run(120);
    let (mut rig, hungry, sated) = two(Config::default());
    rig.host.declare(hungry, Some(Color::Red));
    let mut well = 0;
    for second in 0..120 {
        probe(&mut rig, sated);
        rig.period();
        let color = verdict(&rig, sated).color;
        well += usize::from(second >= 60 && color == Color::Green);
    }
    let (with, without) = (rig.rates(40), silent.rates(40));
    assert!(with[0] > 1.1 * without[0], "{with:?} {without:?}");
    assert!(with[1] > 0.9 * without[1], "{with:?} {without:?}");
    assert!(well >= 54, "well for {well} of 60 s");
}

#[test]
fn the_working_set_is_learned_and_kept() {
    let (mut rig, hungry, sated) = two(Config::default());
    rig.host.declare(hungry, Some(Color::Red));
    for _ in 0..150 {
        probe(&mut rig, sated);
        rig.period();
    }
    let learned = verdict(&rig, sated)
        .working_set
        .expect("it was taken too far once");
    assert!(
        learned > Bytes::mib(20) && learned < Bytes::mib(110),
        "{learned}"
    );
    assert_eq!(verdict(&rig, hungry).working_set, None);
}

#[test]
fn memoplight_reclaims_from_the_satisfied_only_and_sets_nothing() {
    let (mut rig, hungry, sated) = two(memoplight());
    rig.host.declare(hungry, Some(Color::Green));
    rig.host.declare(sated, Some(Color::Green));
    rig.run(15);
    assert!(rig.last.writes.is_empty(), "nobody needs more");
    rig.host.declare(hungry, Some(Color::Red));
    let before = held(&rig.host.snapshot(), sated);
    for _ in 0..20 {
        rig.period();
        let mut writes = rig.last.writes.iter();
        assert!(writes.all(|w| w.knob == Knob::MemoryReclaim && w.group.0 == sated));
    }
    let after = held(&rig.host.snapshot(), sated);
    assert!(after < before.scale(0.75), "{before} -> {after}");
    rig.host.declare(hungry, Some(Color::Green));
    rig.run(1);
    assert!(rig.last.writes.is_empty(), "nobody needs more");
}

/// Bandwidth of two victims, one of which is red, beside a liar that declares `lie(second)`, in mode
/// `proportional`.
fn beside(liar: Load, victim: Load, lie: &dyn Fn(usize) -> Option<Color>) -> f64 {
    let mut rig = Rig::new(Config::default());
    let honest = rig.host.add(100, victim);
    let liar = rig.host.add(100, liar);
    rig.host.add(100, victim);
    rig.host.declare(honest, Some(Color::Red));
    for second in 0..50 {
        rig.host.declare(liar, lie(second));
        rig.period();
    }
    let rates = rig.rates(30);
    rates[0] + rates[2]
}

/// A file of 250 MiB: three of them do not fit.
const READER: Load = Load::Read { chunks: 4000 };

#[test]
fn a_lie_about_a_color_harms_nobody_else() {
    let flapping = |second: usize| {
        Some(if second % 2 == 0 {
            Color::Green
        } else {
            Color::Red
        })
    };
    for (liar, victim) in [(READER, FILESERVER), (FILESERVER, READER)] {
        let honest = beside(liar, victim, &|_| None);
        let red = beside(liar, victim, &|_| Some(Color::Red)) / honest;
        let green = beside(liar, victim, &|_| Some(Color::Green)) / honest;
        let flapping = beside(liar, victim, &flapping) / honest;
        for (lie, ratio) in [("red", red), ("green", green), ("flapping", flapping)] {
            assert!(ratio > 0.98, "{liar:?} {victim:?} {lie}: {ratio}");
        }
    }
}

#[test]
fn a_red_group_that_wants_nothing_takes_nothing() {
    let mut rig = Rig::new(Config::default());
    let liar = rig.host.add(10_000, Load::Idle);
    let green = rig.host.add(100, Load::Read { chunks: 3200 });
    rig.run(30);
    let before = rig.rates(10)[1];
    rig.host.declare(liar, Some(Color::Red));
    rig.host.declare(green, Some(Color::Green));
    rig.run(90);
    let after = rig.rates(30)[1];
    assert!(after > 0.95 * before, "{before} {after}");
}

#[test]
fn everything_comes_back_once_nobody_is_red() {
    let (mut rig, hungry, sated) = two(Config::default());
    rig.host.declare(hungry, Some(Color::Red));
    rig.host.declare(sated, Some(Color::Green));
    rig.run(60);
    assert!(verdict(&rig, sated).cap.is_some());
    rig.host.declare(hungry, Some(Color::Green));
    rig.host.set_load(hungry, Load::Idle);
    rig.run(120);
    assert_eq!(verdict(&rig, sated).cap, None);
    let snapshot = rig.host.snapshot();
    assert!(snapshot
        .groups
        .iter()
        .all(|g| g.knobs.high == Some(Limit::Max)));
}
