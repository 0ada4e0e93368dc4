//! Computes the figures of one run.
//!
//! - [`Measure::Window`]: bandwidth is the bytes moved in the window over its length.
//! - [`Measure::Completion`]: bandwidth is a container's bytes over the time until its job was done; the
//!   total is all bytes over the time until the last job was done, so it is less than the sum. Even a disk
//!   divided exactly by weight does not give PV 0 then, because a container that is done leaves it to the
//!   others; `pv_while_all_work` is the PV until the first was done.
//! - [`Measure::Residency`]: how much of the watched files stayed; bandwidth is that of the window, and its
//!   ratios are not compared.
//! - [`Measure::Phases`]: likewise; the relevant figures are those of the phases that the load timed itself, or of
//!   the responses to the experiment's events.
//!
//! PV, share error and utility come from `justitia_policy::metrics`.

use justitia_policy::metrics::{proportionality_variation, share_error, utility};

use super::aggregate::mean;
use super::figures::ContainerFigures;
use super::figures::Figures;
use super::ideal;
use super::phases::PhaseFigures;
use super::record::RunRecord;
use super::residency::FileFigures;
use crate::experiments::settings::Settings;
use crate::experiments::Measure;
use crate::protocol::Series;

const MB: f64 = 1e6;
/// Samples are a second apart; a shorter competition has too few of them.
const SHORTEST_COMPETITION_S: f64 = 3.0;

/// Figures of a run from `from_s` to its end.
pub fn figures(settings: &Settings, record: &RunRecord, from_s: f64) -> Figures {
    let Some(to_s) = record.end_s().filter(|end_s| *end_s > from_s) else {
        return Figures {
            containers: names_only(settings),
            ..Figures::default()
        };
    };
    let tallies: Vec<Tally> = record
        .series
        .iter()
        .map(|series| match settings.measure {
            Measure::Window | Measure::Residency | Measure::Phases => {
                Tally::of(series, from_s, to_s)
            }
            Measure::Completion => match series.finished_at_s {
                Some(done) => Tally::whole_job(series, done),
                None => Tally::of(series, 0.0, to_s),
            },
        })
        .collect();
    let (shares, weights) = entitled(settings, &intervals(record, from_s, to_s));
    let rate = |bytes: fn(&Tally) -> f64| -> Vec<f64> {
        tallies
            .iter()
            .map(|tally| bytes(tally) / MB / tally.seconds)
            .collect()
    };
    let all = rate(|t| t.read + t.write);
    let (reads, writes) = (rate(|t| t.read), rate(|t| t.write));
    let lowest = (0..weights.len()).min_by_key(|&i| weights[i]);
    let sum_of_rates: f64 = all.iter().sum();
    let containers = settings
        .containers
        .iter()
        .zip(record.series.iter().zip(&tallies))
        .enumerate()
        .map(|(i, (spec, (series, tally)))| ContainerFigures {
            name: spec.name.clone(),
            weight: spec.weight,
            ideal_share: shares.get(i).copied(),
            share: ratio(all[i], sum_of_rates),
            ideal_normalized: lowest
                .and_then(|l| ratio(f64::from(weights[i]), f64::from(weights[l]))),
            normalized: lowest.and_then(|l| ratio(all[i], all[l])),
            mb_per_s: Some(all[i]),
            read_mb_per_s: Some(reads[i]),
            write_mb_per_s: Some(writes[i]),
            phases: series.phases.iter().map(PhaseFigures::of).collect(),
            ..tally.container()
        })
        .collect();
    let seconds = tallies.iter().map(|t| t.seconds).fold(0.0, f64::max);
    let sum = |part: fn(&Tally) -> f64| tallies.iter().map(part).sum::<f64>();
    let per_second = |part: fn(&Tally) -> f64| ratio(sum(part) / MB, seconds);
    // Containers that share files do not compete for bandwidth.
    let compared = !matches!(settings.measure, Measure::Residency | Measure::Phases);
    let metric = |of: fn(&[u32], &[f64]) -> Option<f64>, rates: &[f64]| {
        of(&weights, rates).filter(|_| compared)
    };
    Figures {
        containers,
        pv: metric(proportionality_variation, &all),
        pv_reads: metric(proportionality_variation, &reads),
        pv_writes: metric(proportionality_variation, &writes),
        pv_while_all_work: while_all_work(settings, record, &weights, to_s),
        share_error: metric(share_error, &all),
        utility: metric(utility, &all),
        total_mb_per_s: per_second(|t| t.read + t.write),
        read_mb_per_s: per_second(|t| t.read),
        write_mb_per_s: per_second(|t| t.write),
        device_read_mb_per_s: per_second(|t| t.device_read),
        device_write_mb_per_s: per_second(|t| t.device_write),
        hit_ratio: hit_ratio(sum(|t| t.read), sum(|t| t.device_read)),
        mean_latency_ms: ratio(sum(|t| t.latency_us) / 1e3, sum(|t| t.ops)),
        slow_ops: Some(sum(|t| t.slow_ops)),
        max_latency_ms: tallies.iter().map(|t| t.max_latency_ms).reduce(f64::max),
        files: record
            .files
            .iter()
            .map(|file| FileFigures::of(file, settings.warmup_s))
            .collect(),
    }
}

/// The containers' shares over the intervals, and weights for the metrics.
fn entitled(settings: &Settings, intervals: &[(f64, f64)]) -> (Vec<f64>, Vec<u32>) {
    let containers = &settings.containers;
    let events = settings.workload.events(containers);
    let shares = ideal::over_time(containers, &events, intervals);
    let weights = ideal::effective_weights(containers, &events, &shares);
    (shares, weights)
}

/// Totals of one container in a window: bytes, microseconds and operations.
#[derive(Debug, Clone, Default)]
struct Tally {
    seconds: f64,
    read: f64,
    write: f64,
    device_read: f64,
    device_write: f64,
    ops: f64,
    latency_us: f64,
    slow_ops: f64,
    max_latency_ms: f64,
    memory_full_us: f64,
    io_some_us: f64,
    resident: Option<f64>,
    page_cache: Option<f64>,
    low: Option<f64>,
    finished_at_s: Option<f64>,
}

impl Tally {
    fn of(series: &Series, from_s: f64, to_s: f64) -> Self {
        let moved = |column: &[u64]| {
            let start = series.at(column, from_s).unwrap_or(0.0);
            // If a job ends between the last sample and the end, the last sample has its bytes.
            let end = series
                .at(column, to_s)
                .or_else(|| column.last().map(|&value| value as f64))
                .unwrap_or(start);
            (end - start).max(0.0)
        };
        let inside = |index: &usize| (from_s..=to_s).contains(&series.at_s[*index]);
        let indices: Vec<usize> = (0..series.at_s.len()).filter(inside).collect();
        let low: Option<Vec<f64>> = indices
            .iter()
            .map(|&i| Some((*series.low_bytes.get(i)?)? as f64))
            .collect();
        let cache: Vec<f64> = indices
            .iter()
            .filter_map(|&i| series.file_bytes.get(i).map(|&b| b as f64))
            .collect();
        Self {
            seconds: to_s - from_s,
            read: moved(&series.read_bytes),
            write: moved(&series.write_bytes),
            device_read: moved(&series.device_read_bytes),
            device_write: moved(&series.device_write_bytes),
            ops: moved(&series.ops),
            latency_us: moved(&series.latency_us),
            slow_ops: series.slow_ops as f64,
            max_latency_ms: series.max_latency_us as f64 / 1e3,
            memory_full_us: moved(&series.memory_full_us),
            io_some_us: moved(&series.io_some_us),
            resident: series.at(&series.file_bytes, from_s),
            page_cache: mean(&cache),
            low: low.as_deref().and_then(mean),
            finished_at_s: None,
        }
    }

    /// A job with a known end. Its counters are those of the last sample. Interpolation assumes even growth
    /// between two samples, but the end of a cached file is read in an instant, so the interpolated value at
    /// the end would be too small.
    fn whole_job(series: &Series, done_s: f64) -> Self {
        let whole = Self::of(series, 0.0, series.end_s().unwrap_or(done_s));
        let until_done = Self::of(series, 0.0, done_s);
        Self {
            read: whole.read,
            write: whole.write,
            device_read: whole.device_read,
            device_write: whole.device_write,
            ops: whole.ops,
            latency_us: whole.latency_us,
            finished_at_s: Some(done_s),
            ..until_done
        }
    }

    /// The figures that do not depend on other containers.
    fn container(&self) -> ContainerFigures {
        let percent = |us: f64| ratio(us / 1e4, self.seconds);
        ContainerFigures {
            hit_ratio: hit_ratio(self.read, self.device_read),
            mean_latency_ms: ratio(self.latency_us / 1e3, self.ops),
            slow_ops: Some(self.slow_ops),
            max_latency_ms: Some(self.max_latency_ms),
            resident_mb: self.resident.map(|bytes| bytes / MB),
            page_cache_mb: self.page_cache.map(|bytes| bytes / MB),
            low_mb: self.low.map(|bytes| bytes / MB),
            memory_stall_percent: percent(self.memory_full_us),
            io_stall_percent: percent(self.io_some_us),
            finished_at_s: self.finished_at_s,
            ..ContainerFigures::default()
        }
    }
}

/// PV of the bytes moved until the first container was done, while all competed. `None` if that was too short
/// for samples a second apart, or if no container ends.
fn while_all_work(
    settings: &Settings,
    record: &RunRecord,
    weights: &[u32],
    to_s: f64,
) -> Option<f64> {
    if settings.measure != Measure::Completion {
        return None;
    }
    let first_s = record
        .series
        .iter()
        .filter_map(|series| series.finished_at_s)
        .fold(to_s, f64::min);
    // Samples are about a second apart; the one in which the first container ended is excluded.
    let until_s = first_s.floor();
    if until_s < SHORTEST_COMPETITION_S {
        return None;
    }
    let rates: Vec<f64> = record
        .series
        .iter()
        .map(|series| series.at(&series.all_bytes(), until_s).unwrap_or(0.0))
        .collect();
    proportionality_variation(weights, &rates)
}

/// Middle of each sampling interval inside a window, and the bytes of all containers in it.
fn intervals(record: &RunRecord, from_s: f64, to_s: f64) -> Vec<(f64, f64)> {
    let columns: Vec<(&Series, Vec<u64>)> = record
        .series
        .iter()
        .map(|series| (series, series.all_bytes()))
        .collect();
    let all_at = |time: f64| {
        columns
            .iter()
            .filter_map(|(s, bytes)| s.at(bytes, time))
            .sum::<f64>()
    };
    let seconds = (to_s - from_s).ceil() as u32;
    (0..seconds)
        .map(|i| {
            let start = from_s + f64::from(i);
            let end = (start + 1.0).min(to_s);
            (
                f64::midpoint(start, end),
                (all_at(end) - all_at(start)).max(0.0),
            )
        })
        .collect()
}

fn names_only(settings: &Settings) -> Vec<ContainerFigures> {
    settings
        .containers
        .iter()
        .map(|spec| ContainerFigures {
            name: spec.name.clone(),
            weight: spec.weight,
            ..ContainerFigures::default()
        })
        .collect()
}

fn hit_ratio(read: f64, device_read: f64) -> Option<f64> {
    ratio(device_read, read).map(|missed| (1.0 - missed).max(0.0))
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests;
