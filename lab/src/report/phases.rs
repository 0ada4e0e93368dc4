//! The phases of loads that time themselves: a table, and the headline.

use super::html::{number, Table};
use crate::analysis::phases::PhaseFigures;
use crate::analysis::weighted::Document;
use crate::protocol::Policy;

/// Bandwidth and latencies of each container's phases, policy by policy.
pub fn table(document: &Document) -> String {
    let mut table = Table::numbers(
        "Quiet and under pressure",
        &[
            "Policy",
            "Container",
            "Phase",
            "Seconds",
            "MB/s",
            "Operations",
            "p50 ms",
            "p99 ms",
            "Longest ms",
        ],
    );
    for (policy, result) in document.in_order() {
        for container in &result.figures.containers {
            for phase in &container.phases {
                table.row(vec![
                    policy.name().to_owned(),
                    container.name.clone(),
                    phase.name.clone(),
                    number(phase.seconds, 2),
                    number(phase.mb_per_s, 1),
                    number(phase.ops, 0),
                    number(phase.p50_ms, 2),
                    number(phase.p99_ms, 2),
                    number(phase.max_ms, 1),
                ]);
            }
        }
    }
    format!("<h2>Phases</h2>\n{}", table.render())
}

/// The first container's phase under pressure, in one line.
pub fn title(document: &Document, subject: Policy, base: Policy) -> String {
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
