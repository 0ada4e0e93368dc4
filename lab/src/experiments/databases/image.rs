//! The disk image with the databases: made once by a guest of its own and cached.
//!
//! Under emulation, creating a database takes longer than measuring one, so it is not repeated for each
//! policy. The image's name identifies its content; every use verifies its checksum.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::machine::{program, Guest, Machine};
use crate::protocol::databases::{PrepareJob, PrepareReport};
use crate::protocol::Job;
use justitia_machine::cache::{sha256_bytes, Cache};
use justitia_machine::error::{Result, Say};
use justitia_machine::kernels::Series;
use justitia_machine::vm::{DataDisk, VmSpec};

/// Debian packages that a guest needs for the databases.
pub const PACKAGES: &[&str] = &["mariadb-server-core", "sysbench"];

/// ... and for the neighbors of a database.
pub const NEIGHBORS_PACKAGES: &[&str] = &["tar", "tcc"];

/// Incremented when the creation changes, to invalidate cached images.
const LAYOUT: u32 = 1;

/// Logs, system table space and file system of one database, bytes.
const OVERHEAD_BYTES: u64 = 64 << 20;

/// The image with these databases; made if it is not cached.
pub fn obtain(
    job: &PrepareJob,
    database_bytes: u64,
    kernel: Series,
    console: &Path,
    progress: &mut Say,
) -> Result<PathBuf> {
    let name = name(job);
    let cache = Cache::open()?;
    if let Some(path) = cache.verified_image(&name)? {
        return Ok(path);
    }
    progress("making the databases, once");
    let scratch = cache.run_dir()?;
    let path = scratch.path().join("databases");
    let databases = u64::from(job.databases);
    let bytes = bytes(databases, database_bytes);
    let spec = VmSpec {
        data_bytes: bytes,
        data: DataDisk::MadeAt(path.clone()),
        modules: vec!["bfq".to_owned()],
        extra_packages: PACKAGES.iter().map(|p| (*p).to_owned()).collect(),
        ..VmSpec::new(
            kernel,
            vec![program("justitia-lab-guest")?],
            Duration::from_secs(300 + bytes / 1_000_000),
        )
    };
    let job = Job::PrepareDatabases(job.clone());
    let answer = Machine::from(spec).run(&job, console, progress)?;
    let report: PrepareReport = answer.report()?;
    progress(&format!(
        "made {databases} databases of {} MB in {:.0} s",
        report.table_bytes / 1_000_000,
        report.seconds
    ));
    let _lock = cache.lock(progress)?;
    cache.adopt_image(&path, &name)
}

/// Size of the disk, whole mebibytes.
pub fn bytes(databases: u64, database_bytes: u64) -> u64 {
    (databases * (database_bytes * 5 / 4 + OVERHEAD_BYTES) + (64 << 20)).next_multiple_of(1 << 20)
}

fn name(job: &PrepareJob) -> String {
    let what = format!("{LAYOUT} {} {}", job.databases, job.rows);
    format!("databases-{}.img", &sha256_bytes(what.as_bytes())[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_databases_are_another_image() {
        let job = |databases, rows| PrepareJob { databases, rows };
        assert_eq!(name(&job(2, 10)), name(&job(2, 10)));
        assert_ne!(name(&job(2, 10)), name(&job(8, 10)));
        assert_ne!(name(&job(2, 10)), name(&job(2, 11)));
    }
}
