//! The figures of the page: throughput, memory, disk reads, colors and transactions over time, for each
//! policy. They correspond to the paper's figures 1 to 6, all on the same scales.

use std::fmt::Write;

use super::html::{escape, legend_entry};
use super::phase_charts::{self, ColorRow, Line, Phases};
use super::style::container_color;
use crate::experiments::databases::analysis::{AnalyzedRun, Document, PolicyResult};
use crate::experiments::databases::record::Series;
use crate::policy::Policy;

/// The run whose total is nearest to the median; the charts show this run.
fn representative(result: &PolicyResult) -> Option<&AnalyzedRun> {
    let distance =
        |run: &AnalyzedRun| (run.figures.transactions - result.figures.transactions).abs();
    result
        .runs
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// Our versions of the paper's figures 1 to 6.
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
    let shown: Vec<(Policy, &PolicyResult, &AnalyzedRun)> = document
        .policies
        .iter()
        .filter_map(|(policy, result)| Some((*policy, result, representative(result)?)))
        .collect();
    let all = |kind: Kind| {
        let each = shown
            .iter()
            .map(|s| phase_charts::highest(&series_lines(document, s.2, kind)));
        each.fold(0.0, f64::max)
    };
    let tops = Kind::ALL.map(all);
    let phase_top = shown
        .iter()
        .flat_map(|s| s.2.figures.phase_transactions.iter().copied())
        .fold(0.0, f64::max);
    for (policy, _, run) in &shown {
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
        for (kind, top) in Kind::ALL.into_iter().zip(tops) {
            let lines = series_lines(document, run, kind);
            let title = format!("{}, {}", policy.name(), kind.caption());
            let svg = phase_charts::lines(&title, kind.unit(), &phases, &lines, top);
            figure(&mut html, &svg, kind.caption());
        }
        let rows: Vec<_> = settings
            .containers
            .iter()
            .zip(&run.record.series)
            .map(|(container, series)| {
                let pairs = series
                    .at_s
                    .iter()
                    .copied()
                    .zip(series.color.iter().copied());
                ColorRow {
                    name: container.name.clone(),
                    samples: pairs.collect(),
                }
            })
            .collect();
        let svg = phase_charts::colors(&format!("{}, colors", policy.name()), &phases, &rows);
        figure(
            &mut html,
            &svg,
            "Colors: green low, yellow middle, red high",
        );
        let layers: Vec<_> = run
            .figures
            .containers
            .iter()
            .enumerate()
            .map(|(index, container)| {
                let values = container.phases.iter().map(|p| p.transactions).collect();
                (container.name.clone(), container_color(index), values)
            })
            .collect();
        let title = format!("{}, transactions by phase", policy.name());
        let svg = phase_charts::stacks(&title, &settings.phases, &layers, phase_top);
        figure(&mut html, &svg, "Transactions by phase");
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

#[derive(Debug, Clone, Copy)]
enum Kind {
    Rate,
    Memory,
    Reads,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Rate, Self::Memory, Self::Reads];

    fn unit(self) -> &'static str {
        match self {
            Self::Rate => "transactions/s",
            Self::Memory => "MB",
            Self::Reads => "reads/s",
        }
    }

    fn caption(self) -> &'static str {
        match self {
            Self::Rate => "Throughput; the objective is dashed",
            Self::Memory => "Memory charged to the container; a static limit is dashed",
            Self::Reads => "Reads from the disk",
        }
    }
}

fn series_lines(document: &Document, run: &AnalyzedRun, kind: Kind) -> Vec<Line> {
    let containers = &document.environment.settings.databases.containers;
    run.record
        .series
        .iter()
        .enumerate()
        .filter_map(|(index, series)| {
            let container = containers.get(index)?;
            let limit = run.record.limits.get(index).copied().flatten();
            let (points, mark) = match kind {
                Kind::Rate => {
                    let points = at(series, series.tps.iter().copied());
                    (points, Some(f64::from(container.objective_tps)))
                }
                Kind::Memory => {
                    let mb = |bytes: &Option<u64>| bytes.map(|bytes| bytes as f64 / 1e6);
                    let points = at(series, series.memory_bytes.iter().map(mb));
                    (points, limit.map(|bytes| bytes as f64 / 1e6))
                }
                Kind::Reads => (series.rate(&series.device_reads), None),
            };
            Some(Line {
                name: container.name.clone(),
                color: container_color(index),
                points,
                mark,
            })
        })
        .collect()
}

fn at(series: &Series, values: impl Iterator<Item = Option<f64>>) -> Vec<(f64, Option<f64>)> {
    series.at_s.iter().copied().zip(values).collect()
}
