//! The objective (SLO), and the color of one measurement under it. Pure.
//!
//! Green: the objective is met and nothing waits. Yellow: met, but work waits. Red: missed (MemOpLight,
//! section IV-A). Three rules follow from what can be known:
//!
//! - **Little work is not bad work.** A throughput objective counts as missed only while work waits: when
//!   nothing waits, all the work there is has been done, however little it was. (The paper's probe does the
//!   same: with low load, handling that load is green.) A target that does not tell whether work waits cannot
//!   miss a throughput objective.
//! - **Unknown is not bad, and not zero.** A value that was not measured is not held against the target. A
//!   target that does not tell what waits is never yellow for it (the paper's web server).
//! - **The objective is where a miss ends, not where it begins.** The objective counts as missed once it is
//!   missed by more than `slack`. Once red, it must be met in full. In between, the color stays (hysteresis).

use std::time::Duration;

use justitia_args::probe::Threshold;
use justitia_policy::color::Color;

use crate::measure::Measurement;
use crate::words::{number, time};

/// True if a value is beyond a limit by more than `slack`, a fraction of the limit.
fn is_beyond(limit: Threshold, value: f64, slack: f64) -> bool {
    match limit {
        Threshold::Above(limit) => value > limit + limit.abs() * slack,
        Threshold::Below(limit) => value < limit - limit.abs() * slack,
    }
}

/// A limit in words.
fn limit_words(limit: Threshold) -> String {
    match limit {
        Threshold::Above(limit) => format!("over {}", number(limit)),
        Threshold::Below(limit) => format!("under {}", number(limit)),
    }
}

/// The performance that the application is to reach.
#[derive(Debug, Clone, PartialEq)]
pub struct Objective {
    /// Work per second, while work waits.
    pub min_per_second: Option<f64>,
    /// Longest time that work may take.
    pub max_latency: Option<Duration>,
    /// Work waits if more than this is waiting.
    pub max_waiting: f64,
    /// Beyond this limit, the target's own number is red.
    pub red: Option<Threshold>,
    /// Beyond this limit, the target's own number is yellow.
    pub yellow: Option<Threshold>,
    /// Fraction of a limit by which it must be missed before that counts.
    pub slack: f64,
}

impl Default for Objective {
    fn default() -> Objective {
        Objective {
            min_per_second: None,
            max_latency: None,
            max_waiting: 0.0,
            red: None,
            yellow: None,
            slack: 0.05,
        }
    }
}

/// The order of badness: green 0, yellow 1, red 2.
pub fn badness(color: Color) -> u8 {
    color as u8
}

/// The worse of two colors.
pub fn worse(one: Color, other: Color) -> Color {
    if badness(one) >= badness(other) {
        one
    } else {
        other
    }
}

impl Objective {
    /// The color of one measurement, given the color that is declared `now`.
    pub fn color(&self, seen: &Measurement, now: Color) -> Color {
        let said = seen.color.unwrap_or(Color::Green);
        let to_red = self.slack_towards(Color::Red, now);
        let to_yellow = self.slack_towards(Color::Yellow, now);
        let crossed = |limit: Option<Threshold>, slack: f64| {
            limit
                .zip(seen.value)
                .is_some_and(|(limit, value)| is_beyond(limit, value, slack))
        };
        let ours = if self.too_slow(seen, to_red)
            || self.too_little(seen, to_red)
            || crossed(self.red, to_red)
        {
            Color::Red
        } else if self.waits(seen) || crossed(self.yellow, to_yellow) {
            Color::Yellow
        } else {
            Color::Green
        };
        worse(said, ours)
    }

    /// The slack applies only until the color is that bad.
    fn slack_towards(&self, color: Color, now: Color) -> f64 {
        if badness(now) < badness(color) {
            self.slack
        } else {
            0.0
        }
    }

    fn too_slow(&self, seen: &Measurement, slack: f64) -> bool {
        self.max_latency
            .zip(seen.latency_seconds)
            .is_some_and(|(max, latency)| latency > max.as_secs_f64() * (1.0 + slack))
    }

    fn too_little(&self, seen: &Measurement, slack: f64) -> bool {
        let little = self
            .min_per_second
            .zip(seen.per_second)
            .is_some_and(|(min, rate)| rate < min * (1.0 - slack));
        little && self.waits(seen)
    }

    fn waits(&self, seen: &Measurement) -> bool {
        seen.waiting
            .is_some_and(|waiting| waiting > self.max_waiting)
    }

    /// The measurement and the objective, in words.
    pub fn describe(&self, seen: &Measurement) -> String {
        let mut parts = Vec::new();
        if let Some(latency) = seen.latency_seconds {
            parts.push(match self.max_latency {
                Some(max) => format!("latency {} of {}", time(latency), time(max.as_secs_f64())),
                None => format!("latency {}", time(latency)),
            });
        }
        if let Some(rate) = seen.per_second {
            parts.push(match self.min_per_second {
                Some(min) => format!("{}/s of {}", number(rate), number(min)),
                None => format!("{}/s", number(rate)),
            });
        }
        if let Some(waiting) = seen.waiting {
            parts.push(format!("{waiting:.0} waiting"));
        }
        if let Some(value) = seen.value {
            let limit = match (self.red, self.yellow) {
                (Some(red), _) if is_beyond(red, value, 0.0) => format!(" ({})", limit_words(red)),
                (_, Some(yellow)) if is_beyond(yellow, value, 0.0) => {
                    format!(" ({})", limit_words(yellow))
                }
                _ => String::new(),
            };
            parts.push(format!("value {}{limit}", number(value)));
        }
        if let Some(color) = seen.color {
            parts.push(format!("says {color}"));
        }
        if let Some(note) = &seen.note {
            parts.push(note.clone());
        }
        if parts.is_empty() {
            parts.push("answers".to_owned());
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests;
