//! Debian packages that the cache keeps as fetched.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::Cache;
use crate::error::Result;
use crate::fetch::World;
use crate::sealed::Sealed;
use crate::tools;

/// Downloads packages into `dir` of the cache.
pub(crate) fn keep(
    cache: &Cache,
    world: &World,
    packages: &[String],
    dir: &Path,
) -> Result<Vec<PathBuf>> {
    let scratch = cache.run_dir()?;
    let staging = scratch.path().join("packages");
    world.download(packages, &staging)?;
    Sealed::seal(&staging, dir, None)?.all_verified()
}

/// The packages kept in `dir`, if all are intact.
pub(crate) fn cached(dir: &Path) -> Option<Vec<PathBuf>> {
    Sealed::open(dir)?.all_verified().ok()
}

pub(crate) fn unpack(deb: &Path, tree: &Path) -> Result<()> {
    let mut command = Command::new(tools::find("dpkg-deb")?);
    command.arg("--extract").arg(deb).arg(tree);
    tools::run(&mut command, "check that the cache's file system has room").map(drop)
}
