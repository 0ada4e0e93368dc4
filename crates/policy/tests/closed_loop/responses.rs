//! Step responses in the closed loop, with the definitions of the lab's `responses`: how fast groups settle
//! near their ideals after an event, and how far they overshoot. A period is a second of the model's time.

use justitia_policy::Color;

use super::colors::{probe, two};
use super::{observe, Config, Load, Rig, FILESERVER};

/// Periods of a window.
const WINDOW: usize = 10;
/// A ratio of bandwidth to its ideal is near within this distance of 1.
const BAND: f64 = 0.2;
/// The same for the effect of a color, which is small.
const COLOR_BAND: f64 = 0.1;
/// Periods between two events.
const PHASE: usize = 60;
const SEEDS: [u64; 5] = [7, 11, 23, 42, 1001];

/// The response of one group, or the worst one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Response {
    /// Periods after which all windows are near; `None`: the last one is not.
    settled: Option<usize>,
    /// Greatest excess since the group first was at its ideal, or beyond it as seen from the first window.
    overshoot: f64,
}

fn response(ratios: &[f64], band: f64) -> Response {
    let far = |ratio: &f64| (ratio - 1.0).abs() > band;
    let settled = ratios.iter().rposition(far).map_or(0, |last| last + 1);
    let above = ratios[0] > 1.0;
    let crossed = ratios.iter().position(|ratio| (*ratio > 1.0) != above);
    let since = &ratios[crossed.unwrap_or(ratios.len())..];
    Response {
        settled: (settled < ratios.len()).then_some(settled),
        overshoot: since.iter().fold(0.0, |most, ratio| most.max(ratio - 1.0)),
    }
}

/// Lets a phase pass; returns the responses of the groups that are there now.
fn responses(rig: &mut Rig) -> Vec<Response> {
    let from = rig.periods.len();
    rig.run(PHASE);
    let weights = rig.host.weights();
    let sum: f64 = weights.iter().copied().map(f64::from).sum();
    let windows = rig.periods[from..].windows(WINDOW);
    let moved: Vec<Vec<f64>> = windows
        .map(|window| {
            let of = |i: usize| window.iter().map(|period| period[i] as f64).sum();
            (0..weights.len()).map(of).collect()
        })
        .collect();
    let ratios = |i: usize| -> Vec<f64> {
        let ideal = f64::from(weights[i]) / sum;
        let ratio = |moved: &Vec<f64>| moved[i] / moved.iter().sum::<f64>() / ideal;
        moved.iter().map(ratio).collect()
    };
    (0..weights.len())
        .map(|i| response(&ratios(i), BAND))
        .collect()
}

/// The slowest group's settling time, and the greatest overshoot.
fn worst(responses: &[Response]) -> Response {
    let settled: Option<Vec<usize>> = responses.iter().map(|one| one.settled).collect();
    Response {
        settled: settled.and_then(|all| all.into_iter().max()),
        overshoot: responses
            .iter()
            .fold(0.0, |most, one| most.max(one.overshoot)),
    }
}

/// The responses to a start from equal shares, a newcomer, a new weight and a departure, in that order.
fn steps(load: Load, seed: u64) -> [Vec<Response>; 4] {
    let mut rig = Rig::with(without_watch(), &[100, 200, 300, 500, 600, 700, 800], load);
    rig.host.seed = seed;
    let ids: Vec<u64> = rig.host.snapshot().groups.iter().map(|g| g.id.0).collect();
    let start = responses(&mut rig);
    rig.host.add(400, load);
    let newcomer = responses(&mut rig);
    rig.host.set_weight(ids[0], 800);
    let weight = responses(&mut rig);
    rig.host.remove(ids[6]);
    [start, newcomer, weight, responses(&mut rig)]
}

/// Without the watch, whose suspensions would be further events.
fn without_watch() -> Config {
    Config {
        max_loss: 0.0,
        ..Config::default()
    }
}

/// Prints the worst response to each event over the seeds, and returns it.
fn worst_over_seeds(load: Load) -> [Response; 4] {
    let mut all = [const { Vec::new() }; 4];
    for seed in SEEDS {
        for (all, seen) in all.iter_mut().zip(steps(load, seed)) {
            all.extend(seen);
        }
    }
    let worst = all.map(|all| worst(&all));
    let names = ["start", "newcomer", "weight", "departure"];
    for (name, one) in names.iter().zip(&worst) {
        let settled = one
            .settled
            .map_or("not settled".into(), |s| format!("{s} s"));
        println!("{load:?} {name}: {settled}, overshoot {:.2}", one.overshoot);
    }
    worst
}

/// The bounds are about twice the worst of the seeds.
#[test]
fn all_groups_settle_after_each_event() {
    for load in [Load::Write, FILESERVER] {
        let [start, others @ ..] = worst_over_seeds(load);
        assert!(
            start.settled.is_some_and(|settled| settled <= 20),
            "{start:?}"
        );
        assert!(start.overshoot < 0.6, "{start:?}");
        for other in others {
            assert!(
                other.settled.is_some_and(|settled| settled <= 8),
                "{other:?}"
            );
            assert!(other.overshoot < 0.35, "{other:?}");
        }
    }
}

#[test]
fn without_justitia_no_event_moves_bandwidth_to_the_weights() {
    let mut rig = Rig::with(observe(), &[100, 200, 400, 800], FILESERVER);
    assert_eq!(worst(&responses(&mut rig)).settled, None);
    rig.host.add(400, FILESERVER);
    assert_eq!(worst(&responses(&mut rig)).settled, None);
}

/// The ideal by weight stays the same when a color changes, so a color's response is measured against the
/// bandwidth in the end.
#[test]
fn a_red_group_settles_at_what_the_satisfied_one_lends() {
    for seed in SEEDS {
        let (mut rig, hungry, sated) = two(without_watch());
        rig.host.seed = seed;
        rig.run(PHASE);
        let from = rig.periods.len();
        rig.host.declare(hungry, Some(Color::Red));
        for _ in 0..2 * PHASE {
            probe(&mut rig, sated);
            rig.period();
        }
        let end = rig.rates(40)[0];
        let windows = rig.periods[from..].windows(WINDOW);
        let mean =
            |window: &[Vec<u64>]| window.iter().map(|p| p[0] as f64).sum::<f64>() / WINDOW as f64;
        let ratios: Vec<f64> = windows.map(|window| mean(window) / end).collect();
        let seen = response(&ratios, COLOR_BAND);
        assert!(ratios[0] < 1.0 - COLOR_BAND, "a color has an effect");
        println!(
            "red, seed {seed}: {seen:?}, from {:.2} of its bandwidth in the end",
            ratios[0]
        );
        assert!(
            seen.settled.is_some_and(|settled| settled <= 22),
            "{seen:?}"
        );
    }
}
