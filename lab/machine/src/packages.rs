//! Debian packages that the cache keeps as fetched, with their SHA-256.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::cache::{sha256_file, Cache};
use crate::error::{LabError, OrCannot};
use crate::fetch::{Package, World};
use crate::tools;

/// File name of a package -> SHA-256.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    packages: BTreeMap<String, String>,
}

/// Downloads packages into `dir` of the cache, with a manifest.
pub(crate) fn keep(
    cache: &Cache,
    world: &World,
    packages: &[Package],
    dir: &Path,
) -> Result<Vec<PathBuf>, LabError> {
    let scratch = cache.run_dir()?;
    let staging = scratch.path().join("packages");
    let mut manifest = Manifest {
        packages: BTreeMap::new(),
    };
    for deb in world.download(packages, &staging)? {
        let name = deb.file_name().unwrap_or_default().to_string_lossy();
        manifest
            .packages
            .insert(name.into_owned(), sha256_file(&deb)?);
    }
    let text = serde_json::to_string_pretty(&manifest).expect("a manifest is plain data");
    let path = staging.join("manifest.json");
    fs::write(&path, text).or_cannot("write", &path)?;
    // Already gone or damaged: the rename needs the name free, and its parent.
    let _ = fs::remove_dir_all(dir);
    let parent = dir.parent().unwrap_or(dir);
    fs::create_dir_all(parent).or_cannot("create", parent)?;
    fs::rename(&staging, dir).or_cannot("create", dir)?;
    cached(dir).ok_or_else(|| {
        LabError::environment(
            format!("{} vanished", dir.display()),
            "do not remove the cache while the lab runs",
        )
    })
}

/// The packages kept in `dir`, if all are intact.
pub(crate) fn cached(dir: &Path) -> Option<Vec<PathBuf>> {
    let text = fs::read_to_string(dir.join("manifest.json")).ok()?;
    let manifest: Manifest = serde_json::from_str(&text).ok()?;
    let intact = |(name, sum): (String, String)| {
        let path = dir.join(name);
        (sha256_file(&path).ok()? == sum).then_some(path)
    };
    manifest.packages.into_iter().map(intact).collect()
}

pub(crate) fn unpack(deb: &Path, tree: &Path) -> Result<(), LabError> {
    let mut command = Command::new(tools::find("dpkg-deb")?);
    command.arg("--extract").arg(deb).arg(tree);
    tools::run(&mut command, "check that the cache's file system has room").map(drop)
}
