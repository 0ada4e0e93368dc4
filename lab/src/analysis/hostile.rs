//! Effects of a hostile tenant on the others: bandwidth beside it over bandwidth beside an honest one, and
//! whether the agent stayed within its bounds.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::result::PolicyResult;
use crate::experiments::hostile::AGENT_MEMORY_MAX;
use crate::experiments::settings::Settings;
use crate::protocol::{Policy, TenantReport};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostileFigures {
    /// Per honest container; null if the control was not run.
    pub honest: Vec<HonestFigures>,
    /// Total bandwidth of the honest containers over that in the control.
    pub honest_ratio: Option<f64>,
    /// The agent's bound, 10^6 bytes.
    pub agent_bound_mb: f64,
    /// Peak charge of the agent's cgroup, with page cache and kernel memory.
    pub agent_charged_peak_mb: Option<f64>,
    /// Largest number of problems in `status` two thirds through; null if it did not answer.
    pub problems: Option<usize>,
    /// Settings that changed in cgroups that are nobody's to manage.
    pub unmanaged_written: Vec<String>,
    /// Characters that a terminal would interpret, in the output of commands and the agent's log.
    pub control_characters: u64,
    /// Numbers of the tenant's attacks: the least of the runs.
    pub attacks: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HonestFigures {
    pub name: String,
    /// Its bandwidth beside the hostile tenant over that beside the honest one.
    pub ratio: Option<f64>,
}

/// Figures of the policies of an experiment; `None` if no tenant attacked.
pub fn figures(
    settings: &Settings,
    policies: &BTreeMap<Policy, PolicyResult>,
) -> Option<HostileFigures> {
    let hostile = policies.get(&Policy::Hostile)?;
    let control = policies.get(&Policy::Proportional);
    let honest = settings.containers.iter().enumerate();
    let honest: Vec<usize> = honest
        .filter(|(_, c)| c.user.is_none())
        .map(|(i, _)| i)
        .collect();
    let rate = |result: &PolicyResult, i: usize| result.figures.containers.get(i)?.mb_per_s;
    let sum = |result: &PolicyResult| -> Option<f64> {
        honest.iter().map(|&i| rate(result, i)).sum::<Option<f64>>()
    };
    let over = |a: Option<f64>, b: Option<f64>| Some(a? / b.filter(|b| *b > 0.0)?);
    let runs = || hostile.runs.iter().map(|run| &run.record);
    let reports: Vec<&TenantReport> = runs().filter_map(|run| run.tenant.as_ref()).collect();
    let peaks = reports.iter().map(|report| report.agent_charged_peak_bytes);
    let problems = runs().map(|run| {
        let problems = run.agent_status.as_ref()?.get("problems")?.as_array()?;
        Some(problems.len())
    });
    let mut attacks: BTreeMap<String, u64> = BTreeMap::new();
    for (name, &count) in reports.iter().flat_map(|report| &report.done) {
        let least = attacks.entry(name.clone()).or_insert(count);
        *least = count.min(*least);
    }
    let unmanaged: BTreeSet<String> = reports
        .iter()
        .flat_map(|report| report.unmanaged_written.clone())
        .collect();
    Some(HostileFigures {
        honest: honest
            .iter()
            .map(|&i| HonestFigures {
                name: settings.containers[i].name.clone(),
                ratio: over(rate(hostile, i), control.and_then(|c| rate(c, i))),
            })
            .collect(),
        honest_ratio: over(sum(hostile), control.and_then(sum)),
        agent_bound_mb: AGENT_MEMORY_MAX as f64 / 1e6,
        agent_charged_peak_mb: peaks
            .collect::<Option<Vec<u64>>>()
            .and_then(|peaks| peaks.into_iter().max())
            .map(|bytes| bytes as f64 / 1e6),
        problems: problems
            .collect::<Option<Vec<usize>>>()
            .and_then(|counts| counts.into_iter().max()),
        unmanaged_written: unmanaged.into_iter().collect(),
        control_characters: reports.iter().map(|report| report.control_characters).sum(),
        attacks,
    })
}

pub fn lines(figures: &HostileFigures) -> Vec<String> {
    let percent = |ratio: Option<f64>| {
        ratio.map_or("unknown".to_owned(), |r| {
            format!("{:+.1} %", (r - 1.0) * 100.0)
        })
    };
    let mb = |mb: Option<f64>| mb.map_or("unknown".to_owned(), |mb| format!("{mb:.1}"));
    let honest: Vec<String> = figures
        .honest
        .iter()
        .map(|c| format!("{} {}", c.name, percent(c.ratio)))
        .collect();
    let problems = figures.problems.map(|count| count.to_string());
    let attacks = figures.attacks.iter();
    let attacks: Vec<String> = attacks.map(|(name, n)| format!("{name} {n}")).collect();
    vec![
        format!(
            "honest containers beside the hostile tenant, against an honest one: {} ({})",
            percent(figures.honest_ratio),
            honest.join(", ")
        ),
        format!(
            "hostile: the agent's cgroup held at most {} of {:.1} MB; {} problems in its status; {} settings \
             of others changed; {} control characters printed",
            mb(figures.agent_charged_peak_mb),
            figures.agent_bound_mb,
            problems.as_deref().unwrap_or("an unknown number of"),
            figures.unmanaged_written.len(),
            figures.control_characters
        ),
        format!("hostile: the tenant did {}", attacks.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture;

    #[test]
    fn only_honest_containers_are_compared_and_only_with_a_control() {
        let mut document = fixture::document("hostile --seconds 50");
        let found = document.hostile.clone().expect("figures");
        let names: Vec<&str> = found.honest.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["w100", "w400"]);
        assert!(found.honest_ratio.is_some_and(|r| (r - 1.0).abs() < 0.1));
        assert_eq!(found.problems, Some(2));
        assert_eq!(found.attacks["fifos"], 3);
        assert!(lines(&found)[1].contains("2 problems"));
        document.policies.remove(&Policy::Proportional);
        let alone = document.analyze_again().hostile.expect("figures");
        assert_eq!(alone.honest_ratio, None);
        assert_eq!(alone.honest[0].ratio, None);
        assert!(fixture::document("fileserver").hostile.is_none());
    }
}
