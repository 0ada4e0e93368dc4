//! The history as JSON, for `/api/history`.
//!
//! The values are rows of numbers, not records, for size: a page that is opened gets ten minutes of 32 groups
//! at once.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use justitia_policy::plan::Reason;
use justitia_report::status::Report;
use serde::Serialize;

use super::{Decision, History, Rest, Sample};

impl History {
    /// Points and decisions after tick `since`, as JSON. `now` converts times to the system clock; `age` is
    /// the time since the last step.
    pub(crate) fn json(
        &self,
        report: &Report,
        since: u64,
        now: (Instant, SystemTime),
        age: Option<Duration>,
    ) -> String {
        let mut index = HashMap::new();
        let mut names = Vec::new();
        let mut points = Vec::new();
        for point in self.points.iter().filter(|point| point.tick > since) {
            let mut rows = Vec::with_capacity(point.groups.len());
            for sample in &point.groups {
                let at = *index.entry(sample.id).or_insert_with(|| {
                    names.push(Name {
                        id: sample.id.to_string(),
                        path: &sample.path,
                    });
                    names.len() - 1
                });
                rows.push(row(at, sample));
            }
            points.push(PointJson {
                tick: point.tick,
                unix_ms: unix_ms(point.at, now),
                pv: digits(point.pv),
                share_error: digits(point.share_error),
                free_bytes: point.free_bytes,
                groups: rows,
                rest: Rest {
                    proportion: digits(point.rest.proportion),
                    contending_proportion: digits(point.rest.contending_proportion),
                    ..point.rest
                },
            });
        }
        let decisions = self.decisions.iter().rev();
        let decisions = decisions.filter(|decision| decision.tick > since);
        let decisions = decisions.map(|decision| decision_json(decision, now));
        let answer = Answer {
            since_unix_s: report.since_unix_s,
            now_unix_ms: unix_ms(now.0, now),
            age_s: age.map(|age| age.as_secs_f64()),
            columns: COLUMNS,
            groups: names,
            points,
            decisions: decisions.collect(),
        };
        serde_json::to_string(&answer).unwrap_or_else(|_| "{}".into())
    }
}

/// Rounds to four decimals, which suffice for a figure and are shorter to send.
fn digits(value: f32) -> f32 {
    (value * 1e4).round() / 1e4
}

fn unix_ms(at: Instant, (now, clock): (Instant, SystemTime)) -> u64 {
    let then = clock.checked_sub(now.saturating_duration_since(at));
    let since = then.and_then(|then| then.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Columns of a group's row, in order.
const COLUMNS: [&str; 8] = [
    "group",
    "proportion",
    "bytes_per_s",
    "file_bytes",
    "threshold_bytes",
    "hit_ratio",
    "of_ideal",
    "contending",
];

type Row = (usize, f32, f32, f32, f32, f32, f32, bool);

fn row(at: usize, sample: &Sample) -> Row {
    (
        at,
        digits(sample.proportion),
        sample.bytes_per_s.round(),
        sample.file_bytes,
        sample.threshold_bytes,
        digits(sample.hit_ratio),
        digits(sample.of_ideal),
        sample.contending,
    )
}

fn decision_json(decision: &Decision, now: (Instant, SystemTime)) -> DecisionJson<'_> {
    DecisionJson {
        tick: decision.tick,
        first_unix_ms: unix_ms(decision.first, now),
        last_unix_ms: unix_ms(decision.last, now),
        times: decision.times,
        id: decision
            .id
            .map_or_else(|| decision.path.to_string(), |id| id.to_string()),
        path: &decision.path,
        knob: decision.knob.file_name(),
        prior: decision.prior.as_deref(),
        value: &decision.value,
        why: why(&decision.reason),
        because: decision.reason.to_string(),
    }
}

/// The kind of a reason. With ID and knob it identifies a decision.
fn why(reason: &Reason) -> String {
    let record = serde_json::to_value(reason).unwrap_or_default();
    record["why"].as_str().unwrap_or_default().to_owned()
}

#[derive(Serialize)]
struct Answer<'a> {
    since_unix_s: u64,
    now_unix_ms: u64,
    age_s: Option<f64>,
    columns: [&'static str; 8],
    groups: Vec<Name<'a>>,
    points: Vec<PointJson>,
    decisions: Vec<DecisionJson<'a>>,
}

/// The ID is text, because JavaScript cannot represent all 64-bit numbers.
#[derive(Serialize)]
struct Name<'a> {
    id: String,
    path: &'a str,
}

#[derive(Serialize)]
struct PointJson {
    tick: u64,
    unix_ms: u64,
    pv: f32,
    share_error: f32,
    free_bytes: f32,
    groups: Vec<Row>,
    rest: Rest,
}

#[derive(Serialize)]
struct DecisionJson<'a> {
    tick: u64,
    first_unix_ms: u64,
    last_unix_ms: u64,
    times: u64,
    id: String,
    path: &'a str,
    knob: &'static str,
    prior: Option<&'a str>,
    value: &'a str,
    why: String,
    because: String,
}
