//! The loop alone, on plants so simple that the right answer is known.

use proptest::prelude::*;

use super::*;

/// A participant that could use more and could get less.
fn measured(weight: f64, rate: f64) -> Measured {
    Measured {
        weight,
        rate,
        unused: false,
        at_floor: false,
        held: false,
    }
}

/// Bandwidth follows `weight * gain * bias`, normalized. The loop must find `bias`.
fn run(weights: &[f64], bias: &[f64], periods: usize, period_s: f64) -> (Vec<f64>, Vec<f64>) {
    let config = FeedbackConfig::default();
    let mut controllers = vec![Controller::default(); weights.len()];
    let mut rates = plant(weights, bias, &controllers);
    for _ in 0..periods {
        let measured: Vec<Measured> = weights
            .iter()
            .zip(&rates)
            .map(|(&weight, &rate)| measured(weight, rate))
            .collect();
        let mut refs: Vec<&mut Controller> = controllers.iter_mut().collect();
        adjust(&mut refs, &measured, &config, period_s);
        rates = plant(weights, bias, &controllers);
    }
    (rates, controllers.iter().map(Controller::gain).collect())
}

fn plant(weights: &[f64], bias: &[f64], controllers: &[Controller]) -> Vec<f64> {
    let pull: Vec<f64> = weights
        .iter()
        .zip(bias)
        .zip(controllers)
        .map(|((w, b), c)| w * b * c.gain())
        .collect();
    let sum: f64 = pull.iter().sum();
    pull.iter().map(|p| 60e6 * p / sum).collect()
}

fn share_error(weights: &[f64], rates: &[f64]) -> f64 {
    let weights: Vec<u32> = weights.iter().map(|&w| w as u32).collect();
    crate::metrics::share_error(&weights, rates).unwrap()
}

proptest! {
    #[test]
    fn any_bias_of_the_plant_within_reach_is_corrected(
        groups in prop::collection::vec((1u32..50, 0.6f64..1.6), 2..10),
        period_s in prop_oneof![0.25f64..2.0, 2.0f64..60.0],
    ) {
        let weights: Vec<f64> = groups.iter().map(|g| f64::from(g.0) * 100.0).collect();
        let bias: Vec<f64> = groups.iter().map(|g| g.1).collect();
        let periods = (120.0 / period_s).max(60.0) as usize;
        let (rates, gains) = run(&weights, &bias, periods, period_s);
        prop_assert!(share_error(&weights, &rates) < 0.03, "{rates:?}");
        let limit = FeedbackConfig::default().gain_limit * 1.0001;
        prop_assert!(gains.iter().all(|g| (1.0 / limit..=limit).contains(g)), "{gains:?}");
    }
}

#[test]
fn equal_groups_are_left_alone() {
    let (_, gains) = run(&[100.0; 4], &[1.0; 4], 50, 1.0);
    assert!(gains.iter().all(|g| (g - 1.0).abs() < 1e-9), "{gains:?}");
}

#[test]
fn nobody_is_levelled_down_to_someone_who_cannot_use_more() {
    // The heavy group takes a tenth of its share and cannot take more.
    let measured = [
        Measured {
            unused: true,
            ..measured(800.0, 8.0)
        },
        measured(100.0, 46.0),
        measured(100.0, 46.0),
    ];
    let mut controllers = [Controller::default(); 3];
    let mut refs: Vec<&mut Controller> = controllers.iter_mut().collect();
    for _ in 0..100 {
        adjust(&mut refs, &measured, &FeedbackConfig::default(), 1.0);
    }
    assert!(
        controllers.iter().all(|c| (c.gain() - 1.0).abs() < 1e-9),
        "{controllers:?}"
    );
}

#[test]
fn the_integral_does_not_wind_up_beyond_what_the_gain_may_reach() {
    let config = FeedbackConfig::default();
    let mut controllers = [Controller::default(); 2];
    let starved = [(1.0, 0.0), (1.0, 10.0)];
    let fed = [(1.0, 6.0), (1.0, 4.0)];
    let mut step = |rates: [(f64, f64); 2], n| {
        for _ in 0..n {
            let measured = rates.map(|(weight, rate)| measured(weight, rate));
            let mut refs: Vec<&mut Controller> = controllers.iter_mut().collect();
            adjust(&mut refs, &measured, &config, 1.0);
        }
        controllers[0].gain()
    };
    let after_hours = step(starved, 10_000);
    assert!(after_hours <= config.gain_limit * 1.0001);
    assert!(step(fed, 20) < after_hours, "the way back begins at once");
}

#[test]
fn nothing_moves_without_bandwidth() {
    let mut controller = Controller::default();
    let idle = [measured(1.0, 0.0)];
    adjust(
        &mut [&mut controller],
        &idle,
        &FeedbackConfig::default(),
        1.0,
    );
    assert_eq!(controller, Controller::default());
}
