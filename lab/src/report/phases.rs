//! The phases of loads that time themselves, and the responses to an experiment's events: tables, and the
//! headline.

use super::html::{fixed, number, percent};
use super::table::{Cell, Column, Table};
use crate::analysis::figures::ContainerFigures;
use crate::analysis::phases::PhaseFigures;
use crate::analysis::responses::{EventFigures, Response, BAND};
use crate::analysis::result::PolicyResult;
use crate::analysis::weighted::Document;
use crate::protocol::Policy;

type Row<'a> = (Policy, &'a ContainerFigures, &'a PhaseFigures);

/// Bandwidth and latencies of each container's phases, policy by policy.
pub fn table(document: &Document) -> Table {
    let columns: [Column<Row>; 9] = [
        ("Policy", |(policy, ..)| policy.name().into()),
        ("Container", |(_, container, _)| (&container.name).into()),
        ("Phase", |(.., phase)| (&phase.name).into()),
        ("Seconds", |(.., phase)| Cell::number(phase.seconds, 2)),
        ("MB/s", |(.., phase)| Cell::number(phase.mb_per_s, 1)),
        ("Operations", |(.., phase)| Cell::number(phase.ops, 0)),
        ("p50 ms", |(.., phase)| Cell::number(phase.p50_ms, 2)),
        ("p99 ms", |(.., phase)| Cell::number(phase.p99_ms, 2)),
        ("Longest ms", |(.., phase)| Cell::number(phase.max_ms, 1)),
    ];
    let containers = document
        .in_order()
        .flat_map(|(policy, result)| result.figures.containers.iter().map(move |c| (policy, c)));
    let phases = containers.flat_map(|(policy, c)| c.phases.iter().map(move |p| (policy, c, p)));
    Table::of("Quiet and under pressure", &columns, phases)
}

/// The figures in the tables of responses.
pub fn about_responses() -> String {
    let band = percent(Some(BAND), 0);
    format!(
        "Settled: seconds after the event from which on every window lies within {band} of the ideal, the \
         share by weight of all bytes in that window. Overshoot: the greatest excess over the ideal once it \
         was reached. Outside: part of the windows beyond {band} after the first one within. One value per run."
    )
}

/// Settling time and overshoot of each group, event by event, policies side by side.
pub fn responses(document: &Document) -> Vec<Table> {
    let of = |(policy, result): (Policy, &PolicyResult)| {
        let tables = result
            .responses
            .iter()
            .map(move |event| event_table(policy, event));
        tables.collect::<Vec<_>>()
    };
    document.in_order().flat_map(of).collect()
}

fn event_table(policy: Policy, event: &EventFigures) -> Table {
    let caption = format!(
        "{}: {} at {} s, windows of {} s until {} s",
        policy.name(),
        event.event,
        fixed(event.at_s, 0),
        fixed(event.window_s, 0),
        fixed(event.until_s, 0)
    );
    let head = ["Container", "Weight", "Settled s", "Overshoot", "Outside"];
    let mut table = Table::new(&caption, head);
    for container in &event.containers {
        let runs = |cell: fn(&Response) -> String| {
            let cells: Vec<String> = container.runs.iter().map(cell).collect();
            cells.join(", ").into()
        };
        table.row([
            (&container.name).into(),
            container.weight.into(),
            runs(|run| settled(run.settled_s)),
            runs(|run| percent(run.overshoot, 0)),
            runs(|run| percent(run.outside, 0)),
        ]);
    }
    table.row([
        "the worst".into(),
        "".into(),
        last_settled(event).into(),
        Cell::percent(event.overshoot(), 0),
        "".into(),
    ]);
    table
}

/// The responses of all groups together, policies side by side.
pub fn worst_responses(document: &Document) -> Table {
    let results = || document.in_order().map(|(_, result)| &result.responses);
    let policies = document.in_order().map(|(policy, _)| Cell::Policy(policy));
    let head = [Cell::from("event")].into_iter().chain(policies);
    let mut table = Table::new("All settled after seconds, and greatest overshoot", head);
    for (i, event) in results().next().into_iter().flatten().enumerate() {
        let name = format!("{}, {} s windows", event.event, fixed(event.window_s, 0));
        let cells = results().map(|events| {
            let words = |event: &EventFigures| {
                format!("{}, {}", last_settled(event), percent(event.overshoot(), 0))
            };
            events
                .get(i)
                .map_or_else(|| "–".into(), |event| words(event).into())
        });
        table.row([name.into()].into_iter().chain(cells));
    }
    table
}

/// Seconds until the last group settled, or how many did.
fn last_settled(event: &EventFigures) -> String {
    let (settled, all) = event.settled();
    let last_s = event.settled_s().map(|s| fixed(s, 0));
    last_s.unwrap_or_else(|| format!("{settled} of {all} settled"))
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
