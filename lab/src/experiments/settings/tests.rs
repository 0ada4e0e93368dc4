//! Valid command lines, and the errors of invalid ones.

use super::*;
use crate::load::Load;
use crate::protocol::Series;
use crate::protocol::{Lie, Sample};
use crate::tests::fixture::asked as settings;
use justitia_machine::job_disk::{DISK_BYTES, REPORT_OFFSET};

#[test]
fn the_default_fileserver_is_the_papers_eight_containers() {
    let settings = settings("fileserver").unwrap();
    let weights: Vec<u32> = settings.containers.iter().map(|c| c.weight).collect();
    assert_eq!(weights, [100, 200, 300, 400, 500, 600, 700, 800]);
    assert_eq!(settings.choices.memory_bytes, 768 << 20);
    assert!((settings.warmup_s - 20.0).abs() < f64::EPSILON);
}

#[test]
fn a_short_run_warms_up_for_a_third_and_a_fixed_job_not_at_all() {
    assert!((settings("fileserver --seconds 30").unwrap().warmup_s - 10.0).abs() < 1e-9);
    assert!(settings("reread").unwrap().warmup_s.abs() < f64::EPSILON);
}

#[test]
fn bad_values_are_refused_with_a_remedy() {
    for (line, cause) in [
        ("fileserver --weights 0,100", "--weights 0"),
        ("fileserver --weights 100,10001", "10001"),
        ("fileserver --kernel 5.4", "5.4"),
        ("fileserver --cpus 0", "--cpus"),
        ("fileserver --kernel 6.1 --clock instructions", "2 CPUs"),
        (
            "fileserver --memory 255M",
            "--memory 255M is not a size from 256M",
        ),
        ("fileserver --policies conventionel", "conventionel"),
        ("fileserver --policies memcg,memcg", "twice"),
        ("fileserver --names a", "1 names for 8"),
        ("fileserver --weights 100,200 --names a,a/b", "a/b"),
        ("fileserver --weights 100,200 --names a,../b", "../b"),
        ("fileserver --idle nobody", "no such container"),
        ("fileserver --idle w100=0", "--idle 0 of w100"),
        ("fileserver --seconds 1", "--seconds"),
        ("fileserver --kill-agent-at 500", "--kill-agent-at"),
        ("fileserver --write-percent 5", "no option --write-percent"),
        ("readmix --policies direct", "direct"),
        ("readmix --zipf 9", "--zipf"),
        ("sharing --policies direct", "direct"),
        ("sharing --shared-size 1", "--shared-size"),
        ("reread --shared-size 1G", "no option --shared-size"),
        ("reread --idle w100", "--idle"),
        ("nothing", "nothing"),
    ] {
        let refusal = settings(line).expect_err(line);
        assert!(
            refusal.cause().contains(cause),
            "{line}: {}",
            refusal.cause()
        );
        assert!(!refusal.remedy().is_empty() && !refusal.remedy().contains('\n'));
        assert_eq!(refusal.exit_code(), 2);
        assert!(!refusal.cause().contains('\n'));
    }
}

#[test]
fn sixty_four_containers_are_the_most() {
    let of = |n: usize| {
        let weights = vec!["100"; n].join(",");
        settings(&format!("fileserver --weights {weights}"))
    };
    assert_eq!(of(64).unwrap().containers.len(), 64);
    assert!(of(65).is_err());
}

#[test]
fn equal_weights_still_give_every_container_its_own_name() {
    let settings = settings("fileserver --weights 100,100,200,100").unwrap();
    let containers = settings.containers.iter();
    let names: Vec<&str> = containers.map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["w100", "w100-2", "w200", "w100-3"]);
}

#[test]
fn held_out_shapes_reach_the_guest() {
    let settings = settings(
        "fileserver --weights 150,350,900 --names t/a,t/b,c --idle t/b=7 --anon-growth c=2M \
         --reads-per-write 5 --kill-agent-at 60 --runs 2 --seed 5",
    )
    .unwrap();
    let job = settings.job(Policy::Proportional, 1);
    assert_eq!((job.seed, job.kill_agent_at_s), (6, Some(60)));
    assert_eq!(settings.job(Policy::Conventional, 0).kill_agent_at_s, None);
    let load = |place: usize| match &job.containers[place].load {
        Load::Fileserver(load) => load.clone(),
        _ => panic!("not a fileserver"),
    };
    assert_eq!((load(1).duty_s, load(1).mix.reads_per_write), (Some(7), 5));
    let grows = load(2);
    assert_eq!(grows.anon_growth_bytes_per_s, 2 << 20);
    assert_eq!(grows.anon_most_bytes, settings.choices.memory_bytes / 4);
}

#[test]
fn a_lie_reaches_the_container_that_is_named() {
    let settings = settings("fileserver --weights 100,100 --names a,b --lie b=flap").unwrap();
    let job = settings.job(Policy::Proportional, 0);
    let lies: Vec<Option<Lie>> = job.containers.iter().map(|c| c.lie).collect();
    assert_eq!(lies, [None, Some(Lie::Flap)]);
}

#[test]
fn with_the_instruction_clock_the_guest_makes_its_disk() {
    let job = |line| settings(line).unwrap().job(Policy::Memcg, 0);
    assert_eq!(job("fileserver").memory_disk, None);
    assert!(settings("fileserver --kernel 6.1 --clock instructions --cpus 1").is_ok());
    let disk = job("readmix --clock instructions --weights 100,200 --file-size 64M --disk-mbps 40");
    let disk = disk.memory_disk.unwrap();
    assert_eq!(disk.bytes, 192 << 20, "both files and half as much");
    assert_eq!(disk.mib_per_s(), 38, "40 of 10^6 bytes");
}

#[test]
fn only_the_direct_policy_bypasses_the_page_cache() {
    let settings = settings("reread").unwrap();
    let is_direct = |policy| match &settings.job(policy, 0).containers[0].load {
        Load::Reread(load) => load.direct,
        _ => panic!("not a reread"),
    };
    assert!(is_direct(Policy::Direct));
    assert!(!is_direct(Policy::Conventional));
    assert_eq!(
        settings.job(Policy::Memcg, 0).polluter_bytes,
        Some(256 << 20)
    );
}

#[test]
fn the_pitfalls_have_their_surroundings_and_their_commands() {
    let startup = settings("startup").unwrap();
    let job = startup.job(Policy::Guarded, 0);
    assert_eq!(job.surroundings.vm["dirty_ratio"], "70");
    let line = job.surroundings.commands[0].arguments.join(" ");
    assert_eq!(line, "reserve /app/w400 494927872 --for 60s");
    let stolen = settings("stolen").unwrap();
    let job = stolen.job(Policy::Guarded, 0);
    assert_eq!(job.surroundings.memory_max, [Some(256 << 20)]);
    let line = job.surroundings.commands[0].arguments.join(" ");
    assert!(line.ends_with("/w300/set/own --group /app/w400"), "{line}");
    let root = settings("root").unwrap();
    let job = root.job(Policy::Conventional, 0);
    assert!(job.surroundings.root_stream.is_some() && job.surroundings.commands.is_empty());
    for line in ["startup --policies direct", "root --file-size 1M"] {
        assert!(settings(line).is_err(), "{line}");
    }
}

#[test]
fn the_report_of_the_longest_run_fits_onto_the_job_disk() {
    let longest = settings("fileserver --containers 64 --seconds 86400").unwrap();
    let many = 10_u64.pow(12);
    let sample = Sample {
        at_s: 86_399.123_456_789,
        read_bytes: many,
        write_bytes: many,
        device_read_bytes: many,
        device_write_bytes: many,
        latency_us: many,
        ..Sample::default()
    };
    let bytes = serde_json::to_vec(&Series::of(&[sample])).unwrap().len() as u64;
    let samples = longest.containers.len() as u64 * u64::from(longest.seconds);
    assert!(bytes * samples < DISK_BYTES - REPORT_OFFSET);
}
