//! Makes one color of many measurements, so that one slow request does not flap it (the paper names this as
//! future work). Pure; time is counted in periods.
//!
//! There are two steps. The *window* is the last `n` measurements (odd, 5 unless configured). Each has its
//! color under the objective, and the color of the window is the k-th worst of them, k = (n + 1) / 2: the
//! median. The *declared* color is the worst color that the window had in the last `n` periods. This has four
//! effects, with the numbers for n = 5:
//!
//! - fewer than k (3) bad measurements within any n (5) change nothing;
//! - a step to worse is followed after k (3) periods;
//! - a step to better is followed after k + n - 1 (7) periods: memory is given away late and asked for early;
//! - after the color got worse, it does not get better for n (5) periods, whatever the input; input that
//!   alternates every k (3) periods or faster settles at its worse color.
//!
//! The color starts red (the paper), until n + k - 1 measurements say otherwise. A measurement without a
//! value does not hold that value against the target. An idle period leaves the window as it is, because work
//! may come in bursts; only after [`MOST_IDLE`] of them does idleness count, as a measurement without a value.
//! After a gap of n periods without a measurement, the earlier ones are worthless, and the judge starts again.

use std::collections::VecDeque;

use justitia_policy::color::Color;

use crate::measure::Measurement;
use crate::objective::{badness, worse, Objective};

/// Idle periods in a row that say nothing.
const MOST_IDLE: usize = 60;

/// The color to declare, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub color: Color,
    /// The measurement that decided it, in words.
    pub reason: String,
}

#[derive(Debug, Clone)]
pub struct Judge {
    objective: Objective,
    window: usize,
    seen: VecDeque<Measurement>,
    /// Colors that the window had, latest last, each with its reason.
    had: VecDeque<Verdict>,
    declared: Color,
    missed: usize,
    /// Idle periods in a row.
    idle: usize,
}

impl Judge {
    /// A judge without measurements. An even window is made odd.
    pub fn new(objective: Objective, window: usize) -> Judge {
        Judge {
            objective,
            window: window | 1,
            seen: VecDeque::new(),
            had: VecDeque::new(),
            declared: Color::Red,
            missed: 0,
            idle: 0,
        }
    }

    /// Takes the measurement of a period, and returns what to declare in it.
    pub fn judge(&mut self, seen: Measurement) -> Verdict {
        self.missed = 0;
        self.idle = if seen.idle { self.idle + 1 } else { 0 };
        let filling = self.seen.len() < self.window;
        if filling || !(1..=MOST_IDLE).contains(&self.idle) {
            push(&mut self.seen, seen, self.window);
        }
        let window = self.of_window();
        push(&mut self.had, window, self.window);
        let verdict = self.verdict();
        self.declared = verdict.color;
        verdict
    }

    /// A period without a measurement: nothing to declare.
    pub fn miss(&mut self) {
        self.missed += 1;
        if self.missed >= self.window {
            self.seen.clear();
            self.had.clear();
            self.declared = Color::Red;
        }
    }

    /// The k-th worst measurement. Places that are not filled yet count as red.
    fn of_window(&self) -> Verdict {
        let mut colors: Vec<(Color, usize)> = self
            .seen
            .iter()
            .enumerate()
            .map(|(place, seen)| (self.objective.color(seen, self.declared), place))
            .collect();
        // Worst first; among equals, the latest gives the reason.
        colors.sort_by_key(|&(color, place)| std::cmp::Reverse((badness(color), place)));
        let empty = self.window - self.seen.len();
        let middle = self.window / 2;
        let starting = || Verdict {
            color: Color::Red,
            reason: "starting".to_owned(),
        };
        let Some(&(color, _)) = middle.checked_sub(empty).and_then(|k| colors.get(k)) else {
            return starting();
        };
        let speaks = colors.iter().find(|(of, _)| *of == color);
        let seen = speaks.and_then(|&(_, place)| self.seen.get(place));
        seen.map_or_else(starting, |seen| Verdict {
            color,
            reason: self.objective.describe(seen),
        })
    }

    /// The worst color that the window had lately.
    fn verdict(&self) -> Verdict {
        let color = self
            .had
            .iter()
            .fold(Color::Green, |color, had| worse(color, had.color));
        let latest = self.had.back();
        let reason = match self.had.iter().rev().find(|had| had.color == color) {
            Some(had) if latest.is_some_and(|latest| latest.color == color) => had.reason.clone(),
            Some(had) if had.reason != "starting" => format!("lately: {}", had.reason),
            _ => format!(
                "starting: {}",
                latest.map_or("", |latest| latest.reason.as_str())
            ),
        };
        Verdict { color, reason }
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests;
