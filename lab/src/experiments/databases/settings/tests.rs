use super::*;
use crate::experiments::databases::scenario::find;
use crate::protocol::databases::Neighbor::{Backup, Build, Log};
use crate::tests::fixture::run_args;

fn settings(line: &str) -> Result<Settings> {
    let args = run_args(line);
    crate::registry::plan(&args, String::new())?;
    Settings::from_args(find(&args.experiment).expect("a scenario"), &args)
}

#[test]
fn the_defaults_are_the_papers_ratios() {
    let settings = settings("two-databases").unwrap();
    let [a, b] = &settings.containers[..] else {
        panic!("two containers")
    };
    assert_eq!(a.offered_tps[0], Some(settings.rate));
    assert_eq!(a.offered_tps[3], Some(settings.rate / 10));
    assert_eq!(a.offered_tps[5], None);
    assert_eq!(a.objective_tps * 100, settings.rate * 85);
    assert_eq!(b.objective_tps * 100, settings.rate * 55);
    assert_eq!(settings.choices.policies, POLICIES);
    assert_eq!(u64::from(settings.rows) / 2 * PAGE_BYTES, 160 << 20);
}

#[test]
fn the_rate_scales_every_load_and_objective() {
    let settings = settings("eight-databases --rate 500").unwrap();
    assert_eq!(settings.containers[0].offered_tps[0], Some(500));
    assert_eq!(settings.containers[0].objective_tps, 360);
    assert_eq!(settings.containers[7].offered_tps[4], Some(152));
}

#[test]
fn the_keys_are_the_scenarios_unless_named() {
    let keys = |line| settings(line).unwrap().keys;
    assert_eq!(keys("eight-databases"), Keys::Special);
    assert_eq!(keys("eight-databases --keys uniform"), Keys::Uniform);
}

#[test]
fn with_the_instruction_clock_the_disk_is_copied_into_memory() {
    let own = settings("one-database --clock instructions --database-size 150M").unwrap();
    let disk = own.memory_disk().expect("a disk of memory");
    assert!(disk.copies && disk.bytes > own.database_bytes);
    assert_eq!(disk.bytes % (1 << 20), 0, "whole mebibytes");
    assert_eq!(disk.iops, Some(own.disk_iops));
    assert_eq!(settings("two-databases").unwrap().memory_disk(), None);
}

#[test]
fn a_database_beside_neighbors_is_compared_without_static_limits() {
    let refused = settings("database-neighbors --policies soft").unwrap_err();
    assert!(refused.to_string().contains("soft"), "{refused}");
    let settings = settings("database-neighbors").unwrap();
    let neighbors = settings.containers.iter().map(|c| c.neighbor);
    assert_eq!(
        neighbors.collect::<Vec<_>>(),
        [None, Some(Backup), Some(Log), Some(Build)]
    );
}

#[test]
fn a_lie_belongs_to_the_container_that_is_named() {
    let settings = settings("two-databases --lie B=flap").unwrap();
    let lies: Vec<Option<Lie>> = settings.containers.iter().map(|c| c.lie).collect();
    assert_eq!(lies, [None, Some(Lie::Flap)]);
}

#[test]
fn options_without_effect_or_sense_are_refused() {
    for line in [
        "two-databases --weights 100,200",
        "two-databases --zipf 1",
        "two-databases --policies memcg",
        "two-databases --policies max,max",
        "two-databases --memory 16M",
        "two-databases --seconds 1",
        "two-databases --lie B=rde",
        "two-databases --lie Z=red",
        "two-databases --lie A",
    ] {
        let refusal = settings(line).expect_err(line);
        assert_eq!(refusal.exit_code(), 2, "{line}");
        assert!(!refusal.remedy().is_empty());
    }
}
