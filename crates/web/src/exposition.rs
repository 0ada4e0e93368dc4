//! Formats the metrics: `OpenMetrics` 1.0 for clients that accept it, otherwise Prometheus's text format
//! 0.0.4.
//!
//! This is not done by a library for two reasons. Names of cgroups are labels and may contain quotes,
//! backslashes and line breaks, which the common library does not escape. And families are generated one at a
//! time from the last report, so a scrape of 1,000 groups is never in memory as a whole.
//!
//! Invariants: every family has TYPE and HELP, in `OpenMetrics` also its UNIT. Samples of a family are
//! contiguous. No two samples have the same name and labels. An unknown value has no sample.

use std::collections::HashSet;
use std::fmt::Write as _;

use justitia_report::describe::{metrics, Get, Kind, Metric};
use justitia_report::own::Own;
use justitia_report::status::{GroupStatus, Report};
use justitia_report::text::word;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus's text format 0.0.4. A family has the name of its samples. There are no info metrics, state
    /// sets, units or end mark.
    Text,
}

impl Format {
    /// The format for a client that sends this `Accept` header.
    pub fn accepted(header: &str) -> Format {
        if header.contains("application/openmetrics-text") {
            Format::OpenMetrics
        } else {
            Format::Text
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// A family's suffix of the name and its type, for the `# TYPE` line.
    fn family(self, kind: Kind) -> (&'static str, String) {
        match (self, kind) {
            (Format::OpenMetrics, kind) => ("", word(&kind)),
            (Format::Text, Kind::Counter) => (kind.suffix(), word(&kind)),
            (Format::Text, _) => (kind.suffix(), word(&Kind::Gauge)),
        }
    }
}

/// A scrape in progress: an iterator over the text, one family at a time.
#[derive(Debug)]
pub struct Scrape {
    format: Format,
    report: Report,
    own: Own,
    /// The escaped labels of each group, with its path and its names.
    labels: Vec<String>,
    /// Index of the next family; the index after the last is the end mark.
    next: usize,
}

impl Scrape {
    pub fn new(format: Format, mut report: Report, own: Own) -> Scrape {
        // Duplicate samples make the whole scrape invalid. A path belongs to one group at a time, but the
        // report may have been made while one group replaced another.
        let mut seen = HashSet::new();
        report
            .groups
            .retain(|group| seen.insert(group.path.clone()));
        let labels = report.groups.iter().map(of_group);
        Scrape {
            format,
            labels: labels.collect(),
            report,
            own,
            next: 0,
        }
    }

    fn family(&self, metric: &Metric, help: &str) -> String {
        let labels: usize = self.labels.iter().map(String::len).sum();
        let line = metric.name.len() + 24;
        let mut text = String::with_capacity(512 + labels + self.labels.len() * line);
        let (suffix, kind) = self.format.family(metric.kind);
        let name = metric.name;
        let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        if self.format == Format::OpenMetrics && !metric.unit.is_empty() {
            let _ = writeln!(text, "# UNIT {name} {}", metric.unit);
        }
        let _ = writeln!(text, "# HELP {name}{suffix} {}", escaped(help));
        self.samples(metric, &mut text);
        text
    }

    fn samples(&self, metric: &Metric, text: &mut String) {
        let groups = self.report.groups.iter().zip(&self.labels);
        let mut put = |labels: &str, value| sample(text, metric, labels, value);
        match metric.get {
            Get::Report(get) => put("", get(&self.report)),
            Get::Own(get) => put("", get(&self.own)),
            Get::ReportInfo(get) => put(&join(get(&self.report)), Some(1.0)),
            Get::Group(get) => groups.for_each(|(group, label)| put(label, get(group))),
            Get::GroupInfo(get) => {
                for (group, label) in groups {
                    put(&format!("{label},{}", join(get(group))), Some(1.0));
                }
            }
            Get::GroupState(states, get) => {
                let states: Vec<(&str, String)> = states
                    .iter()
                    .map(|state| (*state, format!(",{}", label(metric.name, state))))
                    .collect();
                for (group, path) in groups {
                    let Some(now) = get(group) else { continue };
                    for (state, label) in &states {
                        let is = f64::from(u8::from(*state == now));
                        put(&format!("{path}{label}"), Some(is));
                    }
                }
            }
            Get::Knob(knob) => {
                groups.for_each(|(group, label)| put(label, group.knob_number(knob)));
            }
            Get::GateDevice(get) => {
                for device in self.report.gate.iter().flat_map(|gate| &gate.devices) {
                    put(&label("device", &device.device), Some(get(device)));
                }
            }
            Get::Watch(get) => {
                for finding in &self.report.watch {
                    put(&label("decision", &word(&finding.decision)), get(finding));
                }
            }
            Get::Device(get) => {
                for disk in &self.report.devices {
                    put(&label("disk", disk.name()), get(disk));
                }
            }
        }
    }
}

impl Iterator for Scrape {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let at = self.next;
        self.next += 1;
        if let Some((metric, help)) = metrics().nth(at) {
            return Some(self.family(&metric, help));
        }
        let ends = self.format == Format::OpenMetrics && at == metrics().count();
        ends.then(|| "# EOF\n".into())
    }
}

fn sample(text: &mut String, metric: &Metric, labels: &str, value: Option<f64>) {
    let Some(value) = value else { return };
    text.push_str(metric.name);
    text.push_str(metric.kind.suffix());
    if !labels.is_empty() {
        let _ = write!(text, "{{{labels}}}");
    }
    text.push(' ');
    number(text, value);
    text.push('\n');
}

fn number(text: &mut String, value: f64) {
    let _ = if value.is_infinite() {
        text.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else if value.fract() == 0.0 && value.abs() < 9e15 {
        // Most values are byte counts, and formatting an integer is several times as fast.
        write!(text, "{}", value as i64)
    } else {
        write!(text, "{value}")
    };
}

/// The labels of every metric of a group.
fn of_group(group: &GroupStatus) -> String {
    let known = group.names.iter().flat_map(|names| {
        [
            ("kind", Some(&names.kind)),
            ("name", Some(&names.name)),
            ("namespace", names.namespace.as_ref()),
            ("pod", names.pod.as_ref()),
            ("container", names.container.as_ref()),
        ]
    });
    let known = known.filter_map(|(name, value)| Some((name, value?)));
    join(std::iter::once(("group", &group.path)).chain(known))
}

fn join<'a>(labels: impl IntoIterator<Item = (&'a str, impl AsRef<str>)>) -> String {
    let labels = labels.into_iter();
    let labels = labels.map(|(name, value)| label(name, value.as_ref()));
    labels.collect::<Vec<_>>().join(",")
}

fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"", escaped(value))
}

/// Escapes the three characters that the format reserves: backslash, double quote and line feed.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\");
    value.replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
