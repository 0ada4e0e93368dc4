//! The feedback loop: gains that turn page shares into bandwidth shares.
//!
//! Page counts are only a proxy for bandwidth. The proxy is good for a group that writes more than it hits:
//! the kernel bounds the dirty pages of a cgroup by a fraction of the page cache that it may hold
//! (`mm/page-writeback.c`, `mdtc_calc_avail`), and the device serves cgroups in the ratio of their pages
//! under writeback. Bandwidth therefore follows the page share with a gain near one. The loop corrects the
//! remaining error. Each participant has a gain on its share:
//!
//! ```text
//! x_i   = b_i / ideal_i                 ideal: weighted water-filling of the summed bandwidth
//! e_i   = clamp(1 - x_i, -1, 1)         relative error; its time integral is the lag behind the
//!                                       ideal in seconds of service, which is to become zero
//! ln g_i = proportional * filtered(e_i) + integral_per_s * sum(p_i e_i dt)
//! p_i    = ALTERNATING + (1 - ALTERNATING) * |filtered(e_i)| / filtered(|e_i|)
//! ```
//!
//! `p_i` is the persistence of the error. It is there because the plant is steep: a group runs free below its
//! dirty limit and waits at it. An error that keeps its sign is corrected fast. An error that changes its
//! sign is caused by the loop itself and is followed slowly.
//!
//! Properties:
//! - Only ratios of gains matter, so the integrals are centered.
//! - The integral stops where the actuator stops (anti-windup): at the gain limit, and for a participant that
//!   leaves its share unused or stands at its floor. It also stops inside the dead band, and while the watch has
//!   withdrawn all that carries gains to the disk.
//! - A participant that leaves its share unused counts with what it takes, and the rest is divided among the
//!   others. No group is slowed down to the rate of a group that cannot use more.
//! - A participant that pauses keeps its integral for its return.
//! - Time constants are in seconds, so a period of up to [`LONGEST_S`] does not matter. A longer one converges more
//!   slowly.
//!
//! Left out: which groups take part, and what a gain is multiplied with (`order.rs`).

use serde::{Deserialize, Serialize};

use crate::config::FeedbackConfig;

/// Factor on the integral's speed for an error that changes its sign all the time.
const ALTERNATING: f64 = 0.15;
/// The integral moves by at most these seconds of error in one period. The gain acts only after it, and a longer
/// move would overshoot.
const LONGEST_S: f64 = 5.0;

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Controller {
    /// Lag behind the ideal, seconds of service, bounded.
    integral_s: f64,
    /// The relative error through a first-order filter.
    filtered_error: f64,
    /// Its absolute value through the same filter.
    filtered_magnitude: f64,
    /// `x_i`, bandwidth over ideal bandwidth, through the same filter, for display; `None` before the first
    /// adjustment.
    pub filtered_of_ideal: Option<f64>,
    ln_gain: f64,
}

impl Controller {
    /// The factor on the group's share.
    pub(crate) fn gain(&self) -> f64 {
        self.ln_gain.exp()
    }

    /// The persistence `p_i`: how far errors keep their sign, `ALTERNATING` to 1.
    fn persistence(&self) -> f64 {
        let same_sign = self.filtered_error.abs() / self.filtered_magnitude.max(1e-9);
        ALTERNATING + (1.0 - ALTERNATING) * same_sign.min(1.0)
    }
}

/// Measurements of one participant in the last period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    /// Its share of the participants' weight; the shares need not sum to one.
    pub weight: f64,
    /// Its bandwidth in any unit common to all.
    pub rate: f64,
    /// It leaves part of its share unused: a larger one would not make it faster.
    pub unused: bool,
    /// It stands at its floor: a smaller share cannot be enforced.
    pub at_floor: bool,
    /// Nothing carries the gain to the disk: the error says nothing about it.
    pub held: bool,
}

/// Moves every controller by one period of `elapsed_s` seconds. Shapes: one measurement for each
/// controller, in the same order. Without bandwidth nothing moves.
pub(crate) fn adjust(
    controllers: &mut [&mut Controller],
    measured: &[Measured],
    config: &FeedbackConfig,
    elapsed_s: f64,
) {
    let Some(ideal) = ideal_rates(measured) else {
        return;
    };
    let smooth = 1.0 - (-elapsed_s / config.smoothing_s.max(1e-3)).exp();
    let ln_limit = config.gain_limit.max(1.0).ln();
    let bound_s = ln_limit / config.integral_per_s.max(1e-6);

    for ((controller, m), ideal) in controllers.iter_mut().zip(measured).zip(&ideal) {
        let of_ideal = if *ideal > 0.0 { m.rate / ideal } else { 1.0 };
        let error = (1.0 - of_ideal).clamp(-1.0, 1.0);
        controller.filtered_error += smooth * (error - controller.filtered_error);
        controller.filtered_magnitude += smooth * (error.abs() - controller.filtered_magnitude);
        let before = controller.filtered_of_ideal.unwrap_or(of_ideal);
        controller.filtered_of_ideal = Some(before + smooth * (of_ideal - before));
        let stuck = m.held || (error > 0.0 && m.unused) || (error < 0.0 && m.at_floor);
        if !stuck && controller.filtered_error.abs() > config.dead_band {
            let moved = error * elapsed_s.min(LONGEST_S) * controller.persistence();
            controller.integral_s = (controller.integral_s + moved).clamp(-bound_s, bound_s);
        }
    }
    centre(controllers, measured);
    for controller in controllers.iter_mut() {
        controller.ln_gain = (config.proportional * controller.filtered_error
            + config.integral_per_s * controller.integral_s)
            .clamp(-ln_limit, ln_limit);
    }
}

/// Subtracts the weighted mean from the integrals, so that they do not all drift to one limit. Only ratios of
/// gains matter.
fn centre(controllers: &mut [&mut Controller], measured: &[Measured]) {
    let weight: f64 = measured.iter().map(|m| m.weight).sum();
    if weight <= 0.0 {
        return;
    }
    let pairs = controllers.iter().zip(measured);
    let sum: f64 = pairs.map(|(c, m)| m.weight * c.integral_s).sum();
    let mean = sum / weight;
    for controller in controllers.iter_mut() {
        controller.integral_s -= mean;
    }
}

/// Weighted water-filling of the summed rate, in which a participant that leaves its share unused counts with
/// what it takes. `None` if nothing moved or no participant has weight.
fn ideal_rates(measured: &[Measured]) -> Option<Vec<f64>> {
    let mut rate: f64 = measured.iter().map(|m| m.rate).sum();
    let mut weight: f64 = measured.iter().map(|m| m.weight).sum();
    if rate <= 0.0 || weight <= 0.0 {
        return None;
    }
    let mut satisfied = vec![false; measured.len()];
    loop {
        let level = rate / weight;
        let next = (0..measured.len()).find(|&i| {
            let m = &measured[i];
            !satisfied[i] && m.unused && m.rate < level * m.weight
        });
        let Some(i) = next else { break };
        satisfied[i] = true;
        rate -= measured[i].rate;
        weight -= measured[i].weight;
        if weight <= 0.0 {
            return None;
        }
    }
    let level = rate / weight;
    let ideal =
        |(m, satisfied): (&Measured, bool)| if satisfied { m.rate } else { level * m.weight };
    Some(measured.iter().zip(satisfied).map(ideal).collect())
}

#[cfg(test)]
mod tests;
