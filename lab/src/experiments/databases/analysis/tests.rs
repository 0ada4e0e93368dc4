use super::super::scenario;
use super::*;
use crate::analysis::run::Run;
use crate::experiment::{Analysis, Experiment};
use crate::experiments::databases::record::Sample;
use crate::policy::Policy;
use crate::protocol::databases::Color;
use crate::report;
use crate::tests::fixture::run_args;

/// Two containers through six phases of five seconds; `served` is the fraction of the offered load that is
/// served.
fn record(settings: &Settings, served: f64) -> RunRecord {
    let mut series = Vec::new();
    for job in &settings.containers {
        let (mut samples, mut transactions) = (Vec::new(), 0.0);
        for (phase, offered) in job.offered_tps.iter().enumerate() {
            for second in 1..=settings.phase_s {
                let tps = offered.map(|offered| f64::from(offered) * served);
                transactions += tps.unwrap_or_default();
                let met = tps.map(|tps| {
                    if tps >= f64::from(job.objective_tps.min(offered.unwrap_or_default())) {
                        Color::Yellow
                    } else {
                        Color::Red
                    }
                });
                samples.push(Sample {
                    at_s: f64::from(phase as u32 * settings.phase_s + second),
                    phase: phase as u32,
                    transactions,
                    tps,
                    queue: tps.map(|_| 3),
                    latency_ms: Some(2.0),
                    color: met,
                    declared: met,
                    memory_bytes: offered.map(|_| 100_000_000),
                    file_bytes: offered.map(|_| 60_000_000),
                    device_reads: Some(10 * u64::from(second)),
                    low_bytes: Some(0),
                    high_bytes: None,
                });
            }
        }
        series.push(Series::of(&samples));
    }
    let end_s = |phase: u32| f64::from(phase * settings.phase_s);
    let host = [
        (Some(20_000_000), Some(150_000_000)),
        (None, None),
        (Some(40_000_000), Some(160_000_000)),
    ];
    RunRecord {
        head: Run {
            run: 1,
            kernel: "6.12-<test>".into(),
            agent_log: "<log>".into(),
            ..Run::default()
        },
        phases: (0..6).map(|i| (end_s(i), end_s(i + 1))).collect(),
        knobs_left: Vec::new(),
        limits: vec![Some(200_000_000); series.len()],
        series,
        host: host
            .map(|(free_bytes, file_bytes)| HostSample {
                free_bytes,
                file_bytes,
            })
            .into(),
    }
}

fn document(line: &str, served: &[(Policy, &[f64])]) -> Document {
    let args = run_args(line);
    let scenario = scenario::find(&args.experiment).unwrap();
    let settings = Settings::from_args(scenario, &args).unwrap();
    let records = served
        .iter()
        .map(|(policy, runs)| {
            let records = runs
                .iter()
                .map(|served| record(&settings, *served))
                .collect();
            (*policy, records)
        })
        .collect();
    let settings = Databases {
        experiment: scenario.name.to_owned(),
        databases: settings,
    };
    let environment = document::environment(settings, "justitia lab <x>".to_owned());
    analyze(environment, records)
}

const TWO: &str = "two-databases --seconds 5 --rate 1000";

#[test]
fn transactions_and_satisfied_time_are_what_was_sampled() {
    let document = document(TWO, &[(Policy::Max, &[0.6])]);
    let figures = &document.policies[&Policy::Max].figures;
    // Offered to A 1000, 1000, 1000, 100, 750, nothing; to B 1000, 100, 750, 100, 1000, 1000.
    assert!((figures.containers[0].transactions - 5.0 * 0.6 * 3850.0).abs() < 1e-6);
    assert!((figures.transactions - 5.0 * 0.6 * 7800.0).abs() < 1e-6);
    assert!((figures.containers[1].phases[3].transactions - 5.0 * 0.6 * 100.0).abs() < 1e-6);
    // A wants 850 of 1000 and never gets it; B wants 550 and gets it at the high load only.
    assert_eq!(figures.containers[0].satisfied, Some(0.0));
    assert_eq!(figures.containers[1].satisfied, Some(0.5));
    assert_eq!(figures.satisfied, Some(0.25));
    assert_eq!(figures.containers[0].phases[1].median_tps, Some(600.0));
}

#[test]
fn a_neighbors_units_are_no_transactions() {
    let line = "database-neighbors --seconds 5 --rate 100";
    let document = document(line, &[(Policy::Conventional, &[0.5])]);
    let figures = &document.policies[&Policy::Conventional].figures;
    assert!(figures.containers[1].transactions > 0.0);
    assert!((figures.transactions - 4.0 * 5.0 * 50.0).abs() < 1e-6);
    let text = report::databases::text(&document);
    assert!(text.contains("backup (units)"), "{text}");
}

#[test]
fn a_stopped_container_has_no_figures_instead_of_zeros() {
    let document = document(TWO, &[(Policy::Max, &[0.6])]);
    let stopped = document.policies[&Policy::Max].figures.containers[0].phases[5];
    assert_eq!((stopped.median_tps, stopped.satisfied), (None, None));
    assert_eq!(stopped.cache_mb, None);
}

#[test]
fn a_stopped_container_holds_no_page_cache() {
    let document = document(TWO, &[(Policy::Max, &[0.6])]);
    let result = &document.policies[&Policy::Max];
    // A holds 60 MB in five of six phases, B in all.
    assert_eq!(result.figures.cache_mb, Some(110.0));
    let series = &result.runs[0].record.series;
    let host = HostSample {
        free_bytes: None,
        file_bytes: Some(150_000_000),
    };
    let others = others(&[host; 30], series);
    assert_eq!(
        (others[0], others[29]),
        (Some(30_000_000), Some(90_000_000))
    );
}

#[test]
fn the_median_run_counts_and_the_spread_is_kept() {
    let document = document(TWO, &[(Policy::Soft, &[0.2, 0.9, 0.5])]);
    let result = &document.policies[&Policy::Soft];
    assert_eq!(
        result.figures.containers[0].phases[0].median_tps,
        Some(500.0)
    );
    let range = result.transactions_range.unwrap();
    assert!(range.min < result.figures.transactions && result.figures.transactions < range.max);
}

#[test]
fn a_result_reads_back_the_same() {
    let document = document(TWO, &[(Policy::Conventional, &[0.5])]);
    let scenario: &dyn Experiment = scenario::find("two-databases").unwrap();
    let read = scenario.read(&document.record().to_string()).unwrap();
    assert_eq!(read.record(), document.record());
    assert_eq!(read.again().record(), document.record());
}

#[test]
fn the_page_shows_every_policy_and_escapes_what_guests_say() {
    let served: &[(Policy, &[f64])] =
        &[(Policy::Conventional, &[0.5]), (Policy::Memoplight, &[0.7])];
    let page = report::databases::render(&document(TWO, served));
    for needle in [
        "memoplight",
        "h,l",
        "Table IV",
        "class=\"color",
        "6.12-&lt;test&gt;",
    ] {
        assert!(page.contains(needle), "{needle}");
    }
    assert!(!page.contains("<log>") && !page.contains("<x>"));
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

#[test]
fn the_text_has_a_column_for_each_policy_with_its_total() {
    let served: &[(Policy, &[f64])] = &[(Policy::Conventional, &[0.5]), (Policy::Max, &[0.6])];
    let text = report::databases::text(&document(TWO, served));
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("Policy").ends_with("max"), "{text}");
    assert!(line("Total").ends_with("23400"), "{text}");
    assert!(line("All").ends_with("25\u{a0}%"), "{text}");
}
