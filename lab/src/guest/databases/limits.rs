//! Static limits, as set by an operator who knows the machine but not the load.
//!
//! They are set when memory is full, after every container has read its whole database. They divide 90
//! percent of the page cache that all containers then hold, in the ratio of the scenario's limits. A server's
//! limit also includes its memory other than page cache. The paper divides the whole memory, where anonymous
//! memory is almost nothing; here it would exceed the smallest limit.
//!
//! Units: bytes.

use std::path::Path;

use anyhow::{Context, Result};

use super::server::Server;
use crate::guest::files;
use crate::guest::setup::CGROUP;
use crate::policy::Policy;
use crate::protocol::databases::DatabasesJob;

/// Memory of one container.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Held {
    file: u64,
    other: u64,
}

/// Enforces the policy's static limits; returns the limit of each container.
pub fn enforce(job: &DatabasesJob, servers: &[Server]) -> Result<Vec<Option<u64>>> {
    let knob = match job.policy {
        Policy::Max => "memory.max",
        Policy::Soft | Policy::Memoplight => "memory.low",
        _ => return Ok(vec![None; servers.len()]),
    };
    let held = servers
        .iter()
        .map(|server| held(&server.group))
        .collect::<Result<Vec<Held>>>()?;
    let parts: Vec<u32> = job.containers.iter().map(|c| c.limit_part).collect();
    let limits = divide(&held, &parts);
    if knob == "memory.low" {
        // Protection ends at the first unprotected ancestor.
        let sum: u64 = limits.iter().sum();
        let parent = Path::new(CGROUP).join("app").join(knob);
        files::write(&parent, &sum.to_string())?;
    }
    for (server, limit) in servers.iter().zip(&limits) {
        files::write(&server.group.join(knob), &limit.to_string())?;
    }
    Ok(limits.into_iter().map(Some).collect())
}

fn held(group: &Path) -> Result<Held> {
    let stat = files::read(&group.join("memory.stat"))?;
    let current = files::limit_bytes(&files::read(&group.join("memory.current"))?);
    let file = files::page_cache(&stat).context("memory.stat tells no page cache")?;
    let current = current.context("memory.current is no number")?;
    Ok(Held {
        file,
        other: current.saturating_sub(file),
    })
}

fn divide(held: &[Held], parts: &[u32]) -> Vec<u64> {
    let budget = held.iter().map(|h| h.file).sum::<u64>() / 10 * 9;
    let sum: u64 = parts.iter().map(|&part| u64::from(part)).sum();
    held.iter()
        .zip(parts)
        .map(|(held, &part)| {
            let file = budget / sum.max(1) * u64::from(part);
            (held.other + file) / 4096 * 4096
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_is_divided_in_the_ratio_and_other_memory_is_each_ones_own() {
        let held = [(60, 40), (30, 20)].map(|(file, other)| Held {
            file: file << 20,
            other: other << 20,
        });
        let limits = divide(&held, &[1800, 1000]);
        let file: Vec<u64> = limits.iter().zip(held).map(|(l, h)| l - h.other).collect();
        assert!((file[0] as f64 / file[1] as f64 - 1.8).abs() < 0.01);
        assert!(file.iter().sum::<u64>() <= (90 << 20) / 10 * 9);
        assert!(file.iter().sum::<u64>() > (90 << 20) / 100 * 89);
    }

    #[test]
    fn a_group_that_cannot_be_read_gets_no_invented_limit() {
        let dir = tempfile::tempdir().unwrap();
        assert!(held(dir.path()).is_err());
        std::fs::write(dir.path().join("memory.stat"), "anon 5\n").unwrap();
        std::fs::write(dir.path().join("memory.current"), "9\n").unwrap();
        assert!(held(dir.path()).is_err());
    }
}
