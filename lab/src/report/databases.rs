//! report.html of an experiment with databases: the paper's tables IV, VI and VII beside our results, and
//! figures like the paper's 1 to 6. Pure: text in, text out; the page fetches nothing.

use std::fmt::Write;

use super::html::{escape, fixed, percent};
use super::table::{Cell, Table};
use super::{databases_figures, page, tables};
use crate::experiments::databases::analysis::Document;
use crate::experiments::databases::paper::{self, Row};
use crate::experiments::databases::scenario;
use crate::experiments::mib;
use crate::policy::Policy;

pub fn render(document: &Document) -> String {
    let scenario = scenario::find(&document.experiment);
    let mut body = String::from("<h2>Transactions and satisfaction</h2>\n");
    body.push_str(&transactions(document).html());
    body.push_str(&satisfaction(document).html());
    body.push_str(&published(document));
    body.push_str(&memory(document).html());
    body.push_str("<h2>Median rate in each phase</h2>\n");
    let (headings, rates) = rates(document);
    body.push_str(&rates.html());
    if document.experiment == "two-databases" {
        body += &printed("The paper's Table IV", &headings, paper::TABLE_IV, 0);
    }
    body.push_str(&databases_figures::over_time(document));
    body.push_str(&how_to_read(scenario.map_or("", |s| s.expected)));
    body.push_str(&environment(document));
    let intro = format!("<p>{}</p>", escape(scenario.map_or("", |s| s.method)));
    let containers = document.environment.settings.databases.containers.len();
    page(document, containers, &title(document), &intro, &body)
}

/// The outcome in one line, without judgment.
fn title(document: &Document) -> String {
    let each: Vec<String> = document
        .policies
        .iter()
        .map(|(policy, result)| {
            let satisfied = percent(result.figures.satisfied, 0);
            format!("{} {satisfied}", policy.name())
        })
        .collect();
    format!(
        "{}: satisfied time {}",
        document.experiment,
        each.join(", ")
    )
}

/// The end of the experiment on a terminal: the tables of the page with a column for each policy, and the
/// troubles of its runs.
pub fn text(document: &Document) -> String {
    let mut text = format!(
        "{} on Linux {}, phases of {} s\n",
        document.experiment, document.kernel, document.environment.settings.databases.phase_s
    );
    let (_, rates) = rates(document);
    for table in [
        transactions(document),
        satisfaction(document),
        memory(document),
        rates,
    ] {
        let _ = write!(text, "\n{}", table.transposed().text());
    }
    for (policy, result) in &document.policies {
        for record in result.runs.iter().map(|run| &run.record) {
            let left = record.knobs_left.len();
            let left = (left > 0).then(|| format!("{left} knobs were left changed"));
            for trouble in left.into_iter().chain(record.head.troubles()) {
                let _ = writeln!(text, "{} run {}: {trouble}", policy.name(), record.head.run);
            }
        }
    }
    text
}

/// Headings: the containers, and others after them. A program beside the databases counts units of its own.
fn headings(document: &Document, others: &[&str]) -> Vec<String> {
    let containers = &document.environment.settings.databases.containers;
    let names = containers.iter().map(|c| match c.neighbor {
        Some(_) => format!("{} (units)", c.name),
        None => c.name.clone(),
    });
    names
        .chain(others.iter().map(|&other| other.to_owned()))
        .collect()
}

fn table<'a>(
    caption: &str,
    headings: &[String],
    rows: impl IntoIterator<Item = (&'a str, Vec<Cell>)>,
) -> Table {
    let head = ["Policy"].into_iter();
    let mut table = Table::new(caption, head.chain(headings.iter().map(String::as_str)));
    for (name, cells) in rows {
        table.row([name.into()].into_iter().chain(cells));
    }
    table
}

/// Our results in the form of table VI.
fn transactions(document: &Document) -> Table {
    let base = document.policies.get(&Policy::Conventional);
    let base = base.map(|base| base.figures.transactions);
    let base = base.filter(|base| *base > 0.0);
    let rows = document.policies.iter().map(|(policy, result)| {
        let (figures, runs) = (&result.figures, result.runs.len());
        let containers = figures.containers.iter();
        let mut row: Vec<Cell> = containers
            .map(|c| fixed(c.transactions, 0).into())
            .collect();
        let total = Some(figures.transactions);
        row.push(Cell::ranged(total, result.transactions_range, 0, runs));
        let against = base.map(|base| figures.transactions / base - 1.0);
        row.push(Cell::percent(against, 1));
        (policy.name(), row)
    });
    let headings = headings(document, &["Total", "Against no limits"]);
    table("Transactions", &headings, rows)
}

/// Our results in the form of table VII.
fn satisfaction(document: &Document) -> Table {
    let rows = document.policies.iter().map(|(policy, result)| {
        let containers = result.figures.containers.iter();
        let mut row: Vec<Cell> = containers.map(|c| Cell::percent(c.satisfied, 0)).collect();
        let all = percent(result.figures.satisfied, 0);
        let ends = result
            .satisfied_range
            .map(|range| [range.min, range.max].map(|part| percent(Some(part), 0)));
        row.push(Cell::with_range(all, ends, result.runs.len()));
        (policy.name(), row)
    });
    let caption = "Fraction of time satisfied (green or yellow)";
    table(caption, &headings(document, &["All"]), rows)
}

fn memory(document: &Document) -> Table {
    let rows = document.policies.iter().map(|(policy, result)| {
        let figures = &result.figures;
        let each = [figures.cache_mb, figures.others_mb, figures.free_mb];
        (policy.name(), each.map(|mb| Cell::number(mb, 0)).to_vec())
    });
    let headings = ["Containers' page cache", "Page cache of the rest", "Free"].map(str::to_owned);
    table("Memory, mean over the samples, MB", &headings, rows)
}

/// The paper's tables for the scenario.
fn published(document: &Document) -> String {
    if document.experiment != "eight-databases" {
        return String::new();
    }
    let headings = headings(document, &["All"]);
    let transactions = "The paper's Table VI, millions of transactions";
    let satisfied = "The paper's Table VII, percent of time satisfied";
    printed(transactions, &headings, paper::TABLE_VI, 1)
        + &printed(satisfied, &headings, paper::TABLE_VII, 0)
}

fn printed(caption: &str, headings: &[String], rows: &[Row], digits: usize) -> String {
    let rows = rows.iter().map(|(policy, values)| {
        let cells = values.iter().map(|value| fixed(*value, digits).into());
        (policy.name(), cells.collect())
    });
    table(caption, headings, rows).html()
}

/// Our results in the form of table IV, with its headings.
fn rates(document: &Document) -> (Vec<String>, Table) {
    let settings = &document.environment.settings.databases;
    let (mut headings, mut columns) = (Vec::new(), Vec::new());
    let (mut offered, mut objectives) = (Vec::new(), Vec::new());
    for (phase, name) in settings.phases.iter().enumerate() {
        for (index, container) in settings.containers.iter().enumerate() {
            if let Some(rate) = container.offered_tps[phase] {
                headings.push(format!("{name} {}", container.name));
                columns.push((phase, index));
                let counts = container.neighbor.is_none();
                let known = |rate: u32| Cell::number(counts.then_some(rate.into()), 0);
                offered.push(known(rate));
                objectives.push(known(container.objective_tps));
            }
        }
    }
    let ours = document.policies.iter().map(|(policy, result)| {
        let containers = &result.figures.containers;
        let cells = columns
            .iter()
            .map(|&(phase, index)| Cell::number(containers[index].phases[phase].median_tps, 0));
        (policy.name(), cells.collect())
    });
    let asked = [("offered", offered), ("objective", objectives)];
    let caption = "Median transactions per second, by phase and container";
    let table = table(caption, &headings, asked.into_iter().chain(ours));
    (headings, table)
}

fn how_to_read(expected: &str) -> String {
    format!(
        "<h2>How to read this</h2>\n<p>{}</p>\n<p>A transaction is one point select of sysbench. \
         <b>Satisfied</b> is the part of the seconds in which the container's color was green or \
         yellow; for all it is the mean over the containers. <b>Green</b>: at most one transaction \
         waits for each client thread. <b>Yellow</b>: more wait, and the container serves 95 percent of its \
         objective, or of what it is offered if that is less. <b>Red</b>: it serves less. These \
         colors are what the clients saw. The agent acts on the colors that a probe (justitia \
         probe mysql) declares under every policy, some seconds later. Rates and sizes are \
         scaled, so compare ratios with the paper, not numbers. MB is 10<sup>6</sup> bytes.</p>\n",
        escape(expected)
    )
}

fn environment(document: &Document) -> String {
    let settings = &document.environment.settings.databases;
    let mut table = tables::shared_facts(document, &settings.choices);
    table.fact("Disk requests", format_args!("{}/s", settings.disk_iops));
    table.fact("Phase", format_args!("{} s", settings.phase_s));
    let rate = settings.rate;
    table.fact("High load", format_args!("{rate} transactions/s"));
    table.fact("Each database", mib(settings.database_bytes));
    table.fact("Rows asked for", settings.keys.name());
    table.fact("Client threads of a container", settings.threads);
    for (policy, result) in &document.policies {
        for run in &result.runs {
            let name = format!("{}, run {}", policy.name(), run.record.head.run);
            if let Some(cost) = run.record.head.agent {
                let rss = cost.peak_rss_bytes as f64 / 1e6;
                let text = format!("agent {:.1} CPU seconds, {rss:.0} MB at most", cost.cpu_s);
                table.fact(&name, &text);
            }
            let busy = run.record.head.host_busy_with_others;
            if let Some(busy) = busy.filter(|busy| *busy > 0.1) {
                let text = format!("the host was {:.0} % busy with others", busy * 100.0);
                table.fact(&name, &text);
            }
            if let Some(speed) = run.record.head.host_speed {
                table.fact(&name, format_args!("host speed {speed:.0}"));
            }
            for trouble in run.record.head.troubles() {
                table.fact(&name, trouble);
            }
            for knob in &run.record.knobs_left {
                table.fact(&name, format_args!("left changed: {knob}"));
            }
        }
    }
    tables::reproduced(document, &table)
}
