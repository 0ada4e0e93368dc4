//! The phases of loads that time themselves, and the responses to an experiment's events: tables, and the
//! headline.

use super::html::{escape, fixed, number, percent, Column, Table};
use crate::analysis::figures::ContainerFigures;
use crate::analysis::phases::PhaseFigures;
use crate::analysis::responses::{EventFigures, Response, BAND};
use crate::analysis::weighted::Document;
use crate::protocol::Policy;

type Row<'a> = (Policy, &'a ContainerFigures, &'a PhaseFigures);

/// Bandwidth and latencies of each container's phases, policy by policy.
pub fn table(document: &Document) -> String {
    let columns: [Column<Row>; 9] = [
        ("Policy", |(policy, ..)| policy.name().to_owned()),
        ("Container", |(_, container, _)| escape(&container.name)),
        ("Phase", |(.., phase)| escape(&phase.name)),
        ("Seconds", |(.., phase)| number(phase.seconds, 2)),
        ("MB/s", |(.., phase)| number(phase.mb_per_s, 1)),
        ("Operations", |(.., phase)| number(phase.ops, 0)),
        ("p50 ms", |(.., phase)| number(phase.p50_ms, 2)),
        ("p99 ms", |(.., phase)| number(phase.p99_ms, 2)),
        ("Longest ms", |(.., phase)| number(phase.max_ms, 1)),
    ];
    let containers = document
        .in_order()
        .flat_map(|(policy, result)| result.figures.containers.iter().map(move |c| (policy, c)));
    let phases = containers.flat_map(|(policy, c)| c.phases.iter().map(move |p| (policy, c, p)));
    let table = Table::of("Quiet and under pressure", &columns, phases);
    format!("<h2>Phases</h2>\n{}", table.render())
}

/// Settling time and overshoot of each group, event by event, policies side by side.
pub fn responses(document: &Document) -> String {
    let mut html = format!(
        "<h2>Step responses</h2>\n<p class=\"note\">Settled: seconds after the event from which on every \
         window lies within {} of the ideal, the share by weight of all bytes in that window. Overshoot: the \
         greatest excess over the ideal once it was reached. Outside: part of the windows beyond {} after the \
         first one within. One value per run.</p>\n",
        percent(Some(BAND), 0),
        percent(Some(BAND), 0),
    );
    for (policy, result) in document.in_order() {
        for event in &result.responses {
            html.push_str(&event_table(policy, event));
        }
    }
    html
}

fn event_table(policy: Policy, event: &EventFigures) -> String {
    let caption = format!(
        "{}: {} at {} s, windows of {} s until {} s",
        policy.name(),
        event.event,
        fixed(event.at_s, 0),
        fixed(event.window_s, 0),
        fixed(event.until_s, 0)
    );
    let head = ["Container", "Weight", "Settled s", "Overshoot", "Outside"];
    let mut table = Table::numbers(&caption, &head);
    for container in &event.containers {
        let runs = |cell: fn(&Response) -> String| {
            let cells: Vec<String> = container.runs.iter().map(cell).collect();
            cells.join(", ")
        };
        table.row(vec![
            escape(&container.name),
            container.weight.to_string(),
            runs(|run| settled(run.settled_s)),
            runs(|run| percent(run.overshoot, 0)),
            runs(|run| percent(run.outside, 0)),
        ]);
    }
    table.row(vec![
        "the worst".to_owned(),
        String::new(),
        settled(event.settled_s()),
        percent(event.overshoot(), 0),
        String::new(),
    ]);
    table.render()
}

fn settled(settled_s: Option<f64>) -> String {
    settled_s.map_or_else(|| "not settled".to_owned(), |s| fixed(s, 0))
}

/// Groups that settled after the events, in one line.
fn responses_title(document: &Document, subject: Policy, base: Policy) -> String {
    let told = |policy: Policy| {
        let events = document.policies[&policy].responses.iter();
        let counts = events.map(EventFigures::settled);
        let (settled, all) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        format!(
            "{settled} of {all} responses settled under {}",
            policy.name()
        )
    };
    format!("{}: {}; {}", document.experiment, told(subject), told(base))
}

/// The first container's phase under pressure, in one line.
pub fn title(document: &Document, subject: Policy, base: Policy) -> String {
    if !document.policies[&subject].responses.is_empty() {
        return responses_title(document, subject, base);
    }
    let pressed = |policy: Policy| -> Option<&PhaseFigures> {
        let first = document.policies[&policy].figures.containers.first()?;
        first.phases.last()
    };
    let told = |policy: Policy| {
        let phase = pressed(policy);
        format!(
            "{} MB/s, p99 {} ms under {}",
            number(phase.and_then(|p| p.mb_per_s), 1),
            number(phase.and_then(|p| p.p99_ms), 1),
            policy.name(),
        )
    };
    format!("{}: {}; {}", document.experiment, told(subject), told(base))
}
