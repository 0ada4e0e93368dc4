//! Computes figures from samples: transactions and satisfied time, for each container and phase.
//!
//! - transactions: as reported by sysbench, in whole seconds;
//! - satisfied: fraction of the seconds with a known color that were GREEN or YELLOW. For all containers
//!   together it is the mean over the containers, as in the paper's table VII;
//! - a stopped container has no figures for that phase: unknown is not zero.

use serde::{Deserialize, Serialize};

use super::record::{RunRecord, Series};
use super::settings::Settings;
use crate::analysis::aggregate::{mean, median, medians, Range};
use crate::analysis::document::{self, SCHEMA};
use crate::analysis::run::{self, Records};
use crate::protocol::databases::{DatabaseJob, HostSample};

pub type Document = document::Document<Databases, PolicyResult>;
pub type Environment = document::Environment<Databases>;

/// The settings, as laid out in result.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Databases {
    #[serde(skip)]
    pub experiment: String,
    pub databases: Settings,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyResult {
    #[serde(flatten)]
    pub figures: Figures,
    pub transactions_range: Option<Range>,
    pub satisfied_range: Option<Range>,
    pub runs: Vec<AnalyzedRun>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub containers: Vec<ContainerFigures>,
    pub transactions: f64,
    /// Mean over the containers of the fraction of time satisfied.
    pub satisfied: Option<f64>,
    /// Page cache of all containers, mean over the samples, 10^6 bytes.
    pub cache_mb: Option<f64>,
    /// Page cache of the rest (the agent, the clients, the system), likewise.
    pub others_mb: Option<f64>,
    /// Unused memory, likewise.
    pub free_mb: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerFigures {
    pub name: String,
    pub weight: u32,
    pub objective_tps: u32,
    pub transactions: f64,
    pub satisfied: Option<f64>,
    pub phases: Vec<PhaseFigures>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// Offered load; null: stopped.
    pub offered_tps: Option<u32>,
    pub transactions: f64,
    pub median_tps: Option<f64>,
    /// Rate of the first five seconds with a report: the performance with an empty cache.
    pub first_tps: Option<f64>,
    pub satisfied: Option<f64>,
    pub cache_mb: Option<f64>,
}

pub type AnalyzedRun = run::AnalyzedRun<Figures, RunRecord>;

pub fn analyze(environment: Environment, records: Records<RunRecord>) -> Document {
    let kernel = records.values().flatten().next();
    let kernel = kernel.map_or_else(String::new, |record| record.head.kernel.clone());
    let settings = &environment.settings.databases;
    let policies = records
        .into_iter()
        .map(|(policy, records)| (policy, result(settings, records)))
        .collect();
    Document {
        schema: SCHEMA,
        experiment: environment.settings.experiment.clone(),
        kernel,
        policies,
        environment,
        hostile: None,
    }
}

fn result(settings: &Settings, records: Vec<RunRecord>) -> PolicyResult {
    let runs: Vec<AnalyzedRun> = records
        .into_iter()
        .map(|record| AnalyzedRun {
            figures: run_figures(settings, &record),
            record,
        })
        .collect();
    let each: Vec<&Figures> = runs.iter().map(|run| &run.figures).collect();
    PolicyResult {
        figures: medians(each.iter().copied()),
        transactions_range: Range::of(each.iter().map(|f| Some(f.transactions))),
        satisfied_range: Range::of(each.iter().map(|f| f.satisfied)),
        runs,
    }
}

fn run_figures(settings: &Settings, record: &RunRecord) -> Figures {
    Figures {
        others_mb: mean_mb(others(&record.host, &record.series)),
        free_mb: mean_mb(record.host.iter().map(|host| host.free_bytes)),
        ..figures(settings, &record.series)
    }
}

/// At each sample, the host's page cache that belongs to no container.
fn others(host: &[HostSample], series: &[Series]) -> Vec<Option<u64>> {
    host.iter()
        .enumerate()
        .map(|(at, host)| Some(host.file_bytes?.saturating_sub(theirs(series, at)?)))
        .collect()
}

/// The page cache of all containers at a sample. A group that is gone holds nothing; `None` if none is known.
fn theirs(series: &[Series], at: usize) -> Option<u64> {
    let each = series.iter().map(|series| series.file_bytes.get(at));
    each.filter_map(|bytes| *bytes?).reduce(|a, b| a + b)
}

pub fn figures(settings: &Settings, series: &[Series]) -> Figures {
    let containers: Vec<ContainerFigures> = settings
        .containers
        .iter()
        .zip(series)
        .map(|(job, series)| container(job, series))
        .collect();
    let satisfied: Vec<f64> = containers.iter().filter_map(|c| c.satisfied).collect();
    let samples = series.first().map_or(0, |series| series.at_s.len());
    Figures {
        transactions: databases(settings, &containers)
            .map(|c| c.transactions)
            .sum(),
        satisfied: mean(&satisfied),
        cache_mb: mean_mb((0..samples).map(|at| theirs(series, at))),
        containers,
        ..Figures::default()
    }
}

/// The figures of the containers that run a database.
pub fn databases<'a>(
    settings: &'a Settings,
    figures: &'a [ContainerFigures],
) -> impl Iterator<Item = &'a ContainerFigures> {
    let each = settings.containers.iter().zip(figures);
    each.filter(|(job, _)| job.neighbor.is_none())
        .map(|(_, figures)| figures)
}

fn container(job: &DatabaseJob, series: &Series) -> ContainerFigures {
    let mut before = 0.0;
    let phases: Vec<PhaseFigures> = (0..job.offered_tps.len())
        .map(|phase| {
            let places: Vec<usize> = series.places(phase).collect();
            let until = places.last().map_or(before, |p| series.transactions[*p]);
            let figures = in_phase(series, &places, job.offered_tps[phase], until - before);
            before = until;
            figures
        })
        .collect();
    let all: Vec<usize> = (0..series.at_s.len()).collect();
    ContainerFigures {
        name: job.name.clone(),
        weight: job.weight,
        objective_tps: job.objective_tps,
        transactions: before,
        satisfied: satisfied(series, &all),
        phases,
    }
}

fn in_phase(
    series: &Series,
    places: &[usize],
    offered_tps: Option<u32>,
    transactions: f64,
) -> PhaseFigures {
    let tps: Vec<f64> = places.iter().filter_map(|p| series.tps[*p]).collect();
    let cache_mb = mean_mb(places.iter().map(|p| series.file_bytes[*p]));
    PhaseFigures {
        offered_tps,
        transactions,
        median_tps: median(tps.iter().copied()),
        first_tps: mean(&tps[..tps.len().min(5)]),
        satisfied: satisfied(series, places),
        cache_mb: cache_mb.filter(|_| offered_tps.is_some()),
    }
}

/// Fraction of the samples with a known color that met the objective.
fn satisfied(series: &Series, places: &[usize]) -> Option<f64> {
    let colors = places.iter().filter_map(|p| series.color[*p]);
    let met: Vec<f64> = colors
        .map(|color| f64::from(u8::from(color.is_good())))
        .collect();
    mean(&met)
}

/// Mean of the known values, in 10^6 bytes.
fn mean_mb(values: impl IntoIterator<Item = Option<u64>>) -> Option<f64> {
    let known = values.into_iter().flatten().map(|b| b as f64 / 1e6);
    mean(&known.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
