//! The figures of the page: throughput, memory, disk reads and colors over time, for each policy. They
//! correspond to the paper's figures 1 to 4 and 6, all on the same scales.

use std::fmt::Write;

use super::html::{escape, legend_entry};
use super::nearest;
use super::phase_charts::{self, ColorRow, Line, Phases};
use super::style::container_color;
use crate::experiments::databases::analysis::{AnalyzedRun, Document, PolicyResult};
use crate::experiments::databases::record::Series;
use crate::policy::Policy;
use crate::protocol::databases::DatabaseJob;

/// The run whose total is nearest to the median; the charts show this run.
fn representative(result: &PolicyResult) -> Option<&AnalyzedRun> {
    let total = Some(result.figures.transactions);
    nearest(&result.runs, total, |run| Some(run.figures.transactions))
}

/// Our versions of the paper's figures 1 to 4 and 6.
pub fn over_time(document: &Document) -> String {
    let settings = &document.environment.settings.databases;
    let mut html = String::from("<h2>Over time</h2>\n<ul class=\"legend\">");
    for (index, container) in settings.containers.iter().enumerate() {
        let text = format!(
            "{}, objective {}/s",
            container.name, container.objective_tps
        );
        html.push_str(&legend_entry(&container_color(index), &text));
    }
    html.push_str("</ul>\n");
    let shown: Vec<(Policy, &AnalyzedRun)> = document
        .policies
        .iter()
        .filter_map(|(policy, result)| Some((*policy, representative(result)?)))
        .collect();
    let tops = KINDS.each_ref().map(|kind| {
        let highest = |run| phase_charts::highest(&series_lines(document, run, kind));
        shown.iter().map(|s| highest(s.1)).fold(0.0, f64::max)
    });
    for (policy, run) in &shown {
        let phases = Phases {
            spans: &run.record.phases,
            names: &settings.phases,
        };
        let _ = write!(
            html,
            "<h3>{}</h3>\n<p class=\"note\">{}</p>\n<div class=\"pair\">",
            policy.name(),
            policy.meaning()
        );
        for (kind, top) in KINDS.iter().zip(tops) {
            let lines = series_lines(document, run, kind);
            let title = format!("{}, {}", policy.name(), kind.caption);
            let svg = phase_charts::lines(&title, kind.unit, &phases, &lines, top);
            figure(&mut html, &svg, kind.caption);
        }
        let rows: Vec<_> = settings
            .containers
            .iter()
            .zip(&run.record.series)
            .map(|(container, series)| ColorRow {
                name: container.name.clone(),
                samples: at(series, series.color.iter().copied()),
            })
            .collect();
        let svg = phase_charts::colors(&format!("{}, colors", policy.name()), &phases, &rows);
        figure(
            &mut html,
            &svg,
            "Colors: green low, yellow middle, red high",
        );
        html.push_str("</div>\n");
    }
    html
}

fn figure(html: &mut String, svg: &str, caption: &str) {
    let _ = write!(
        html,
        "<figure>{svg}<figcaption>{}</figcaption></figure>",
        escape(caption)
    );
}

/// Times, and values where they are known.
type Points = Vec<(f64, Option<f64>)>;

/// A chart over time of all containers.
struct Kind {
    unit: &'static str,
    caption: &'static str,
    points: fn(&Series) -> Points,
    /// The dashed value of a container, from its job and its static limit.
    mark: fn(&DatabaseJob, Option<u64>) -> Option<f64>,
}

const KINDS: [Kind; 3] = [
    Kind {
        unit: "transactions/s",
        caption: "Throughput; the objective is dashed",
        points: |series| at(series, series.tps.iter().copied()),
        mark: |job, _| Some(f64::from(job.objective_tps)),
    },
    Kind {
        unit: "MB",
        caption: "Memory charged to the container; a static limit is dashed",
        points: |series| {
            at(
                series,
                series.memory_bytes.iter().map(|bytes| bytes.map(mb)),
            )
        },
        mark: |_, limit| limit.map(mb),
    },
    Kind {
        unit: "reads/s",
        caption: "Reads from the disk",
        points: |series| series.rate(&series.device_reads),
        mark: |_, _| None,
    },
];

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn series_lines(document: &Document, run: &AnalyzedRun, kind: &Kind) -> Vec<Line> {
    let containers = &document.environment.settings.databases.containers;
    let lines = containers.iter().zip(&run.record.series).enumerate();
    let line = |(index, (container, series)): (usize, (&DatabaseJob, &Series))| Line {
        name: container.name.clone(),
        color: container_color(index),
        points: (kind.points)(series),
        mark: (kind.mark)(container, run.record.limits.get(index).copied().flatten()),
    };
    lines.map(line).collect()
}

fn at<T>(series: &Series, values: impl Iterator<Item = T>) -> Vec<(f64, T)> {
    series.at_s.iter().copied().zip(values).collect()
}
