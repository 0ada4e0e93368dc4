//! Step responses: how fast bandwidth follows an event, and how far it overshoots.
//!
//! A ratio is the bandwidth of a group over its ideal, in a window that begins some seconds after the event.
//! The ideal is the group's share by weight of the bytes that all groups moved in that window. Windows begin
//! one second apart, lie between two events and have one of [`WINDOWS_S`]. A group *settles* at the first
//! window from which on all ratios are within [`BAND`] of 1. A window that begins shortly before a group
//! settles may already be within the band: the time is too short by at most the part of a window that the
//! band hides, a fifth of it for a group that moved nothing before.

use serde::{Deserialize, Serialize};

use super::ideal;
use super::record::RunRecord;
use crate::experiments::settings::Settings;
use crate::experiments::Event;
use crate::protocol::Series;

/// Lengths of the windows. The shorter one is the goal's; the ratios of the longer one have less noise.
pub const WINDOWS_S: [f64; 2] = [10.0, 20.0];
/// A ratio within this distance of 1 is near the ideal.
pub const BAND: f64 = 0.2;

/// The responses to one event, with windows of one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventFigures {
    pub event: String,
    pub at_s: f64,
    /// The next event, or the end.
    pub until_s: f64,
    pub window_s: f64,
    /// The containers that work after the event.
    pub containers: Vec<ContainerResponses>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContainerResponses {
    pub name: String,
    pub weight: u32,
    pub runs: Vec<Response>,
}

/// Times in seconds after the event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Begin of the first window near the ideal; null if there is none.
    pub reached_s: Option<f64>,
    /// Begin of the first window from which on all are near the ideal; null if the last one is not.
    pub settled_s: Option<f64>,
    /// Greatest ratio, minus 1, since the ratio first was at the ideal or beyond it as seen from the first
    /// window; null if it never was.
    pub overshoot: Option<f64>,
    /// Part of the windows since `reached_s` that are not near the ideal, 0 to 1.
    pub outside: Option<f64>,
}

impl EventFigures {
    fn responses(&self) -> impl Iterator<Item = &Response> {
        self.containers.iter().flat_map(|container| &container.runs)
    }

    /// The last group's time, in the slowest run; `None` if one did not settle.
    pub fn settled_s(&self) -> Option<f64> {
        let times: Option<Vec<f64>> = self.responses().map(|one| one.settled_s).collect();
        times?.into_iter().reduce(f64::max)
    }

    /// Groups that settled, and all, over the runs.
    pub fn settled(&self) -> (usize, usize) {
        let settled = self.responses().filter(|one| one.settled_s.is_some());
        (settled.count(), self.responses().count())
    }

    /// The greatest of all groups and runs.
    pub fn overshoot(&self) -> Option<f64> {
        self.responses()
            .filter_map(|one| one.overshoot)
            .reduce(f64::max)
    }
}

/// The responses of all runs of a policy. An event without room for a window has none.
pub fn figures(settings: &Settings, records: &[RunRecord]) -> Vec<EventFigures> {
    let events = settings.workload.events(&settings.containers);
    let ends = records.iter().flat_map(|record| &record.series);
    let end_s = ends.map(|series| series.end_s().unwrap_or(0.0));
    let end_s = end_s.reduce(f64::min).unwrap_or(0.0);
    let mut all = Vec::new();
    for (i, event) in events.iter().enumerate() {
        let until_s = events.get(i + 1).map_or(end_s, |next| next.at_s.min(end_s));
        for window_s in WINDOWS_S {
            if event.at_s + window_s > until_s {
                continue;
            }
            let ideal = ideal::shares_after(&settings.containers, event);
            let runs = records
                .iter()
                .map(|record| ratios(&record.series, &ideal, (event.at_s, until_s), window_s));
            let runs: Vec<Vec<Vec<f64>>> = runs.collect();
            let containers = working(event).map(|(place, weight)| ContainerResponses {
                name: settings.containers[place].name.clone(),
                weight,
                runs: runs.iter().map(|ratios| response(&ratios[place])).collect(),
            });
            all.push(EventFigures {
                event: event.name.to_owned(),
                at_s: event.at_s,
                until_s,
                window_s,
                containers: containers.collect(),
            });
        }
    }
    all
}

fn working(event: &Event) -> impl Iterator<Item = (usize, u32)> + '_ {
    let weights = event.weights.iter().enumerate();
    weights.filter_map(|(place, weight)| Some((place, (*weight)?)))
}

/// The ratios of each container between two times, window by window; 0 for a container without an ideal or in
/// a window in which nobody moved anything.
fn ratios(
    series: &[Series],
    ideal: &[f64],
    (from_s, until_s): (f64, f64),
    window_s: f64,
) -> Vec<Vec<f64>> {
    let count = (until_s - from_s - window_s).floor() as u32 + 1;
    let begins: Vec<f64> = (0..count).map(|k| from_s + f64::from(k)).collect();
    let moved = |series: &Series| -> Vec<f64> {
        let bytes = series.all_bytes();
        let at = |time_s: f64| series.at(&bytes, time_s).unwrap_or(0.0);
        let window = |begin: &f64| at(begin + window_s) - at(*begin);
        begins.iter().map(window).collect()
    };
    let moved: Vec<Vec<f64>> = series.iter().map(moved).collect();
    let contends = |place: &usize| ideal[*place] > 0.0;
    let all = |k: usize| (0..moved.len()).filter(contends).map(|i| moved[i][k]).sum();
    let all: Vec<f64> = (0..begins.len()).map(all).collect();
    let ratio = |bytes: f64, ideal: f64| if ideal > 0.0 { bytes / ideal } else { 0.0 };
    let of_one = |(moved, share): (&Vec<f64>, &f64)| {
        let windows = moved.iter().zip(&all);
        windows.map(|(m, all)| ratio(*m, share * all)).collect()
    };
    moved.iter().zip(ideal).map(of_one).collect()
}

/// The response of one group, from its ratios in windows that begin one second apart.
pub fn response(ratios: &[f64]) -> Response {
    let near = |ratio: &f64| (ratio - 1.0).abs() <= BAND;
    let reached = ratios.iter().position(near);
    let settled = ratios.iter().rposition(|ratio| !near(ratio));
    let settled = settled.map_or(0, |last_outside| last_outside + 1);
    let above = ratios.first().is_some_and(|first| *first > 1.0);
    let beyond = |ratio: &f64| if above { *ratio <= 1.0 } else { *ratio >= 1.0 };
    let crossed = ratios.iter().position(beyond);
    let since = |from: usize| ratios[from..].iter();
    Response {
        reached_s: reached.map(|k| k as f64),
        settled_s: (settled < ratios.len()).then_some(settled as f64),
        overshoot: crossed.map(|k| since(k).fold(0.0, |most, ratio| f64::max(most, ratio - 1.0))),
        outside: reached.map(|k| {
            let out = since(k).filter(|ratio| !near(ratio)).count();
            out as f64 / (ratios.len() - k) as f64
        }),
    }
}

#[cfg(test)]
mod tests;
