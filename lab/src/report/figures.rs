//! The figures of the page: bars by weight beside the paper's, bandwidth and page cache over time.

use std::fmt::Write;

use super::charts::{self, bars, BarSeries, Bars, Layer};
use super::html::{details, escape, fixed, legend_entry, number};
use super::style::container_color;
use super::table::Cell;
use super::{representative, window_words};
use crate::analysis::aggregate::Range;
use crate::analysis::ideal;
use crate::analysis::record::RunRecord;
use crate::analysis::result::{AnalyzedRun, PolicyResult};
use crate::analysis::weighted::Document;
use crate::experiments::paper::{self, PaperFigure};
use crate::experiments::Measure;
use crate::policy::Policy;
use crate::protocol::Series;

/// Half the width of the moving mean of bandwidth over time, seconds. A fixed job may take only a second,
/// which a wide mean would smear over the rest.
fn smoothing_s(measure: Measure) -> f64 {
    match measure {
        Measure::Window | Measure::Residency | Measure::Phases => 2.5,
        Measure::Completion => 0.5,
    }
}

/// Normalized bandwidth by weight: the paper's figure beside ours, on one scale.
pub fn by_weight(document: &Document) -> String {
    let settings = &document.environment.settings;
    let weights: Vec<u32> = settings.containers.iter().map(|c| c.weight).collect();
    let published = paper::figures(&document.experiment, &weights);
    let (drawn, described): (Vec<&PaperFigure>, Vec<_>) = published
        .iter()
        .partition(|figure| figure.series.iter().any(|s| !s.normalized.is_empty()));
    let theirs = drawn.iter().map(|figure| {
        let caption = format!("{}. {}", figure.caption, pv_words(figure));
        (paper_bars(figure), caption)
    });
    let charts: Vec<(Bars, String)> = theirs.chain([our_bars(document, &weights)]).collect();
    let top = charts.iter().map(|(bars, _)| bars.highest());
    let top = top.fold(1.0, f64::max);
    let mut html = String::from("<h2>Bandwidth by weight</h2>\n");
    let _ = writeln!(
        html,
        "<p class=\"note\">Each container's bandwidth over that of the lowest weight; on the dashed \
         line, weights hold. Ours: {}. {}</p>\n<div class=\"pair\">",
        window_words(document),
        if settings.choices.runs > 1 { "Thin lines span the runs." } else { "" }
    );
    for (chart, caption) in &charts {
        let _ = writeln!(
            html,
            "<figure><h3>{}</h3>{}{}<figcaption>{}</figcaption></figure>",
            escape(&chart.title),
            legend(&chart.series),
            bars(chart, top),
            escape(caption)
        );
    }
    html.push_str("</div>\n");
    for figure in described {
        let _ = writeln!(
            html,
            "<p class=\"note\">The paper's figure {}, whose bars its text does not give. {}. {}</p>",
            figure.number,
            escape(figure.caption),
            escape(&pv_words(figure))
        );
    }
    if published.is_empty() {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(paper::NO_FIGURE));
    }
    html
}

fn our_bars(document: &Document, weights: &[u32]) -> (Bars, String) {
    let first = document.in_order().next();
    let first = first
        .iter()
        .flat_map(|(_, result)| &result.figures.containers);
    let series = |(policy, result): (Policy, &PolicyResult)| BarSeries {
        label: policy.name().to_owned(),
        color: policy.name().to_owned(),
        values: result
            .figures
            .containers
            .iter()
            .map(|c| c.normalized)
            .collect(),
        ranges: (0..result.figures.containers.len())
            .map(|i| {
                let containers = result.runs.iter().map(|run| run.figures.containers.get(i));
                Range::of(containers.map(|container| container?.normalized))
            })
            .collect(),
    };
    let chart = Bars {
        title: format!("Measured here, Linux {}", document.kernel),
        categories: weights.iter().map(u32::to_string).collect(),
        ideal: first.filter_map(|c| c.ideal_normalized).collect(),
        series: document.in_order().map(series).collect(),
    };
    let pvs: Vec<String> = document
        .in_order()
        .map(|(policy, result)| format!("{} {}", policy.name(), number(result.figures.pv, 2)))
        .collect();
    let pvs = pvs.join(", ");
    (
        chart,
        format!("Reads and writes of all containers. PV: {pvs}."),
    )
}

fn paper_bars(figure: &PaperFigure) -> Bars {
    let lowest = figure.weights.iter().copied().min().unwrap_or(1);
    let ratio = |&weight: &u32| f64::from(weight) / f64::from(lowest);
    let drawn = figure.series.iter().filter(|s| !s.normalized.is_empty());
    Bars {
        title: format!("The paper's figure {}", figure.number),
        categories: figure.weights.iter().map(u32::to_string).collect(),
        ideal: figure.weights.iter().map(ratio).collect(),
        series: drawn
            .map(|series| BarSeries {
                label: series.label.to_owned(),
                color: series.color.to_owned(),
                values: series.normalized.iter().copied().map(Some).collect(),
                ranges: Vec::new(),
            })
            .collect(),
    }
}

fn pv_words(figure: &PaperFigure) -> String {
    let each: Vec<String> = figure
        .series
        .iter()
        .map(|series| format!("{} {}", series.label, fixed(series.pv, 2)))
        .collect();
    format!("PV: {}.", each.join(", "))
}

fn legend(series: &[BarSeries]) -> String {
    let colors = series
        .iter()
        .map(|one| legend_entry(&format!("--{}", one.color), &one.label));
    let colors: String = colors.collect();
    format!("<ul class=\"legend\">{colors}<li><i class=\"dash\"></i>ideal</li></ul>")
}

/// Bandwidth over time, stacked by container, one panel per policy on one scale.
pub fn over_time(document: &Document) -> String {
    let settings = &document.environment.settings;
    let smoothing = smoothing_s(settings.measure);
    let events = settings.workload.events(&settings.containers);
    let order = order(document);
    let panels: Vec<(&str, Vec<f64>, Vec<Layer>)> = shown(document)
        .map(|(policy, run)| {
            let times = times(&run.record);
            let mean = run.figures.containers.iter();
            let mean: Vec<f64> = mean.map(|c| c.ideal_share.unwrap_or(0.0)).collect();
            let ideal = |&time_s: &f64| {
                if events.is_empty() {
                    mean.clone()
                } else {
                    ideal::shares_at(&settings.containers, &events, time_s)
                }
            };
            let ideals: Vec<Vec<f64>> = times.iter().map(ideal).collect();
            let layers = order.iter().enumerate().map(|(rank, &place)| {
                let series = &run.record.series[place];
                let rate = |&time_s: &f64| rate_at(series, time_s, smoothing);
                Layer {
                    name: format!("{}, weight {}", series.name, series.weight),
                    color: container_color(rank),
                    ideal_shares: ideals.iter().map(|shares| shares[place]).collect(),
                    values: times.iter().map(rate).collect(),
                }
            });
            let layers = layers.collect();
            (policy.name(), times, layers)
        })
        .collect();
    let top = panels
        .iter()
        .flat_map(|(_, times, layers)| {
            (0..times.len()).map(|i| layers.iter().map(|layer| layer.values[i]).sum::<f64>())
        })
        .fold(0.0, f64::max);
    let warmup = if settings.measure == Measure::Completion {
        0.0
    } else {
        settings.warmup_s
    };
    let mut html = String::from("<h2>Bandwidth over time</h2>\n");
    let _ = writeln!(
        html,
        "<p class=\"note\">Containers stacked, lowest weight at the bottom, {} s moving mean; \
         dashed, where the borders lie when every container has its share. {}</p>",
        fixed(2.0 * smoothing, 0),
        if warmup > 0.0 { "Faded: warm-up." } else { "" }
    );
    html.push_str(&container_legend(document, &ranks(document)));
    html.push_str("<div class=\"pair\">\n");
    for (name, times, layers) in &panels {
        let title = format!("Bandwidth over time under {name}");
        let svg = charts::stacked(&title, times, layers, top, warmup);
        let _ = writeln!(html, "<figure><h3>{}</h3>{svg}</figure>", escape(name));
    }
    html.push_str("</div>\n");
    html
}

/// Page cache of each container against its threshold, one block per policy.
pub fn page_cache(document: &Document) -> String {
    let ranks = ranks(document);
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let series = shown(document).flat_map(|(_, run)| &run.record.series);
    let top = series.flat_map(|series| series.file_bytes.iter().copied());
    let top = top.max().map_or(1.0, mb);
    let mut html = String::from(
        "<h2>Page cache against threshold</h2>\n<p class=\"note\">MB charged to each container; \
         dashed, its memory.low (the threshold plus its other memory), cut off at the top of the \
         scale.</p>\n",
    );
    for (policy, run) in shown(document) {
        let mut tiles = String::from("<div class=\"tiles\">");
        for (series, &rank) in run.record.series.iter().zip(&ranks) {
            let cache: Vec<f64> = series.file_bytes.iter().map(|&b| mb(b)).collect();
            let low: Vec<Option<f64>> = series.low_bytes.iter().map(|b| b.map(mb)).collect();
            let title = format!("{}, weight {}", series.name, series.weight);
            let svg = charts::page_cache(
                &title,
                &container_color(rank),
                &series.at_s,
                &cache,
                &low,
                top,
            );
            let _ = write!(tiles, "<figure>{svg}</figure>");
        }
        tiles.push_str("</div>");
        html.push_str(&details(
            policy.runs_agent(),
            &Cell::Policy(policy).html(),
            &tiles,
        ));
    }
    html
}

/// Page cache of each watched file over time, one block per policy.
pub fn residency(document: &Document) -> String {
    let ranks = ranks(document);
    let from_s = document.environment.settings.warmup_s;
    let mut html = format!(
        "<h2>Files in the page cache</h2>\n<p class=\"note\">MB of each file, whoever is \
         charged for it. Pollution begins at {} s.</p>\n",
        fixed(from_s, 0)
    );
    for (policy, run) in shown(document) {
        let label = Cell::Policy(policy).html();
        let _ = write!(html, "<h3>{label}</h3><div class=\"tiles\">");
        for (i, file) in run.record.files.iter().enumerate() {
            let looks = file.at_s.iter().zip(&file.resident_bytes);
            let (times, resident): (Vec<f64>, Vec<f64>) = looks
                .filter_map(|(at, bytes)| Some((*at, (*bytes)? as f64 / 1e6)))
                .unzip();
            // The shared file comes first and has the color of the container after the payer.
            let owner = i.checked_sub(1).unwrap_or(1);
            let rank = ranks.get(owner).copied().unwrap_or_default();
            let svg = charts::page_cache(
                &file.name,
                &container_color(rank),
                &times,
                &resident,
                &[],
                file.bytes as f64 / 1e6,
            );
            let _ = write!(html, "<figure>{svg}</figure>");
        }
        html.push_str("</div>\n");
    }
    html
}

fn container_legend(document: &Document, ranks: &[usize]) -> String {
    let containers = document.environment.settings.containers.iter().zip(ranks);
    let entries = containers.map(|(container, &rank)| {
        let text = format!("{} ({})", container.name, container.weight);
        legend_entry(&container_color(rank), &text)
    });
    let entries: String = entries.collect();
    format!("<ul class=\"legend\">{entries}</ul>\n")
}

/// The policies, each with the run that the charts over time show.
fn shown(document: &Document) -> impl Iterator<Item = (Policy, &AnalyzedRun)> {
    let results = document.in_order();
    results.filter_map(|(policy, result)| Some((policy, representative(result)?)))
}

/// The places of the containers, by weight.
fn order(document: &Document) -> Vec<usize> {
    let containers = &document.environment.settings.containers;
    let mut order: Vec<usize> = (0..containers.len()).collect();
    order.sort_by_key(|&i| containers[i].weight);
    order
}

/// Rank of each container by weight.
fn ranks(document: &Document) -> Vec<usize> {
    let order = order(document);
    let mut ranks = vec![0; order.len()];
    for (rank, &i) in order.iter().enumerate() {
        ranks[i] = rank;
    }
    ranks
}

/// One time per second from start to end of a record; a fixed job ends with its last container.
fn times(record: &RunRecord) -> Vec<f64> {
    let last = record.end_s().unwrap_or(0.0);
    let done: Option<Vec<f64>> = record.series.iter().map(|s| s.finished_at_s).collect();
    let done = done.map_or(last, |done| {
        done.into_iter().fold(0.0, f64::max).ceil() + 1.0
    });
    let end = last.min(done);
    (0..=end.floor() as u32).map(f64::from).collect()
}

/// Bandwidth around a time, MB/s.
fn rate_at(series: &Series, time_s: f64, smoothing: f64) -> f64 {
    let end = series.end_s().unwrap_or(0.0);
    let (from, to) = ((time_s - smoothing).max(0.0), (time_s + smoothing).min(end));
    let all = series.all_bytes();
    match (series.at(&all, from), series.at(&all, to)) {
        (Some(a), Some(b)) if to > from => ((b - a) / (to - from) / 1e6).max(0.0),
        _ => 0.0,
    }
}
