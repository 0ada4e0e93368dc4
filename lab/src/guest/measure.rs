//! The measured phase: one start for all, one sample per second, the events of the job.
//!
//! Each sample carries its actual time. A driver that is late under emulation skips a second instead of
//! taking two samples close together.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::agent::{Agent, StatusQuery};
use super::container::Container;
use super::disks::GuestDisk;
use super::liar::Liar;
use super::progress;
use super::residency::Watched;
use super::sample::{since, Sampler};
use super::surroundings::{Running, Said};
use super::wait_profile::Tracer;
use crate::analysis::residency::FileSeries;
use crate::load::clock::{monotonic_ns, since_s, sleep_until};
use crate::protocol::{GuestJob, Sample, WaitProfile};
use justitia_machine::host::CpuTime;

/// Time between the start command and the start, so that every load sees the command in time.
const LEAD: Duration = Duration::from_millis(500);

const PROGRESS_EVERY_S: u64 = 10;

/// Minimum time without an agent after it was killed, seconds; a little less than the interval of samples.
const DEAD_S: f64 = 0.9;

#[derive(Debug)]
pub struct Measured {
    pub samples: Vec<Vec<Sample>>,
    pub files: Vec<FileSeries>,
    pub seconds: f64,
    /// Fraction of the guest's CPU time that was not idle.
    pub cpu_busy: Option<f64>,
    pub agent_status: Option<serde_json::Value>,
    pub commands: Vec<Said>,
    /// Wait profile of the second half.
    pub waits: Option<WaitProfile>,
}

pub fn measure(
    job: &GuestJob,
    containers: &[Container],
    data: &GuestDisk,
    watched: &[Watched],
    agent: Option<&mut Agent>,
    tracer: Option<&Tracer>,
) -> Result<Measured> {
    let mut series = Series::open(containers, data);
    let mut files: Vec<FileSeries> = watched.iter().map(report_of).collect();
    let has_agent = agent.is_some();
    let mut events = Events::new(job, agent);
    let mut liars: Vec<Liar> = job
        .containers
        .iter()
        .zip(containers)
        .filter_map(|(job, container)| Some(Liar::new(&container.group, job.lie?)))
        .collect();
    let start_ns = monotonic_ns() + LEAD.as_nanos() as u64;
    if let Some(tracer) = tracer {
        let half_ns = u64::from(job.seconds) * 500_000_000;
        tracer.set_window(start_ns + half_ns, start_ns + 2 * half_ns)?;
    }
    for container in containers {
        container.page.go(start_ns);
    }
    series.begin();
    let around = Running::start(&job.surroundings, Instant::now() + LEAD, has_agent);
    look(watched, &mut files, 0.0);
    progress(&format!("measuring for {} s", job.seconds));
    let cpu = CpuTime::read();
    let end_s = u64::from(job.seconds);
    let mut second = 0;
    while second < end_s {
        second += 1;
        sleep_until(start_ns + second * 1_000_000_000);
        let at_s = since_s(start_ns);
        series.take(at_s);
        look(watched, &mut files, at_s);
        for container in containers {
            container.ensure_alive()?;
        }
        if containers.iter().all(Container::finished) {
            break;
        }
        events.happen(at_s)?;
        for liar in &mut liars {
            liar.tick()?;
        }
        second = second.max(at_s as u64);
        if second % PROGRESS_EVERY_S == 0 && second < end_s {
            progress(&format!(
                "measured {second} of {end_s} s, {}",
                series.speed()
            ));
        }
    }
    progress(&format!("measured, {}", series.speed()));
    let waits = tracer.map(Tracer::take).transpose()?;
    let cpu_busy = CpuTime::read()
        .zip(cpu)
        .and_then(|(after, before)| after.busy_since(&before));
    events.finish()?;
    let commands = around.end()?;
    let seconds = series.samples[0].last().map_or(0.0, |s| s.at_s);
    Ok(Measured {
        samples: series.samples,
        files,
        seconds,
        cpu_busy,
        agent_status: events.status.and_then(StatusQuery::finish),
        commands,
        waits,
    })
}

fn report_of(watched: &Watched) -> FileSeries {
    FileSeries {
        name: watched.name.clone(),
        bytes: watched.bytes,
        ..FileSeries::default()
    }
}

fn look(watched: &[Watched], files: &mut [FileSeries], at_s: f64) {
    for (file, report) in watched.iter().zip(files) {
        report.at_s.push(at_s);
        report.resident_bytes.push(file.resident_bytes());
    }
}

struct Series<'a> {
    containers: &'a [Container],
    samplers: Vec<Sampler>,
    baseline: Vec<Sample>,
    samples: Vec<Vec<Sample>>,
}

impl<'a> Series<'a> {
    fn open(containers: &'a [Container], data: &GuestDisk) -> Self {
        Self {
            containers,
            samplers: containers
                .iter()
                .map(|c| Sampler::open(&c.group, &data.number))
                .collect(),
            baseline: Vec::new(),
            samples: vec![Vec::new(); containers.len()],
        }
    }

    fn begin(&mut self) {
        let pairs = self.samplers.iter().zip(self.containers);
        self.baseline = pairs.map(|(s, c)| s.take(&c.page, 0.0)).collect();
        for (samples, start) in self.samples.iter_mut().zip(&self.baseline) {
            samples.push(since(start, *start));
        }
    }

    fn take(&mut self, at_s: f64) {
        for (i, sampler) in self.samplers.iter().enumerate() {
            let now = sampler.take(&self.containers[i].page, at_s);
            self.samples[i].push(since(&self.baseline[i], now));
        }
    }

    /// Bandwidth of all containers so far, for people.
    fn speed(&self) -> String {
        let last = self.samples.iter().filter_map(|s| s.last());
        let (bytes, at_s) = last.fold((0, 0.0f64), |(b, t), s| {
            (b + s.read_bytes + s.write_bytes, t.max(s.at_s))
        });
        format!("{:.1} MB/s", bytes as f64 / 1e6 / at_s.max(0.001))
    }
}

/// Events of the agent during the phase.
struct Events<'a> {
    agent: Option<&'a mut Agent>,
    kill_at_s: Option<f64>,
    killed_at_s: Option<f64>,
    status_at_s: f64,
    status: Option<StatusQuery>,
}

impl<'a> Events<'a> {
    fn new(job: &GuestJob, agent: Option<&'a mut Agent>) -> Self {
        Self {
            agent,
            kill_at_s: job.kill_agent_at_s.map(f64::from),
            killed_at_s: None,
            status_at_s: f64::from(job.seconds) * 2.0 / 3.0,
            status: None,
        }
    }

    fn happen(&mut self, at_s: f64) -> Result<()> {
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        agent.watch()?;
        if self.kill_at_s.is_some_and(|at| at_s >= at) {
            self.kill_at_s = None;
            agent.kill();
            progress("the agent was killed");
            self.killed_at_s = Some(at_s);
        } else if let Some(killed) = self.killed_at_s {
            if at_s >= killed + DEAD_S && agent.is_gone()? {
                self.killed_at_s = None;
                agent.spawn()?;
                progress(&format!(
                    "the agent was started again after {:.0} s",
                    at_s - killed
                ));
            }
        }
        if self.status.is_none() && self.killed_at_s.is_none() && at_s >= self.status_at_s {
            self.status = Some(StatusQuery::start()?);
        }
        Ok(())
    }

    /// If the phase ends before a killed agent has a successor, starts it now: it must undo what the killed
    /// one left.
    fn finish(&mut self) -> Result<()> {
        let Some(agent) = self.agent.as_mut().filter(|_| self.killed_at_s.is_some()) else {
            return Ok(());
        };
        agent.wait_until_gone()?;
        agent.spawn()?;
        progress("the agent was started again after the phase");
        Ok(())
    }
}
