//! The table at the end of an experiment: a row per container, a column per policy, figures beneath.
//!
//! Plain text, aligned by character count, no wider than its numbers need.

pub mod databases;

use std::fmt::Write;

use crate::analysis::figures::Figures;
use crate::analysis::notes::notes;
use crate::analysis::residency::FileFigures;
use crate::analysis::responses::EventFigures;
use crate::analysis::result::PolicyResult;
use crate::analysis::weighted::Document;
use crate::experiments::Measure;
use crate::report::tables::lru_name;
use justitia_machine::qemu::Clock;

/// Columns before the first policy: container, weight, ideal share, ideal ratio.
const FIXED: usize = 4;

/// A line beneath the containers: label, figure, decimals.
type Footer = (&'static str, fn(&Figures) -> Option<f64>, usize);

const FOOTER: [Footer; 9] = [
    ("PV", |f| f.pv, 2),
    ("  of writes", |f| f.pv_writes, 2),
    ("  of reads", |f| f.pv_reads, 2),
    ("  while all read", |f| f.pv_while_all_work, 2),
    ("share error", |f| f.share_error, 3),
    ("U", |f| f.utility, 3),
    ("total MB/s", |f| f.total_mb_per_s, 1),
    ("hit ratio (estimate)", |f| f.hit_ratio, 2),
    ("mean latency ms", |f| f.mean_latency_ms, 2),
];

/// The table, with a line on the setup above it and notes beneath.
pub fn render(document: &Document) -> String {
    let mut text = setup(document);
    text.push('\n');
    text.push_str(&align(&heading(document), &rows(document)));
    for note in notes(document) {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn setup(document: &Document) -> String {
    let settings = &document.environment.settings;
    let choices = &settings.choices;
    let scheduler = choices.scheduler.name();
    let window = match settings.measure {
        Measure::Window | Measure::Residency => {
            format!(
                "{} s without the first {:.0} s",
                settings.seconds, settings.warmup_s
            )
        }
        Measure::Completion => "until each file was read".to_owned(),
        Measure::Phases => format!("{} s in phases", settings.seconds),
    };
    let runs = if choices.runs > 1 {
        format!("median of {} runs", choices.runs)
    } else {
        "one run".to_owned()
    };
    format!(
        "{} on Linux {}: {} MiB, {} CPUs{}, disk {} MB/s, {}, {} LRU; {window}; {runs}\n",
        document.experiment,
        document.kernel,
        choices.memory_bytes >> 20,
        choices.cpus,
        match choices.clock {
            Clock::Host => String::new(),
            clock @ Clock::Instructions { .. } => format!(", clock: {clock}"),
        },
        choices.disk_mb_per_s,
        match choices.volume {
            Some(volume) => format!("{} over {scheduler}", volume.name()),
            None => scheduler,
        },
        lru_name(choices.lru),
    )
}

fn heading(document: &Document) -> [Vec<String>; 2] {
    let mut names = vec![String::new(); FIXED];
    let mut columns: Vec<String> = ["container", "weight", "ideal", "ratio"]
        .map(str::to_owned)
        .to_vec();
    for (policy, _) in document.in_order() {
        names.push(policy.name().to_owned());
        columns.extend(["MB/s".to_owned(), "ratio".to_owned()]);
    }
    [names, columns]
}

fn rows(document: &Document) -> Vec<Vec<String>> {
    let results: Vec<&PolicyResult> = document.in_order().map(|(_, result)| result).collect();
    let mut rows = Vec::new();
    for (i, container) in document.environment.settings.containers.iter().enumerate() {
        let first = results
            .first()
            .and_then(|result| result.figures.containers.get(i));
        let share = first.and_then(|c| c.ideal_share);
        let mut row = vec![
            container.name.clone(),
            container.weight.to_string(),
            share.map_or("-".to_owned(), |share| format!("{:.1}%", share * 100.0)),
            known(first.and_then(|c| c.ideal_normalized), 2),
        ];
        for result in &results {
            let figures = result.figures.containers.get(i);
            row.push(known(figures.and_then(|c| c.mb_per_s), 2));
            row.push(known(figures.and_then(|c| c.normalized), 2));
        }
        rows.push(row);
    }
    rows.push(Vec::new());
    rows.extend(beneath(&results));
    rows
}

/// The rows beneath the containers: a label, and two cells for each policy.
fn beneath(results: &[&PolicyResult]) -> Vec<Vec<String>> {
    let Some(first) = results.first() else {
        return Vec::new();
    };
    let row = |label: String, cells: &dyn Fn(&PolicyResult) -> [String; 2]| {
        let mut row = vec![label];
        row.resize(FIXED, String::new());
        row.extend(results.iter().flat_map(|result| cells(result)));
        row
    };
    let mut rows = Vec::new();
    for (i, file) in first.figures.files.iter().enumerate() {
        // In column `ratio`, the part of the file.
        let label = format!("{}, least MB resident", file.name);
        rows.push(row(label, &|result| {
            let file = result.figures.files.get(i);
            let part = file.and_then(FileFigures::least_part);
            [
                known(file.and_then(|file| file.least_mb), 1),
                known(part, 2),
            ]
        }));
    }
    for (c, container) in first.figures.containers.iter().enumerate() {
        for (p, phase) in container.phases.iter().enumerate() {
            let label = format!("{} {} MB/s, p99 ms", container.name, phase.name);
            rows.push(row(label, &|result| {
                let container = result.figures.containers.get(c);
                let phase = container.and_then(|container| container.phases.get(p));
                [
                    known(phase.and_then(|p| p.mb_per_s), 1),
                    known(phase.and_then(|p| p.p99_ms), 1),
                ]
            }));
        }
    }
    for (i, event) in first.responses.iter().enumerate() {
        let windows = format!("{:.0} s windows", event.window_s);
        let label = format!("{}, {windows}: all settled s, overshoot", event.event);
        rows.push(row(label, &|result| {
            let event = result.responses.get(i);
            let settled = event.map(|event| match (event.settled_s(), event.settled()) {
                (Some(settled_s), _) => format!("{settled_s:.0}"),
                (None, (settled, all)) => format!("{settled} of {all}"),
            });
            let over = known(event.and_then(EventFigures::overshoot), 2);
            [settled.unwrap_or_else(|| "-".to_owned()), over]
        }));
    }
    for (label, field, digits) in FOOTER {
        if results
            .iter()
            .any(|result| field(&result.figures).is_some())
        {
            rows.push(row(label.to_owned(), &|result| {
                [String::new(), known(field(&result.figures), digits)]
            }));
        }
    }
    rows
}

fn known(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Pads every column to its widest cell. The first header line names groups of two columns. A row's first
/// cell may run over the fixed columns if they are empty.
fn align([groups, columns]: &[Vec<String>; 2], rows: &[Vec<String>]) -> String {
    let length = |text: &str| text.chars().count();
    let mut widths: Vec<usize> = columns.iter().map(|cell| length(cell)).collect();
    for row in rows {
        let over = row.get(1).is_some_and(String::is_empty);
        for (i, cell) in row.iter().enumerate().filter(|(i, _)| !(over && *i == 0)) {
            widths[i] = widths[i].max(length(cell));
        }
    }
    for (g, name) in groups.iter().enumerate().skip(FIXED) {
        let first = FIXED + 2 * (g - FIXED);
        let have = widths[first] + 2 + widths[first + 1];
        widths[first] += length(name).saturating_sub(have);
    }
    let label_width: usize = widths.iter().take(FIXED).sum::<usize>() + 2 * (FIXED - 1);
    let mut text = format!("{:label_width$}", "");
    for (g, name) in groups.iter().enumerate().skip(FIXED) {
        let first = FIXED + 2 * (g - FIXED);
        let width = widths[first] + 2 + widths[first + 1];
        let _ = write!(text, "   {name:>width$}");
    }
    finish(&mut text);
    for row in std::iter::once(columns).chain(rows) {
        let over = row.get(1).is_some_and(String::is_empty);
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if i >= FIXED && (i - FIXED) % 2 == 0 {
                "   "
            } else {
                "  "
            };
            match i {
                0 => {
                    let width = if over { label_width } else { *width };
                    let _ = write!(text, "{cell:<width$}");
                }
                1..FIXED if over => {}
                _ => {
                    let _ = write!(text, "{gap}{cell:>width$}");
                }
            }
        }
        finish(&mut text);
    }
    text
}

fn finish(line: &mut String) {
    line.truncate(line.trim_end_matches(' ').len());
    line.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture;

    #[test]
    fn every_line_of_the_body_ends_in_the_same_column() {
        let table = render(&fixture::document(
            "fileserver --weights 100,10000 --names a,a-long-name-of-a-container --runs 2",
        ));
        let lines: Vec<&str> = table
            .lines()
            .skip(2)
            .filter(|line| !line.is_empty())
            .collect();
        let width = lines[0].chars().count();
        for line in &lines {
            assert_eq!(line.chars().count(), width, "{line}\n{table}");
        }
        assert!(lines[0].ends_with("proportional"));
        assert!(lines[1].starts_with("container") && lines[1].ends_with("ratio"));
    }

    #[test]
    fn containers_and_figures_of_all_policies_are_in_the_table() {
        let table = render(&fixture::document("readmix"));
        for word in [
            "w800",
            "53.3%",
            "8.00",
            "conventional",
            "memcg",
            "strict",
            "share error",
        ] {
            assert!(table.contains(word), "{word}\n{table}");
        }
    }
}
