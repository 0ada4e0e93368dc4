//! Databases in containers: one boot creates them, each of the others measures one policy.
//!
//! [`prepare`] fills an empty data disk. The host keeps it and hands it to every measuring guest, whose
//! writes are thrown away. [`run()`] then executes the steps of every experiment: containers, probes, a full
//! page cache, static limits or the agent, phases. Equal for all policies: the image, the load's seed, and
//! that a probe declares every container's color.

pub mod color;
pub mod limits;
pub mod phases;
pub mod probe;
pub mod server;
pub mod sysbench;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{ensure, Result};

use super::agent::Agent;
use super::disks::{self, GuestDisk};
use super::{files, knobs, progress, run, setup};
use crate::experiments::databases::record::{RunRecord, Series};
use crate::protocol::databases::{DatabasesJob, PrepareJob, PrepareReport};
use crate::protocol::{Facts, Knobs, Lru};
use justitia_machine::qemu::SERIAL_DATA;
use server::Server;

/// Read-ahead of the data disk: one page of `InnoDB`. A point select of MariaDB 10.11 reads its leaf page and
/// the next one; the kernel takes that for a sequential read and reads ahead as far as it may.
const READ_AHEAD_KB: &str = "16";

/// Creates the databases on the empty data disk.
pub fn prepare(job: &PrepareJob) -> Result<PrepareReport> {
    let began = Instant::now();
    let data = disks::find(SERIAL_DATA)?;
    setup::set_lru(Lru::Classic)?;
    setup::make_data(&data, "")?;
    progress(&format!("making a database of {} rows", job.rows));
    let table_bytes = server::make(0, job.rows)?;
    for index in 1..job.databases as usize {
        progress(&format!("copying the database, {index}"));
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(server::home(0)).arg(server::home(index));
        setup::run(&mut copy)?;
    }
    progress("writing the databases out");
    setup::run(Command::new("umount").arg(setup::data_dir()))?;
    Ok(PrepareReport {
        table_bytes,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Measures one policy.
pub fn run(job: &DatabasesJob) -> Result<RunRecord> {
    ensure!(!job.containers.is_empty(), "the job has no containers");
    let mut environment = setup::facts()?;
    let data = prepare_guest(job, &mut environment)?;
    let servers = start_servers(job)?;
    let mut phases = phases::Phases::new(job, &servers, &data);
    phases.prepare()?;
    let limits = limits::enforce(job, &servers)?;
    let knobs_before = knobs::of_guest();
    let mut agent = Agent::start(job.policy, false, &job.agent_config, &job.agent_args)?;
    if agent.is_some() {
        progress("the agent runs");
    }
    phases.run(agent.as_mut())?;
    let head = run::conclude(job.policy, agent.as_mut(), environment)?;
    let knobs_after = knobs::of_guest();
    Ok(RunRecord {
        head,
        phases: phases.spans,
        knobs_left: left_changed(knobs_before, knobs_after),
        limits,
        series: phases.samples.iter().map(|one| Series::of(one)).collect(),
        host: phases.host,
    })
}

/// Sets up huge pages, read-ahead, the databases' file system and the clients' group.
fn prepare_guest(job: &DatabasesJob, environment: &mut Facts) -> Result<GuestDisk> {
    let disk = job.memory_disk.as_ref();
    let data = run::set_up(disk, job.lru, job.scheduler, environment)?;
    let mut fact = |name: &str, value: String| {
        environment.insert(name.to_owned(), value);
    };
    fact("huge_pages", setup::without_huge_pages()?);
    let read_ahead = Path::new("/sys/block")
        .join(&data.name)
        .join("queue/read_ahead_kb");
    // A backup reads with the kernel's default.
    if job.containers.iter().all(|c| c.neighbor.is_none()) {
        files::write(&read_ahead, READ_AHEAD_KB)?;
    }
    fact("read_ahead_kb", files::read(&read_ahead)?);
    fact("mount_options", setup::mount_data(&data, "")?);
    setup::make_group("/load")?;
    Ok(data)
}

/// The servers of databases, and their places.
fn databases<'a>(
    job: &'a DatabasesJob,
    servers: &'a [Server],
) -> impl Iterator<Item = (&'a Server, usize)> {
    let each = servers.iter().zip(0..);
    each.filter(|(_, at)| job.containers[*at].neighbor.is_none())
}

fn start_servers(job: &DatabasesJob) -> Result<Vec<Server>> {
    progress(&format!("starting {} servers", job.containers.len()));
    let mut servers = Vec::new();
    for (index, container) in job.containers.iter().enumerate() {
        let server = Server::new(index, container);
        if container.neighbor.is_none() {
            server.start(index, container, job.scheduler)?;
        }
        servers.push(server);
    }
    for (server, _) in databases(job, &servers) {
        server.wait_until_ready()?;
    }
    Ok(servers)
}

/// Knobs that differ, for groups that exist both before and after. The group of a stopped container is gone,
/// and the clients' groups are created in between.
fn left_changed(mut before: Knobs, mut after: Knobs) -> Vec<String> {
    before.retain(|knob, _| after.contains_key(knob));
    after.retain(|knob, _| before.contains_key(knob));
    let left = run::left_changed(&before, &after);
    left.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::map;

    #[test]
    fn only_groups_that_were_there_all_the_time_can_be_left_changed() {
        let before = map([("app/A/memory.low", "0"), ("app/B/memory.low", "0")]);
        let after = map([("app/B/memory.low", "4096"), ("load/B/memory.low", "0")]);
        let left = left_changed(before, after);
        assert_eq!(left, ["app/B/memory.low: \"0\" -> \"4096\""]);
    }
}
