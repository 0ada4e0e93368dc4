//! The end of an experiment on a terminal: a line on the setup, the tables of the page that fit, and the notes.

use std::fmt::Write;

use super::table::{Cell, Table};
use super::tables::{self, lru_name};
use super::{has_responses, phases};
use crate::analysis::notes::notes;
use crate::analysis::result::PolicyResult;
use crate::analysis::weighted::Document;
use crate::experiments::Measure;
use justitia_machine::qemu::Clock;

pub fn render(document: &Document) -> String {
    let mut all = vec![containers(document)];
    match document.environment.settings.measure {
        Measure::Residency => all.push(tables::residency(document)),
        _ if has_responses(document) => all.push(phases::worst_responses(document)),
        Measure::Phases => all.push(phases::table(document)),
        Measure::Window | Measure::Completion => {}
    }
    all.extend([tables::policies(document), tables::apart(document)].map(|t| t.transposed()));
    let mut text = setup(document);
    for table in all {
        let _ = write!(text, "\n{}", table.text());
    }
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

/// A row per container, two columns per policy.
fn containers(document: &Document) -> Table {
    let results: Vec<&PolicyResult> = document.in_order().map(|(_, result)| result).collect();
    let mut head: Vec<Cell> = ["container", "weight", "ideal", "ratio"]
        .map(Cell::from)
        .to_vec();
    for (policy, _) in document.in_order() {
        head.extend([Cell::Policy(policy), "ratio".into()]);
    }
    let mut table = Table::new("MB/s, and its ratio to the lowest weight's", head);
    for (i, container) in document.environment.settings.containers.iter().enumerate() {
        let figures = || {
            results
                .iter()
                .map(|result| result.figures.containers.get(i))
        };
        let first = figures().next().flatten();
        let mut row = vec![
            (&container.name).into(),
            container.weight.into(),
            Cell::percent(first.and_then(|c| c.ideal_share), 1),
            Cell::number(first.and_then(|c| c.ideal_normalized), 2),
        ];
        for container in figures() {
            row.push(Cell::number(container.and_then(|c| c.mb_per_s), 2));
            row.push(Cell::number(container.and_then(|c| c.normalized), 2));
        }
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture;

    #[test]
    fn every_line_of_a_table_ends_in_the_same_column() {
        let text = render(&fixture::document(
            "fileserver --weights 100,10000 --names a,a-long-name-of-a-container --runs 2",
        ));
        for table in text.split("\n\n").skip(1) {
            let lines = table
                .lines()
                .skip(1)
                .filter(|line| !line.starts_with("note"));
            let mut widths: Vec<usize> = lines.map(|line| line.chars().count()).collect();
            widths.dedup();
            assert_eq!(widths.len(), 1, "{text}");
        }
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[3].starts_with("container") && lines[3].ends_with("proportional  ratio"));
    }

    #[test]
    fn containers_and_figures_of_all_policies_are_in_the_text() {
        let text = render(&fixture::document("readmix"));
        for word in [
            "w800",
            "53.3\u{a0}%",
            "8.00",
            "conventional",
            "memcg",
            "strict",
            "Share error",
        ] {
            assert!(text.contains(word), "{word}\n{text}");
        }
    }

    #[test]
    fn phases_files_and_responses_have_their_tables_in_the_text() {
        for (line, words) in [
            ("startup", "pressed"),
            ("sharing", "shared file"),
            ("responses --runs 2", "newcomer, 10 s windows"),
        ] {
            let text = render(&fixture::document(line));
            assert!(text.contains(words), "{text}");
        }
    }
}
