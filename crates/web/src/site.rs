//! Maps paths to answers.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use justitia_report::status::Report;

use super::exposition::Scrape;
use super::history::History;
use super::http::{Answer, Body, Request, Status};
use crate::latest::Latest;

/// Files of the page: path, media type, content.
pub(super) const ASSETS: [(&str, &str, &str); 9] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/style.css", CSS, include_str!("page/style.css")),
    ("/app.js", JS, include_str!("page/app.js")),
    ("/charts.js", JS, include_str!("page/charts.js")),
    ("/curves.js", JS, include_str!("page/curves.js")),
    ("/data.js", JS, include_str!("page/data.js")),
    ("/format.js", JS, include_str!("page/format.js")),
    ("/tables.js", JS, include_str!("page/tables.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";

/// Shortest time between two polls of [`Latest`].
const SHORTEST: Duration = Duration::from_millis(20);
/// Longest time between two polls: the agent's interval may become shorter meanwhile.
const LONGEST: Duration = Duration::from_secs(1);
/// An agent that has been silent for less than this is not called stalled, however short its interval.
const GRACE: Duration = Duration::from_secs(1);

/// The content of all paths.
#[derive(Debug)]
pub(super) struct Site {
    latest: Arc<Latest>,
    history: History,
    /// The answer of `/api/status` and its step, made once per step for all clients.
    status: Option<(u64, Arc<[u8]>)>,
    /// Number of the last step, and the time when it was first seen.
    seen: (u64, Instant),
    due: Instant,
}

impl Site {
    pub(super) fn new(latest: Arc<Latest>, now: Instant) -> Site {
        Site {
            latest,
            history: History::default(),
            status: None,
            seen: (0, now),
            due: now,
        }
    }

    /// The time of the next poll.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Polls for a new step, and adds it to the history. The polls follow the agent's interval: after a new
    /// step the next poll is shortly before the following step is due, then polls are more frequent.
    pub(super) fn look(&mut self, now: Instant) {
        if now < self.due {
            return;
        }
        let told = self.latest.get();
        let pause = if told.report.ticks_total == self.seen.0 {
            interval(&told.report) / 8
        } else {
            self.seen = (told.report.ticks_total, now);
            self.history.push(&told.report, now);
            interval(&told.report) * 7 / 8
        };
        self.due = now + pause.clamp(SHORTEST, LONGEST);
    }

    /// True if the answer holds its own memory.
    pub(super) fn is_heavy(request: &Request) -> bool {
        request.path == "/metrics" || request.path.starts_with("/api/")
    }

    pub(super) fn answer(&mut self, request: &Request, now: Instant) -> Answer {
        match request.path.as_str() {
            "/metrics" => {
                let told = self.latest.get();
                let scrape = Scrape::new(request.format, told.report.clone(), told.own);
                Answer {
                    status: Status::Ok,
                    content_type: request.format.content_type(),
                    body: Body::Pieces(Box::new(scrape)),
                }
            }
            "/api/status" => self.status(),
            "/api/history" => self.history(&request.query, now),
            "/healthz" => self.health(now),
            path => match ASSETS.iter().find(|(name, ..)| *name == path) {
                Some((_, kind, text)) => Answer::ok(kind, *text),
                None => Answer::status(Status::NotFound),
            },
        }
    }

    fn status(&mut self) -> Answer {
        let told = self.latest.get();
        let count = told.report.ticks_total;
        let json = match &self.status {
            Some((known, json)) if *known == count => Arc::clone(json),
            _ => {
                let Ok(json) = serde_json::to_vec(&told.report) else {
                    return Answer::status(Status::Stalled);
                };
                let (_, json) = self.status.insert((count, json.into()));
                Arc::clone(json)
            }
        };
        Answer::ok(JSON, json)
    }

    fn history(&self, query: &str, now: Instant) -> Answer {
        let since = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("since=")?.parse().ok())
            .unwrap_or(0);
        let told = self.latest.get();
        let clock = (now, SystemTime::now());
        let json = self.history.json(&told.report, since, clock, self.age(now));
        Answer::ok(JSON, json)
    }

    fn health(&self, now: Instant) -> Answer {
        let told = self.latest.get();
        match self.age(now) {
            None => Answer::text(Status::Stalled, "no step yet\n"),
            Some(age) if age > (interval(&told.report) * 3).max(GRACE) => Answer::text(
                Status::Stalled,
                format!(
                    "stalled: the last step was {:.1} s ago\n",
                    age.as_secs_f64()
                ),
            ),
            Some(_) => Answer::status(Status::Ok),
        }
    }

    /// Time since the last step was first seen; `None`: no step yet.
    fn age(&self, now: Instant) -> Option<Duration> {
        (self.seen.0 > 0).then(|| now.saturating_duration_since(self.seen.1))
    }
}

/// Time between two steps.
fn interval(report: &Report) -> Duration {
    Duration::try_from_secs_f64(report.interval_s).unwrap_or_default()
}

#[cfg(test)]
mod tests;
