//! Notes on the validity of a figure, derived from the record itself.

use super::record::RunRecord;
use super::result::{AnalyzedRun, PolicyResult};
use super::weighted::Document;
use crate::experiments::Measure;
use crate::protocol::Policy;
use justitia_machine::qemu::Clock;

/// A disk used at less than this fraction of its bandwidth is not contended.
const CONTENDED_FROM: f64 = 0.85;
/// If the host is busier than this with other work, it distorts the measurement.
const QUIET_BELOW: f64 = 0.1;
/// Runs whose host had at least this fraction of the fastest speed are comparable.
const SAME_SPEED_FROM: f64 = 0.85;
/// A guest this busy has no CPU time to spare.
const SHORT_FROM: f64 = 0.95;

/// Notes on a document, the most serious first. Empty if nothing stands out.
pub fn notes(document: &Document) -> Vec<String> {
    let settings = &document.environment.settings;
    let mut notes = Vec::new();
    // With a clock of instructions the guest is independent of the host.
    if settings.choices.clock == Clock::Host {
        notes.extend(busy_host(document));
        notes.extend(slow_host(document));
    }
    notes.extend(short_of_cpu(document));
    for (policy, result) in document.in_order() {
        let name = policy.name();
        let figures = &result.figures;
        let compared = !matches!(settings.measure, Measure::Residency | Measure::Phases);
        let without = result.runs.iter().filter(|run| run.figures.pv.is_none());
        let without = without.count();
        if compared && without > 0 && settings.containers.len() > 1 {
            notes.push(format!(
                "{name}: no PV in {without} of {} runs, because a container moved nothing in the window",
                result.runs.len()
            ));
        }
        if settings.measure == Measure::Completion {
            let late = figures
                .containers
                .iter()
                .filter(|c| c.finished_at_s.is_none())
                .count();
            if late > 0 {
                notes.push(format!(
                    "{name}: {late} of {} containers did not finish in {} s; their bandwidth is \
                     over that time",
                    settings.containers.len(),
                    settings.seconds
                ));
            }
        }
        if policy == Policy::Conventional && settings.measure == Measure::Window {
            notes.extend(uncontended(document, name));
        }
        if !result.knobs_restored {
            notes.push(format!(
                "{name}: {} knobs were left changed",
                result.knob_differences.len()
            ));
        }
        let failed = result.failed_boots();
        if failed > 0 {
            notes.push(format!(
                "{name}: the guest panicked {failed} times and was started again"
            ));
        }
        for record in result.runs.iter().map(|run| &run.record) {
            let troubles = record.head.troubles().into_iter();
            let troubles = troubles.chain(of_agent(policy, record));
            let run = record.head.run;
            notes.extend(troubles.map(|trouble| format!("{name}, run {run}: {trouble}")));
        }
        if policy.runs_agent() && result.agent.is_none() && !result.runs.is_empty() {
            notes.push(format!("{name}: the agent's cost could not be measured"));
        }
    }
    notes.extend(slower_operations(document));
    notes.extend(super::gate::lines(document));
    notes.extend(document.hostile.iter().flat_map(super::hostile::lines));
    notes
}

/// The agent did not do what the policy's name says.
fn of_agent(policy: Policy, record: &RunRecord) -> Option<String> {
    if !policy.runs_agent() {
        return None;
    }
    let Some(status) = &record.agent_status else {
        return Some("the agent did not answer `justitia status`".to_owned());
    };
    let observer = status.get("observer")?.as_str()?;
    let counted = observer.starts_with("bpf");
    (!counted).then(|| format!("the agent counted traffic by {observer}, not by BPF"))
}

/// The policies with a run whose figure is at least `from`, with the highest value in percent; `words` stand in
/// between.
fn policies_from(
    document: &Document,
    from: f64,
    words: &str,
    figure: impl Fn(&RunRecord) -> Option<f64>,
) -> Option<String> {
    let most = |(policy, result): (Policy, &PolicyResult)| {
        let figures = result.runs.iter().filter_map(|run| figure(&run.record));
        Some((policy, figures.reduce(f64::max)?))
    };
    let all = document.in_order().filter_map(most);
    list(
        all.filter(|(_, most)| *most >= from)
            .map(|(policy, most)| format!("{:.0} % {words} {}", most * 100.0, policy.name())),
    )
}

/// The words with commas between them; `None` without words.
fn list(words: impl Iterator<Item = String>) -> Option<String> {
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// On a host with other work, policies differ without cause.
fn busy_host(document: &Document) -> Option<String> {
    let busy = policies_from(document, QUIET_BELOW, "during", |record| {
        record.head.host_busy_with_others
    })?;
    Some(format!(
        "other work took the host's CPU time ({busy}): do not compare totals or latencies; run \
         again on an idle host"
    ))
}

/// The same holds if the host's CPUs change their speed, although no other work is visible there.
fn slow_host(document: &Document) -> Option<String> {
    let speeds = || {
        document.in_order().flat_map(|(policy, result)| {
            let speed =
                move |run: &AnalyzedRun| run.record.head.host_speed.map(|speed| (policy, speed));
            result.runs.iter().filter_map(speed)
        })
    };
    let fastest = speeds().map(|(_, speed)| speed).reduce(f64::max)?;
    let slow = speeds()
        .filter(|(_, speed)| *speed < fastest * SAME_SPEED_FROM)
        .map(|(policy, speed)| format!("{:.2} during {}", speed / fastest, policy.name()));
    let slow = list(slow)?;
    Some(format!(
        "the host's CPUs were slower in some runs ({slow} of the fastest): do not compare totals or \
         latencies; run again"
    ))
}

/// A guest without CPU time to spare does not get faster by what a policy does with memory and disk.
fn short_of_cpu(document: &Document) -> Option<String> {
    let busy = policies_from(document, SHORT_FROM, "busy under", |record| {
        record.guest_cpu_busy
    })?;
    Some(format!(
        "the guest was short of CPU ({busy}), which is not divided by weight here: use larger files, a \
         slower disk or a faster host"
    ))
}

/// On a disk with time to spare nobody competes.
fn uncontended(document: &Document, name: &str) -> Option<String> {
    let figures = &document.policies.get(&Policy::Conventional)?.figures;
    let used = figures.device_read_mb_per_s? + figures.device_write_mb_per_s?;
    let part = used / f64::from(document.environment.settings.choices.disk_mb_per_s);
    (part < CONTENDED_FROM).then(|| {
        format!(
            "{name}: the disk was used at {:.0} % of its bandwidth; the containers may not have \
             competed for it",
            part * 100.0
        )
    })
}

/// Operations over two seconds that do not occur under conventional.
fn slower_operations(document: &Document) -> Option<String> {
    let slow = |policy: Policy| document.policies.get(&policy)?.figures.slow_ops;
    let base = slow(Policy::Conventional)?;
    let worse = document
        .in_order()
        .filter(|(policy, _)| policy.runs_agent())
        .filter_map(|(policy, _)| Some((policy, slow(policy)?)))
        .filter(|(_, count)| *count > base)
        .map(|(policy, count)| format!("{count:.0} under {}", policy.name()));
    let worse = list(worse)?;
    Some(format!(
        "operations over 2 s: {worse}, {base:.0} under conventional"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture;

    /// The first run under a policy.
    fn first(document: &mut Document, policy: Policy) -> &mut RunRecord {
        let result = document.policies.get_mut(&policy).unwrap();
        &mut result.runs[0].record
    }

    #[test]
    fn a_sound_run_has_no_notes_and_an_idle_disk_one() {
        let mut document = fixture::document("fileserver --weights 100,200 --disk-mbps 40");
        assert_eq!(notes(&document), Vec::<String>::new());
        document.environment.settings.choices.disk_mb_per_s = 400;
        assert!(notes(&document)[0].contains("may not have competed"));
    }

    #[test]
    fn a_busy_host_is_the_first_thing_to_know() {
        let mut document = fixture::document("fileserver --weights 100,200");
        let head = &mut first(&mut document, Policy::Memcg).head;
        head.host_busy_with_others = Some(0.05);
        assert!(notes(&document).is_empty());
        let head = &mut first(&mut document, Policy::Memcg).head;
        head.host_busy_with_others = Some(0.4);
        assert!(notes(&document)[0].contains("40 % during memcg"));
        document.environment.settings.choices.clock = Clock::Instructions {
            shift: 0,
            jumps: false,
        };
        assert!(notes(&document).is_empty(), "which its clock does not see");
    }

    #[test]
    fn a_host_that_changes_its_speed_is_noted() {
        let mut document = fixture::document("fileserver --weights 100,200");
        let policies = [Policy::Conventional, Policy::Memcg];
        for (policy, speed) in policies.into_iter().zip([600.0, 550.0]) {
            first(&mut document, policy).head.host_speed = Some(speed);
        }
        assert!(notes(&document).is_empty());
        first(&mut document, Policy::Memcg).head.host_speed = Some(300.0);
        assert!(notes(&document)[0].contains("0.50 during memcg"));
    }

    #[test]
    fn a_guest_without_idle_time_is_noted() {
        let mut document = fixture::document("fileserver --weights 100,200");
        first(&mut document, Policy::Memcg).guest_cpu_busy = Some(0.7);
        assert!(notes(&document).is_empty());
        first(&mut document, Policy::Memcg).guest_cpu_busy = Some(0.98);
        assert!(notes(&document)[0].contains("98 % busy under memcg"));
    }

    #[test]
    fn a_run_in_which_the_policy_was_not_what_its_name_says_is_noted() {
        let mut document = fixture::document("fileserver --weights 100,200");
        let record = first(&mut document, Policy::Proportional);
        record.head.failed_commands = vec!["justitia weight /app/a 800: no such group".to_owned()];
        assert!(notes(&document)[0].contains("run 1: failed: justitia weight /app/a 800"));
        let record = first(&mut document, Policy::Proportional);
        record.head.failed_commands.clear();
        record.agent_status = Some(serde_json::json!({"observer": "proc"}));
        assert!(notes(&document)[0].contains("counted traffic by proc"));
        first(&mut document, Policy::Proportional).agent_status = None;
        assert!(notes(&document)[0].contains("did not answer"));
    }

    #[test]
    fn a_run_without_a_pv_is_noted_although_others_have_one() {
        let mut document = fixture::document("fileserver --weights 100,200");
        let result = document.policies.get_mut(&Policy::Memcg).unwrap();
        result.runs[0].figures.pv = None;
        assert!(notes(&document)[0].contains("memcg: no PV in 1 of 1 runs"));
    }

    #[test]
    fn more_slow_operations_than_conventional_are_noted() {
        let mut document = fixture::document("fileserver --weights 100,200");
        let result = document.policies.get_mut(&Policy::Proportional).unwrap();
        result.figures.slow_ops = Some(9.0);
        assert!(notes(&document)
            .iter()
            .any(|note| note.contains("9 under proportional")));
    }

    #[test]
    fn an_unfinished_job_is_noted() {
        let document = fixture::document("reread --seconds 3");
        assert!(notes(&document)
            .iter()
            .any(|note| note.contains("did not finish in 3 s")));
    }
}
