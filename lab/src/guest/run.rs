//! Executes one job, from the first cgroup to the report.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};

use super::agent::{self, Agent};
use super::container::{self, Container};
use super::disks::GuestDisk;
use super::gate;
use super::measure;
use super::residency::Watched;
use super::tenant::{self, Tenant};
use super::wait_profile::Tracer;
use super::{files, knobs, memory_disk, progress, setup, surroundings};
use crate::analysis::record::RunRecord;
use crate::analysis::run::Run;
use crate::load::io::{write, Buffer, IO_BYTES};
use crate::load::shared::{Command as Order, Status};
use crate::load::sharing::{OWN_FILE, SHARED_FILE};
use crate::machine::with_disk;
use crate::protocol::{
    ContainerJob, Facts, GuestJob, KnobDifference, Knobs, Lru, MemoryDisk, Policy, Sample,
    Scheduler, Series,
};

/// Includes crun's start under emulation.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Time limit for writing the file sets to a throttled disk, beyond the host's limit for the whole boot.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Time for loads to stop before they are killed.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Memory that the static partition leaves to the kernel, the driver and the agent, bytes.
const SYSTEM_RESERVE_BYTES: u64 = 64 << 20;

pub fn run(job: &GuestJob) -> Result<RunRecord> {
    let mut environment = setup::facts()?;
    environment.insert("seed".into(), job.seed.to_string());
    environment.extend(setup::vm_settings());
    let data = prepare_guest(job, &mut environment)?;
    surroundings::set_vm(&job.surroundings)?;
    tenant::prepare(job)?;
    let containers = start_containers(job)?;
    surroundings::limit(&job.surroundings, &containers)?;
    let preparing = Instant::now();
    let caching_counts = job.containers.iter().any(|c| c.load.caching_counts());
    let mut tenant = Tenant::settle(job)?;
    let enforced = caching_counts.then(|| enforce(job, &containers));
    let enforced = enforced.transpose()?;
    prepare_files(&containers)?;
    surroundings::prepare(&job.surroundings)?;
    if !caching_counts {
        setup::drop_caches()?;
    }
    if let Some(bytes) = job.polluter_bytes {
        progress(&format!("writing {} MB of dummy data", bytes / 1_000_000));
        pollute(bytes)?;
    }
    let (knobs_before, mut agent) = match enforced {
        Some(enforced) => enforced,
        None => enforce(job, &containers)?,
    };
    let prepare_s = preparing.elapsed().as_secs_f64();

    let watched = watched_files(job)?;
    let app = Path::new(setup::CGROUP).join("app");
    let tracer = job.profile_waits.then(|| Tracer::start(&app));
    let tracer = tracer.transpose()?;
    if let Some(tenant) = &mut tenant {
        tenant.begin()?;
    }
    let measured = measure::measure(
        job,
        &containers,
        &data,
        &watched,
        agent.as_mut(),
        tracer.as_ref(),
    )?;

    let mut failed_commands = Vec::new();
    for (number, said) in (1..).zip(measured.commands) {
        failed_commands.extend(said.clone().err());
        let (Ok(words) | Err(words)) = said;
        environment.insert(format!("command_{number}"), words);
    }
    let seen = tenant.as_mut();
    let mut seen = seen.map(|tenant| tenant.look(agent.as_ref(), &containers));
    for container in &containers {
        container.page.set_command(Order::Stop);
    }
    // The gate is unloaded under load: the loads stop only after this.
    let mut head = conclude(job.policy, agent.as_mut(), environment)?;
    head.failed_commands = failed_commands;
    let knobs_after = knobs::of_guest();
    let knob_differences = left_changed(&knobs_before, &knobs_after);
    if let Some((tenant, seen)) = tenant.zip(seen.as_mut()) {
        // The agent has ended and restored under attack.
        seen.done = tenant.end()?;
    }
    container::stop_all(&containers, STOP_PATIENCE);
    // The programs are detached once the tasks they observe are idle.
    drop(tracer);
    // A load that broke while stopping did not do what it reports.
    let failed = |c: &&Container| c.page.status() == Status::Failed;
    let mut broken = containers.iter().filter(failed);
    broken.try_for_each(Container::ensure_alive)?;
    Ok(RunRecord {
        head,
        seconds: measured.seconds,
        prepare_s: Some(prepare_s),
        guest_cpu_busy: measured.cpu_busy,
        knob_differences,
        agent_status: measured.agent_status,
        series: series(&containers, &measured.samples),
        files: measured.files,
        tenant: seen,
        waits: measured.waits,
    })
}

/// Ends the agent, unloads the gate, and collects what every guest reports.
pub(super) fn conclude(
    policy: Policy,
    mut agent: Option<&mut Agent>,
    environment: Facts,
) -> Result<Run> {
    let ended_in_time = agent.as_mut().map(|agent| agent.end()).transpose()?;
    if policy.has_gate() {
        gate::unload()?;
    }
    Ok(Run {
        kernel: setup::kernel(),
        environment,
        agent: agent.as_ref().map(|agent| agent.cost),
        agent_log: agent.map(|agent| agent.log()).unwrap_or_default(),
        kernel_complaints: gate::complaints()?,
        agent_killed: ended_in_time == Some(false),
        ..Run::default()
    })
}

/// Knobs that differ, which are also told as progress.
pub(super) fn left_changed(before: &Knobs, after: &Knobs) -> Vec<KnobDifference> {
    let differences = KnobDifference::between(before, after);
    for knob in &differences {
        progress(&format!("knob not restored: {knob}"));
    }
    differences
}

/// The files whose residency is measured: the shared one and each container's own.
fn watched_files(job: &GuestJob) -> Result<Vec<Watched>> {
    let sharing = |c: &&ContainerJob| c.load.shares_files();
    let sharers: Vec<&ContainerJob> = job.containers.iter().filter(sharing).collect();
    if sharers.is_empty() {
        return Ok(Vec::new());
    }
    let mut watched = vec![Watched::open(
        "shared file",
        &container::shared_dir().join(SHARED_FILE),
    )?];
    for job in sharers {
        let own = setup::data_dir().join(&job.name).join("set").join(OWN_FILE);
        watched.push(Watched::open(&job.name, &own)?);
    }
    Ok(watched)
}

/// Sets up the data file system of the containers.
fn prepare_guest(job: &GuestJob, environment: &mut Facts) -> Result<GuestDisk> {
    ensure!(!job.containers.is_empty(), "the job has no containers");
    let disk = job.memory_disk.as_ref();
    let data = set_up(disk, job.lru, job.scheduler, environment)?;
    let options = setup::make_data(&data, &job.mount_options)?;
    environment.insert("file_system".into(), "ext4".into());
    environment.insert("mount_options".into(), options);
    Ok(data)
}

/// Sets up the data disk, the LRU, the scheduler and the groups; adds to the facts.
pub(super) fn set_up(
    memory_disk: Option<&MemoryDisk>,
    lru: Lru,
    scheduler: Scheduler,
    environment: &mut Facts,
) -> Result<GuestDisk> {
    progress("preparing the guest");
    let data = memory_disk::of_job(memory_disk)?;
    environment.insert("lru".into(), setup::set_lru(lru)?);
    let scheduler = setup::set_scheduler(&data, scheduler)?;
    environment.insert("scheduler".into(), scheduler);
    setup::make_group("/app")?;
    // Exists from the start, so that the knobs before and after cover the same groups.
    agent::make_group()?;
    Ok(data)
}

fn start_containers(job: &GuestJob) -> Result<Vec<Container>> {
    progress(&format!("starting {} containers", job.containers.len()));
    let mut containers = Vec::new();
    for (index, container) in job.containers.iter().enumerate() {
        let seed = job.seed.wrapping_mul(1000).wrapping_add(index as u64);
        let started = Container::start(index, container, seed, job.scheduler)
            .with_context(|| format!("container {}", container.name))?;
        containers.push(started);
    }
    container::weigh_nesting_groups(job)?;
    container::wait_for(&containers, Status::Waiting, START_TIMEOUT)?;
    Ok(containers)
}

/// Enforces the policy: static limits, or the agent. Returns the knobs before the agent, and the agent.
fn enforce(job: &GuestJob, containers: &[Container]) -> Result<(Knobs, Option<Agent>)> {
    if job.policy == Policy::Memcg {
        partition(job, containers)?;
    }
    let knobs_before = knobs::of_guest();
    if job.policy.has_gate() {
        gate::load(job.policy)?;
    }
    let agent = Agent::start(
        job.policy,
        tenant::of_job(job).is_some() || job.group_weights.is_some(),
        &job.agent_config,
        &job.agent_args,
    )?;
    if agent.is_some() {
        progress("the agent runs");
    }
    Ok((knobs_before, agent))
}

/// Static limits in the ratio of the weights.
fn partition(job: &GuestJob, containers: &[Container]) -> Result<()> {
    let total = without_disk(setup::mem_total()?, job.memory_disk.as_ref());
    let weights: Vec<u32> = containers.iter().map(|c| c.weight).collect();
    for (container, limit) in containers.iter().zip(static_limits(total, &weights)) {
        files::write(&container.group.join("memory.max"), &limit.to_string())?;
    }
    Ok(())
}

/// A guest's memory apart from its disk, as the host added it.
fn without_disk(total: u64, disk: Option<&MemoryDisk>) -> u64 {
    total.saturating_sub(with_disk(0, disk))
}

/// `memory.max` per container: 90 % of RAM minus the system's reserve, in the ratio of the weights, whole
/// pages.
fn static_limits(mem_total: u64, weights: &[u32]) -> Vec<u64> {
    let budget = mem_total.saturating_sub(SYSTEM_RESERVE_BYTES) / 10 * 9;
    let sum: u64 = weights.iter().map(|&w| u64::from(w)).sum();
    weights
        .iter()
        .map(|&w| budget * u64::from(w) / sum.max(1) / 4096 * 4096)
        .collect()
}

fn prepare_files(containers: &[Container]) -> Result<()> {
    progress("writing the file sets");
    for container in containers {
        container.page.set_command(Order::Prepare);
    }
    container::wait_for(containers, Status::Prepared, PREPARE_TIMEOUT)
}

/// Writes a dummy file from the root cgroup, through the page cache.
fn pollute(bytes: u64) -> Result<()> {
    let path = setup::data_dir().join("polluter");
    let mut file = File::create(&path).context("cannot make the polluter's file")?;
    write(&mut file, bytes, &Buffer::new(IO_BYTES), |_| ())?;
    file.sync_all().context("cannot flush the polluter's file")
}

fn series(containers: &[Container], samples: &[Vec<Sample>]) -> Vec<Series> {
    let each = containers.iter().zip(samples);
    each.map(|(container, samples)| {
        let counters = container.page.counters();
        Series {
            name: container.name.clone(),
            weight: container.weight,
            slow_ops: counters.slow_ops,
            max_latency_us: counters.max_latency_us,
            finished_at_s: container.page.finished_at_s(),
            phases: container.page.phase_reports(),
            ..Series::of(samples)
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Volume;
    use crate::tests::fixture;
    use clap::ValueEnum;

    #[test]
    fn the_disks_of_a_volume_are_no_memory_of_the_containers() {
        let settings = fixture::settings("readmix --file-size 64M --clock instructions");
        let volumes = Volume::value_variants().iter().copied().map(Some);
        for volume in volumes.chain([None]) {
            let disk = settings.memory_disk();
            let disk = disk.map(|disk| MemoryDisk { volume, ..disk });
            let total = with_disk(768 << 20, disk.as_ref());
            assert_eq!(without_disk(total, disk.as_ref()), 768 << 20, "{volume:?}");
        }
    }

    #[test]
    fn the_slowest_disk_is_filled_within_the_limit() {
        let settings = fixture::settings("readmix --disk-mbps 1");
        assert!(PREPARE_TIMEOUT.as_secs() > settings.file_set_bytes() / 500_000);
    }

    #[test]
    fn static_limits_follow_the_weights_and_fit() {
        let total = 768 << 20;
        let limits = static_limits(total, &[100, 200, 400, 800]);
        assert!(limits.iter().sum::<u64>() <= total - SYSTEM_RESERVE_BYTES);
        assert!((limits[3] as f64 / limits[0] as f64 - 8.0).abs() < 0.01);
        assert!(limits.iter().all(|l| l % 4096 == 0));
    }
}
