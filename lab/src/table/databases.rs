//! The figures of a database experiment as text for a terminal.

use std::fmt::Write;

use super::known;
use crate::experiments::databases::analysis::{databases, Document, Figures};

/// Transactions, satisfied time and the median rate of each container in each phase.
pub fn render(document: &Document) -> String {
    let settings = &document.environment.settings.databases;
    let mut text = format!(
        "{} on Linux {}, phases of {} s\n\n{:<14}{:>13}{:>11}{:>10}{:>11}{:>9}",
        document.experiment,
        document.kernel,
        settings.phase_s,
        "policy",
        "transactions",
        "satisfied",
        "cache MB",
        "others MB",
        "free MB"
    );
    for container in settings.containers.iter().filter(|c| c.neighbor.is_none()) {
        let _ = write!(text, "{:>9}", format!("{} sat.", container.name));
    }
    text.push('\n');
    for (policy, result) in &document.policies {
        let figures = &result.figures;
        let _ = write!(
            text,
            "{:<14}{:>13.0}{:>11}{:>10}{:>11}{:>9}",
            policy.name(),
            figures.transactions,
            percent(figures.satisfied),
            known(figures.cache_mb, 0),
            known(figures.others_mb, 0),
            known(figures.free_mb, 0)
        );
        for container in databases(settings, &figures.containers) {
            let _ = write!(text, "{:>9}", percent(container.satisfied));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "\nmedian transactions per second");
    for (index, container) in settings.containers.iter().enumerate() {
        let objective = match container.neighbor {
            Some(_) => "units".to_owned(),
            None => container.objective_tps.to_string(),
        };
        let name = format!("{} ({objective})", container.name);
        let _ = write!(text, "{name:<14}");
        for phase in &settings.phases {
            let _ = write!(text, "{phase:>9}");
        }
        text.push('\n');
        for (policy, result) in &document.policies {
            let _ = writeln!(
                text,
                "  {:<12}{}",
                policy.name(),
                rates(&result.figures, index)
            );
        }
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

fn rates(figures: &Figures, index: usize) -> String {
    let Some(container) = figures.containers.get(index) else {
        return String::new();
    };
    let mut text = String::new();
    for phase in &container.phases {
        let _ = write!(text, "{:>9}", known(phase.median_tps, 0));
    }
    text
}

pub fn percent(part: Option<f64>) -> String {
    part.map_or("unknown".to_owned(), |part| {
        format!("{:.0} %", part * 100.0)
    })
}
