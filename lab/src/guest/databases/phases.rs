//! The phases: clients start and stop, probes run in parallel, one sample per second.
//!
//! A sample carries its actual time. Its transactions are what sysbench had reported by then. The fraction of
//! a second between its last report and the end of the phase is lost, equally in every phase of every policy.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Result};

use super::color::judge;
use super::databases;
use super::probe::{declared, Declarer};
use super::server::Server;
use super::sysbench::{Load, Sysbench};
use crate::experiments::databases::record::Sample;
use crate::guest::agent::Agent;
use crate::guest::disks::GuestDisk;
use crate::guest::sample::Sampler;
use crate::guest::setup::{self, STATE};
use crate::guest::{files, progress};
use crate::load::clock::{monotonic_ns, since_s};
use crate::protocol::databases::{DatabasesJob, HostSample, Start};

const PROGRESS_EVERY_S: u64 = 10;

/// A sysbench is told to run this much longer than its phase; the driver ends it.
const SPARE_S: u32 = 60;

#[derive(Debug, Default)]
struct Clients {
    running: Option<Sysbench>,
    /// Transactions of earlier phases.
    done: f64,
    declarer: Option<Declarer>,
    stopped: bool,
    /// Its neighbor runs.
    works: bool,
}

#[derive(Debug)]
pub struct Phases<'a> {
    job: &'a DatabasesJob,
    servers: &'a [Server],
    device: &'a str,
    clients: Vec<Clients>,
    pub samples: Vec<Vec<Sample>>,
    pub host: Vec<HostSample>,
    /// Begin and end of each phase.
    pub spans: Vec<(f64, f64)>,
    begin_ns: u64,
}

impl<'a> Phases<'a> {
    pub fn new(job: &'a DatabasesJob, servers: &'a [Server], data: &'a GuestDisk) -> Self {
        Self {
            job,
            servers,
            device: &data.number,
            clients: servers.iter().map(|_| Clients::default()).collect(),
            samples: vec![Vec::new(); servers.len()],
            host: Vec::new(),
            spans: Vec::new(),
            begin_ns: 0,
        }
    }

    /// Starts the probes and prepares the page cache for the first phase.
    pub fn prepare(&mut self) -> Result<()> {
        self.start_declarers()?;
        self.fill_cache(0)
    }

    pub fn run(&mut self, mut agent: Option<&mut Agent>) -> Result<()> {
        for phase in 0..self.job.phases.len() {
            if phase > 0 {
                self.fill_cache(phase)?;
            } else {
                self.begin_ns = monotonic_ns();
            }
            let begin_s = self.now_s();
            self.start_clients(phase)?;
            progress(&format!(
                "phase {} of {}, {} s",
                phase + 1,
                self.job.phases.len(),
                self.job.phase_s
            ));
            for second in 1..=u64::from(self.job.phase_s) {
                self.sleep_until(begin_s + second as f64);
                self.sample(phase)?;
                if let Some(agent) = agent.as_deref_mut() {
                    agent.watch()?;
                }
                if second % PROGRESS_EVERY_S == 0 {
                    progress(&self.status(phase));
                }
            }
            self.stop_clients()?;
            self.spans.push((begin_s, self.now_s()));
        }
        for declarer in self.clients.iter_mut().filter_map(|c| c.declarer.take()) {
            declarer.stop();
        }
        Ok(())
    }

    fn start_declarers(&mut self) -> Result<()> {
        for (server, index) in databases(self.job, self.servers) {
            let container = &self.job.containers[index];
            let group = load_group(&container.name)?;
            let declarer = Declarer::start(container, server, self.job.threads, &group)?;
            self.clients[index].declarer = Some(declarer);
        }
        Ok(())
    }

    fn now_s(&self) -> f64 {
        since_s(self.begin_ns)
    }

    fn sleep_until(&self, at_s: f64) {
        let rest = at_s - self.now_s();
        if rest > 0.0 {
            thread::sleep(Duration::from_secs_f64(rest));
        }
    }

    /// Prepares the page cache for the phase.
    fn fill_cache(&self, phase: usize) -> Result<()> {
        match self.job.phases[phase] {
            Start::AsIs => return Ok(()),
            Start::Cold => return setup::drop_caches(),
            Start::Warm => progress("reading the databases"),
        }
        let mut readers = Vec::new();
        for (server, index) in databases(self.job, self.servers) {
            if !self.clients[index].stopped {
                readers.push(server.read_all(index)?);
            }
        }
        for mut reader in readers {
            ensure!(reader.wait()?.success(), "cannot read a database");
        }
        Ok(())
    }

    /// Starts the clients of a phase and stops the containers that have none.
    fn start_clients(&mut self, phase: usize) -> Result<()> {
        for (index, container) in self.job.containers.iter().enumerate() {
            let clients = &mut self.clients[index];
            let offered = container.offered_tps.get(phase).copied().flatten();
            if container.neighbor.is_some() {
                if offered.is_some() {
                    self.servers[index].start(index, container, self.job.scheduler)?;
                    clients.works = true;
                }
                continue;
            }
            let Some(rate) = offered else {
                if !clients.stopped {
                    if let Some(declarer) = clients.declarer.take() {
                        declarer.stop();
                    }
                    self.servers[index].stop()?;
                    clients.stopped = true;
                }
                continue;
            };
            let group = load_group(&container.name)?;
            let log = Path::new(STATE).join(format!("sysbench-{}.log", container.name));
            let load = Load {
                socket: &self.servers[index].socket,
                rate,
                threads: self.job.threads,
                rows: self.job.rows,
                keys: self.job.keys,
                seconds: self.job.phase_s + SPARE_S,
                seed: self
                    .job
                    .seed
                    .wrapping_mul(1000)
                    .wrapping_add((phase * 100 + index) as u64),
            };
            clients.running = Some(Sysbench::start(load, &group, &log)?);
        }
        Ok(())
    }

    fn stop_clients(&mut self) -> Result<()> {
        for (clients, server) in self.clients.iter_mut().zip(self.servers) {
            if let Some(sysbench) = clients.running.take() {
                clients.done += sysbench.said().transactions;
                sysbench.stop();
            }
            if std::mem::take(&mut clients.works) {
                clients.done += server.units()? as f64;
                server.stop()?;
            }
        }
        Ok(())
    }

    fn sample(&mut self, phase: usize) -> Result<()> {
        let at_s = self.now_s();
        self.host
            .push(host(&files::read(Path::new("/proc/meminfo"))?));
        for (index, server) in self.servers.iter().enumerate() {
            let clients = &mut self.clients[index];
            let group = Sampler::open(&server.group, self.device);
            let mut sample = Sample {
                at_s,
                phase: phase as u32,
                transactions: clients.done,
                memory_bytes: group.bytes("memory.current"),
                file_bytes: group.page_cache(),
                device_reads: group.device(["rios"]).map(|[reads]| reads),
                low_bytes: group.bytes("memory.low"),
                high_bytes: group.bytes("memory.high"),
                ..Sample::default()
            };
            if let Some(sysbench) = &mut clients.running {
                sysbench.ensure_running()?;
                server.ensure_alive()?;
                let said = sysbench.said();
                sample.transactions += said.transactions;
                (sample.tps, sample.latency_ms) = (said.tps, said.latency_ms);
                sample.queue = said.queue;
                let (job, container) = (self.job, &self.job.containers[index]);
                let offered = container.offered_tps[phase].unwrap_or_default();
                sample.color = said.tps.zip(said.queue).map(|(tps, queue)| {
                    judge(container.objective_tps, offered, job.threads, tps, queue)
                });
            }
            if clients.works {
                server.ensure_alive()?;
                sample.transactions += server.units()? as f64;
                let before = self.samples[index].last();
                let before = before.map_or(0.0, |sample| sample.transactions);
                sample.tps = Some(sample.transactions - before);
            }
            if let Some(declarer) = &mut clients.declarer {
                declarer.tick()?;
                sample.declared = declared(&server.group);
            }
            self.samples[index].push(sample);
        }
        Ok(())
    }

    /// One line for people, with the state of each container.
    fn status(&self, phase: usize) -> String {
        let mut line = format!("phase {}:", phase + 1);
        for (server, samples) in self.servers.iter().zip(&self.samples) {
            let running = |sample: &&Sample| sample.memory_bytes.is_some();
            let Some(sample) = samples.last().filter(running) else {
                continue;
            };
            let tps = sample.tps.map_or("-".to_owned(), |tps| format!("{tps:.0}"));
            let color = sample.color.map_or("-", |color| color.name());
            let mb = sample.memory_bytes.unwrap_or_default() / 1_000_000;
            let _ = write!(line, " {} {tps}/s {color} {mb} MB;", server.name);
        }
        line
    }
}

fn host(meminfo: &str) -> HostSample {
    let field = |name| files::meminfo_bytes(meminfo, name);
    let file = || Some((field("Cached")? + field("Buffers")?).saturating_sub(field("Shmem")?));
    HostSample {
        free_bytes: field("MemFree"),
        file_bytes: file(),
    }
}

fn load_group(name: &str) -> Result<PathBuf> {
    let group = Path::new(setup::CGROUP).join("load").join(name);
    fs::create_dir_all(&group)?;
    // Fails if the group does not exist, with its name in the error.
    files::read(&group.join("cgroup.procs"))?;
    Ok(group)
}
