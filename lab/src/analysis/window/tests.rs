//! Figures of runs with a known answer.

use super::*;
use crate::protocol::Policy;
use crate::tests::fixture;

fn near(value: Option<f64>, expected: f64, tolerance: f64) {
    let value = value.expect("known");
    assert!(
        (value - expected).abs() <= tolerance,
        "{value} is not {expected}"
    );
}

/// A record of containers that move bytes at constant rates, in MB/s of reads and of writes.
fn steady(settings: &Settings, rates: &[(u64, u64)]) -> RunRecord {
    let series = settings
        .containers
        .iter()
        .zip(rates)
        .map(|(spec, &(read, write))| {
            let times: Vec<u64> = (0..=u64::from(settings.seconds)).collect();
            let column = |per_second: u64| times.iter().map(|t| t * per_second).collect();
            Series {
                name: spec.name.clone(),
                weight: spec.weight,
                at_s: times.iter().map(|&t| t as f64).collect(),
                read_bytes: column(read * 1_000_000),
                write_bytes: column(write * 1_000_000),
                device_read_bytes: column(read * 250_000),
                device_write_bytes: column(write * 1_000_000),
                ops: column(100),
                latency_us: column(200_000),
                file_bytes: vec![50_000_000; times.len()],
                low_bytes: vec![Some(40_000_000); times.len()],
                memory_full_us: column(100_000),
                io_some_us: column(500_000),
                ..Series::default()
            }
        })
        .collect();
    RunRecord {
        series,
        ..fixture::empty_record()
    }
}

#[test]
fn steady_proportional_rates_have_no_variation_and_the_rates_they_have() {
    let settings = fixture::settings("fileserver --weights 100,200 --seconds 60");
    let figures = figures(&settings, &steady(&settings, &[(1, 3), (2, 6)]), 20.0);
    near(figures.pv, 0.0, 1e-9);
    near(figures.share_error, 0.0, 1e-9);
    near(figures.total_mb_per_s, 12.0, 1e-9);
    near(figures.read_mb_per_s, 3.0, 1e-9);
    near(figures.hit_ratio, 0.75, 1e-9);
    near(figures.mean_latency_ms, 2.0, 1e-9);
    near(
        figures.utility,
        4.0_f64.ln() / 3.0 + 8.0_f64.ln() * 2.0 / 3.0,
        1e-9,
    );
    near(figures.containers[1].normalized, 2.0, 1e-9);
    near(figures.containers[0].ideal_share, 1.0 / 3.0, 1e-9);
    near(figures.containers[0].page_cache_mb, 50.0, 1e-9);
    near(figures.containers[0].low_mb, 40.0, 1e-9);
    near(figures.containers[0].memory_stall_percent, 10.0, 1e-9);
    near(figures.containers[0].io_stall_percent, 50.0, 1e-9);
}

#[test]
fn the_warm_up_is_left_out() {
    let settings = fixture::settings("fileserver --weights 100,200 --seconds 60");
    let mut record = steady(&settings, &[(0, 2), (0, 4)]);
    // In the first 20 s the first container moved ten times as much.
    for (i, bytes) in record.series[0].write_bytes.iter_mut().enumerate() {
        *bytes += 18_000_000 * (i as u64).min(20);
    }
    near(figures(&settings, &record, 20.0).pv, 0.0, 1e-9);
    assert!(figures(&settings, &record, 0.0).pv.unwrap() > 0.5);
}

#[test]
fn a_record_shorter_than_the_warm_up_gives_unknowns_not_zeros() {
    let settings = fixture::settings("fileserver --weights 100,200 --seconds 60");
    let record = steady(&settings, &[(1, 1), (1, 1)]);
    let figures = figures(&settings, &record, 100.0);
    assert_eq!((figures.pv, figures.total_mb_per_s), (None, None));
    assert_eq!(figures.containers.len(), 2);
}

#[test]
fn containers_that_read_nothing_have_no_hit_ratio() {
    let settings = fixture::settings("fileserver --weights 100,200 --seconds 60");
    let figures = figures(&settings, &steady(&settings, &[(0, 1), (0, 2)]), 20.0);
    assert_eq!((figures.hit_ratio, figures.pv_reads), (None, None));
    near(figures.pv_writes, 0.0, 1e-9);
}

#[test]
fn a_fixed_job_is_measured_until_it_is_done() {
    let settings = fixture::settings("reread --weights 100,200 --seconds 60");
    let mut record = steady(&settings, &[(10, 0), (20, 0)]);
    for (series, done_s) in record.series.iter_mut().zip([40, 20]) {
        series.finished_at_s = Some(done_s as f64);
        let all = u64::from(series.weight) / 100 * 10_000_000 * done_s;
        for bytes in &mut series.read_bytes {
            *bytes = (*bytes).min(all);
        }
    }
    let figures = figures(&settings, &record, 0.0);
    near(figures.containers[0].finished_at_s, 40.0, 1e-9);
    near(figures.containers[1].finished_at_s, 20.0, 1e-9);
    near(figures.containers[1].mb_per_s, 20.0, 1e-9);
    near(figures.pv, 0.0, 1e-9);
    near(figures.total_mb_per_s, 800.0 / 40.0, 1e-9);
}

#[test]
fn a_reader_that_waits_at_the_end_is_not_done() {
    let settings = fixture::settings("reread --weights 100,200 --seconds 60");
    let mut record = steady(&settings, &[(10, 0), (20, 0)]);
    for series in &mut record.series {
        series.read_bytes[60] = series.read_bytes[59];
    }
    let figures = figures(&settings, &record, 0.0);
    assert_eq!(figures.containers[0].finished_at_s, None);
    near(figures.containers[0].mb_per_s, 590.0 / 60.0, 1e-9);
}

#[test]
fn a_pausing_container_that_gets_its_share_while_it_works_is_no_error() {
    let settings = fixture::settings("fileserver --weights 100,300 --seconds 60 --idle w300=10");
    let mut record = steady(&settings, &[(0, 0), (0, 0)]);
    let (mut a, mut b) = (0, 0);
    for second in 0..=60_usize {
        record.series[0].write_bytes[second] = a;
        record.series[1].write_bytes[second] = b;
        let works = (second / 10) % 2 == 0;
        a += if works { 10_000_000 } else { 40_000_000 };
        b += if works { 30_000_000 } else { 0 };
    }
    let figures = figures(&settings, &record, 20.0);
    near(figures.share_error, 0.0, 1e-6);
    near(figures.pv, 0.0, 1e-5);
}

#[test]
fn the_synthetic_guest_gives_the_shape_it_promises() {
    let settings = fixture::settings("fileserver --seconds 60");
    let pv = |policy| {
        let record = fixture::report(&settings.job(policy, 0));
        figures(&settings, &record, 20.0).pv.unwrap()
    };
    assert!(pv(Policy::Conventional) > 2.0);
    assert!(pv(Policy::Proportional) < 0.5);
}

#[test]
fn a_job_that_ends_between_two_samples_moved_all_its_bytes() {
    let settings = fixture::settings("reread --weights 100,200 --seconds 60");
    let mut record = steady(&settings, &[(10, 0), (10, 0)]);
    // The first half in a slow second, the rest in an instant: done long before the next sample.
    for bytes in record.series[1].read_bytes.iter_mut().skip(1) {
        *bytes = 200_000_000;
    }
    record.series[1].finished_at_s = Some(0.25);
    record.series[0].finished_at_s = Some(60.0);
    let figures = figures(&settings, &record, 0.0);
    near(figures.containers[1].mb_per_s, 800.0, 1e-9);
    near(figures.containers[0].mb_per_s, 10.0, 1e-9);
    assert_eq!(figures.pv_while_all_work, None);
}

#[test]
fn exact_weights_on_a_disk_show_while_all_read_though_not_in_the_end() {
    let settings = fixture::settings("reread --weights 100,200,400,800 --seconds 90");
    // 60 MB each from a disk of 3 MB/s that is always divided exactly by weight.
    let mut record = steady(&settings, &[(0, 0); 4]);
    let mut moved = [0.0_f64; 4];
    let mut done = [None; 4];
    for step in 0..=9_000_u32 {
        let time_s = f64::from(step) / 100.0;
        if step % 100 == 0 {
            for (series, bytes) in record.series.iter_mut().zip(moved) {
                series.read_bytes[step as usize / 100] = bytes as u64;
            }
        }
        let left = |i: usize| moved[i] < 60e6;
        let weight = |i: usize| f64::from(settings.containers[i].weight);
        let all: f64 = (0..4).filter(|&i| left(i)).map(weight).sum();
        let steps: Vec<f64> = (0..4)
            .map(|i| if left(i) { 3e4 * weight(i) / all } else { 0.0 })
            .collect();
        for i in 0..4 {
            moved[i] = (moved[i] + steps[i]).min(60e6);
            if done[i].is_none() && moved[i] >= 60e6 {
                done[i] = Some(time_s);
            }
        }
    }
    for (series, done) in record.series.iter_mut().zip(done) {
        series.finished_at_s = done;
    }
    let figures = figures(&settings, &record, 0.0);
    near(figures.pv_while_all_work, 0.0, 0.01);
    near(figures.pv, 2.32, 0.02);
}
