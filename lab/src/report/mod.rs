//! report.html: one self-contained page from one analyzed document. Pure: text in, text out.
//!
//! [`html`] escapes, [`mod@table`] builds tables, [`plot`] and [`charts`] draw, [`style`] colors, [`figures`] and
//! [`tables`] are the parts of the page. The page fetches nothing and runs no script. [`text`] renders the same
//! tables for a terminal.

pub mod charts;
pub mod databases;
pub mod databases_figures;
pub mod figures;
pub mod html;
pub mod phase_charts;
pub mod phases;
pub mod plot;
pub mod style;
pub mod table;
pub mod tables;
pub mod text;

use std::fmt::Write;

use crate::analysis::document;
use crate::analysis::residency::FileFigures;
use crate::analysis::result::{AnalyzedRun, PolicyResult};
use crate::analysis::weighted::Document;
use crate::experiments::{description, Measure};
use crate::protocol::Policy;

use html::{escape, fixed, number, percent};
use table::Table;

pub fn render(document: &Document) -> String {
    let settings = &document.environment.settings;
    let description = description(&document.experiment);
    let intro = description.map_or_else(String::new, |description| {
        format!(
            "<p>Question: do {}? {} </p>\n",
            escape(description.question),
            escape(description.method)
        )
    });
    let mut body = String::new();
    if settings.measure == Measure::Residency {
        body.push_str(&figures::residency(document));
        body.push_str(&tables::residency(document).html());
    } else if has_responses(document) {
        let note = phases::about_responses();
        let _ = writeln!(
            body,
            "<h2>Step responses</h2>\n<p class=\"note\">{note}</p>"
        );
        body.extend(phases::responses(document).iter().map(Table::html));
    } else if settings.measure == Measure::Phases {
        let table = phases::table(document).html();
        let _ = write!(body, "<h2>Phases</h2>\n{table}");
    } else {
        body.push_str(&figures::by_weight(document));
    }
    body.push_str(&tables::summary(document));
    body.push_str(&figures::over_time(document));
    body.push_str(&figures::page_cache(document));
    body.push_str(&tables::containers(document));
    body.push_str(&tables::agent(document));
    body.push_str(&how_to_read(document));
    body.push_str(&tables::environment(document));
    let containers = settings.containers.len();
    page(document, containers, &title(document), &intro, &body)
}

/// The frame of every page: number of containers that have a color, outcome, and markup of the introduction and
/// the body.
pub(crate) fn page<S, R>(
    document: &document::Document<S, R>,
    containers: usize,
    title: &str,
    intro: &str,
    body: &str,
) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Justitia lab: {experiment} on Linux {kernel}</title>\n<style>\n{style}</style></head>\n\
         <body><main>\n<header><p class=\"eyebrow\">Justitia lab, Linux {kernel}</p>\n\
         <h1>{title}</h1>\n{intro}</header>\n{body}</main></body></html>\n",
        experiment = escape(&document.experiment),
        kernel = escape(&document.kernel),
        style = style::sheet(containers),
        title = escape(title),
    )
}

/// The outcome in one line, without judgment.
fn title(document: &Document) -> String {
    let settings = &document.environment.settings;
    let count = settings.containers.len();
    let Some((subject, base)) = contrast(document) else {
        return format!("{}, {count} containers", document.experiment);
    };
    if settings.measure == Measure::Phases {
        return phases::title(document, subject, base);
    }
    if settings.measure == Measure::Residency {
        let least = |policy: Policy| {
            let files = &document.policies[&policy].figures.files;
            percent(files.first().and_then(FileFigures::least_part), 0)
        };
        return format!(
            "{}: at least {} of the shared file stayed under {}, {} under {}",
            document.experiment,
            least(subject),
            subject.name(),
            least(base),
            base.name(),
        );
    }
    let pv = |policy: Policy| number(document.policies[&policy].figures.pv, 2);
    let change = change(
        document.policies[&subject].figures.total_mb_per_s,
        document.policies[&base].figures.total_mb_per_s,
    );
    format!(
        "{}, {count} containers: PV {} under {}, {} under {}{}",
        document.experiment,
        pv(subject),
        subject.name(),
        pv(base),
        base.name(),
        change.map_or(String::new(), |change| format!("; total {change}")),
    )
}

/// The policy that the experiment is about, and its baseline.
pub(crate) fn contrast(document: &Document) -> Option<(Policy, Policy)> {
    let has = |policy: &Policy| document.policies.contains_key(policy);
    let subjects = [
        Policy::Hostile,
        Policy::Guarded,
        Policy::GateLoop,
        Policy::GateStride,
        Policy::Proportional,
        Policy::Justitia,
        Policy::Strict,
    ];
    let subject = subjects.into_iter().find(has)?;
    let bases = match subject {
        Policy::Hostile => vec![Policy::Proportional],
        _ => vec![Policy::Conventional, Policy::Memcg],
    };
    let base = bases.into_iter().find(has)?;
    Some((subject, base))
}

/// The relative change from one number to another, as in "+1.8 %".
fn change(to: Option<f64>, from: Option<f64>) -> Option<String> {
    let (to, from) = (to?, from.filter(|from| *from > 0.0)?);
    let percent = (to / from - 1.0) * 100.0;
    let sign = if percent >= 0.05 { "+" } else { "" };
    Some(format!("{sign}{}\u{a0}%", fixed(percent, 1)))
}

fn has_responses(document: &Document) -> bool {
    let mut results = document.policies.values();
    results.any(|result| !result.responses.is_empty())
}

/// The part of a run that the figures cover.
pub(crate) fn window_words(document: &Document) -> String {
    let settings = &document.environment.settings;
    match settings.measure {
        Measure::Window | Measure::Residency => format!(
            "{} s of load, the first {} s left out",
            settings.seconds,
            fixed(settings.warmup_s, 0)
        ),
        Measure::Completion => "each container until its file was read".to_owned(),
        Measure::Phases => format!("{} s", settings.seconds),
    }
}

/// The run whose PV is nearest to the median; the charts over time show this run.
pub(crate) fn representative(result: &PolicyResult) -> Option<&AnalyzedRun> {
    nearest(&result.runs, result.figures.pv, |run| run.figures.pv)
}

/// The run whose figure is nearest to the median; an unknown one is the farthest.
fn nearest<R>(runs: &[R], median: Option<f64>, of: impl Fn(&R) -> Option<f64>) -> Option<&R> {
    let distance = |run: &R| {
        of(run)
            .zip(median)
            .map_or(f64::MAX, |(figure, median)| (figure - median).abs())
    };
    runs.iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

fn how_to_read(document: &Document) -> String {
    let expected = description(&document.experiment).map_or("", |description| description.expected);
    let bandwidth = match document.environment.settings.measure {
        Measure::Window => "Bandwidth is what applications read and wrote through the page cache.",
        Measure::Phases if has_responses(document) => {
            "Windows begin one second apart and do not reach over the next event. Bandwidth is of the whole \
             run, and so is the ideal share of a container: by weight among those that worked."
        }
        Measure::Phases => {
            "A phase's bandwidth is what was read, or touched of anonymous memory, over its \
             length. An operation is one request, or 2 MiB of memory touched; percentiles are \
             upper bounds, at most an eighth too high. Bandwidth elsewhere is of the whole run."
        }
        Measure::Residency => {
            "A file's residency is what mincore(2) says once a second; <i>least</i> is the lowest \
             value after the pollution began. Bandwidth is what applications read."
        }
        Measure::Completion => {
            "Bandwidth of a container is its file over the time that reading it took; the total is \
             all files over the time until the last was read, so it is less than the sum. A \
             container that is done leaves the disk to the others, which pulls the ratios together: even a disk \
             divided exactly by weights of 1:2:4:8 gives PV 2.3 when nothing is cached. PV while \
             all read, where there is one, leaves that out."
        }
    };
    format!(
        "<h2>How to read this</h2>\n<p>{}</p>\n<p>{bandwidth} MB is 10<sup>6</sup> bytes. \
         Normalized means divided by the bandwidth of the lowest weight. <b>PV</b>, \
         proportionality variation, is the mean distance between normalized and ideal bandwidth; \
         0 is perfect, and noise of the smallest container is amplified. <b>Share error</b> is the \
         part of all bytes that went to the wrong container. <b>U</b>, utility, is the sum of \
         w<sub>i</sub>/W ln b<sub>i</sub>; it falls when a policy makes ratios right by taking \
         from everybody. <b>Hit ratio</b> is an estimate, 1 minus device reads over application \
         reads, and counts readahead as misses.</p>\n",
        escape(expected)
    )
}

#[cfg(test)]
mod tests;
