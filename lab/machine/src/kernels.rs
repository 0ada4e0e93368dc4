//! Stock kernels: finds the Debian package with the newest kernel of a series, fetches it once and keeps it.
//!
//! A series is a stable branch of Linux as one Debian suite ships it, in the `cloud` flavor of an
//! architecture (NVMe, ext4 and PCI are built in, so it boots without an initrd). Nothing is installed:
//! packages are unpacked into the cache. Newer suites split the kernel over several packages; this module
//! handles both layouts.
//!
//! Invariant: a cached kernel's manifest lists the SHA-256 of the kernel and of every module, and each of
//! these files is verified before use.
//!
//! A kernel built on this machine can replace a stock one ([`Wanted::Built`]): it is booted from its build
//! tree, and modules are built against that tree.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::architecture::Architecture;
use crate::cache::{sha256_file, LockedCache};
use crate::error::{LabError, OrCannot, Result, Say};
use crate::fetch::World;
use crate::packages;
use crate::sealed::Sealed;

/// Suffix of the names of an architecture's kernels.
pub(crate) fn flavor(architecture: Architecture) -> String {
    format!("-cloud-{}", architecture.debian())
}

/// The image's name in the cache.
const IMAGE: &str = "vmlinuz";

/// An index may list a version that the archive has just dropped; then older ABIs are tried.
const DOWNLOAD_ATTEMPTS: usize = 3;

/// A kernel series that the lab can obtain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Series {
    /// Debian 12's own kernel.
    #[serde(rename = "6.1")]
    V6_1,
    /// Debian 12's backport.
    #[serde(rename = "6.12")]
    V6_12,
    /// Debian 13's backport.
    #[serde(rename = "7.2")]
    V7_2,
}

impl Series {
    /// Oldest first.
    pub const ALL: [Self; 3] = [Self::V6_1, Self::V6_12, Self::V7_2];

    /// As written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7_2 => "7.2",
        }
    }

    /// The suites with the tools and the compiler of its build; the first one names the release.
    pub(crate) fn tool_suites(self) -> &'static [&'static str] {
        match self {
            Self::V6_1 | Self::V6_12 => &["bookworm", "bookworm-backports"],
            Self::V7_2 => &["trixie", "trixie-backports"],
        }
    }

    pub(crate) fn suites(self) -> &'static [&'static str] {
        match self {
            Self::V6_1 => &["bookworm", "bookworm-security"],
            Self::V6_12 => &["bookworm-backports"],
            Self::V7_2 => &["trixie-backports"],
        }
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The stock kernel of a series.
    Series(Series),
    /// The kernel in this tree of configured and built sources. Its modules are not used: everything that a
    /// guest needs is built in.
    Built(PathBuf),
}

impl From<Series> for Wanted {
    fn from(series: Series) -> Self {
        Self::Series(series)
    }
}

impl Wanted {
    /// Obtains the kernel, fetching it if necessary. An environment error if it cannot be fetched, or
    /// if the tree contains no kernel.
    pub fn obtain(
        &self,
        cache: &LockedCache,
        architecture: Architecture,
        progress: &mut Say,
    ) -> Result<Kernel> {
        match self {
            Self::Series(series) => obtain(cache, architecture, *series, progress),
            Self::Built(tree) => built(tree),
        }
    }
}

/// A kernel in the cache, or one built here.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    image: &'static str,
    sealed: Sealed,
}

impl Kernel {
    /// The image that QEMU boots, verified.
    pub fn image(&self) -> Result<PathBuf> {
        self.verified(self.image)
    }

    /// Paths of the modules, relative to the kernel's directory.
    pub fn module_paths(&self) -> impl Iterator<Item = &str> {
        let files = self.sealed.files.keys();
        files
            .map(String::as_str)
            .filter(|path| path.contains(".ko"))
    }

    /// The list of modules built into the kernel, one path per line; empty when the packages have none.
    pub fn builtin_modules(&self) -> String {
        fs::read_to_string(self.sealed.dir.join("modules.builtin")).unwrap_or_default()
    }

    /// The absolute path of a file whose checksum was verified.
    pub fn verified(&self, relative: &str) -> Result<PathBuf> {
        self.sealed.verified(relative)
    }
}

/// The cached kernel of a series, fetched when it is missing or damaged.
pub fn obtain(
    cache: &LockedCache,
    architecture: Architecture,
    series: Series,
    progress: &mut Say,
) -> Result<Kernel> {
    let dir = cache.path("kernels").join(architecture.name(series.name()));
    if let Some(kernel) = load(&dir) {
        if kernel.image().is_ok() {
            return Ok(kernel);
        }
        progress("the cached kernel is damaged");
    }
    fetch(cache, architecture, series, &dir, progress).map_err(|error| {
        LabError::environment(
            format!("kernel {series} cannot be fetched: {}", error.cause()),
            error.remedy(),
        )
    })
}

/// The kernel in a build tree.
fn built(tree: &Path) -> Result<Kernel> {
    let image = "arch/x86/boot/bzImage";
    let release = fs::read_to_string(tree.join("include/config/kernel.release"));
    let sum = sha256_file(&tree.join(image));
    let (Ok(release), Ok(sum)) = (release, sum) else {
        return Err(LabError::environment(
            format!("{} holds no kernel that was built", tree.display()),
            "configure and build it there: make bzImage modules",
        ));
    };
    Ok(Kernel {
        release: release.trim().to_owned(),
        image,
        sealed: Sealed {
            dir: tree.to_owned(),
            release: None,
            files: BTreeMap::from([(image.to_owned(), sum)]),
        },
    })
}

fn load(dir: &Path) -> Option<Kernel> {
    let sealed = Sealed::open(dir)?;
    Some(Kernel {
        release: sealed.release.clone()?,
        image: IMAGE,
        sealed,
    })
}

fn fetch(
    cache: &LockedCache,
    architecture: Architecture,
    series: Series,
    dir: &Path,
    progress: &mut Say,
) -> Result<Kernel> {
    progress(&format!(
        "fetching kernel {series} from {}",
        series.suites()[0]
    ));
    let world = World::open(cache, architecture, series.suites())?;
    let mut index = Vec::new();
    for part in ["image", "binary", "modules", "base"] {
        index.extend(world.packages_with_prefix(&format!("linux-{part}-{series}"))?);
    }
    let scratch = cache.run_dir()?;
    let mut last_error = LabError::environment(
        format!("{} lists no kernel of series {series}", series.suites()[0]),
        "the archive may have moved on: choose another series",
    );
    let flavor = flavor(architecture);
    for (attempt, candidate) in candidates(&index, series.name(), &flavor)
        .into_iter()
        .take(DOWNLOAD_ATTEMPTS)
        .enumerate()
    {
        let downloads = scratch.path().join(format!("debs-{attempt}"));
        match world.download(&candidate.packages, &downloads) {
            Ok(debs) => {
                let staging = scratch.path().join("kernel");
                let release = format!("{}{flavor}", candidate.abi);
                unpack(&release, &debs, scratch.path(), &staging)?;
                return Ok(Kernel {
                    release: release.clone(),
                    image: IMAGE,
                    sealed: Sealed::seal(&staging, dir, Some(release))?,
                });
            }
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

#[derive(Debug, PartialEq, Eq)]
struct Candidate {
    /// ABI name, for example `6.12.95+deb12`.
    abi: String,
    packages: Vec<String>,
}

/// Every kernel of the series in the index, newest ABI first.
fn candidates(index: &[String], series: &str, flavor: &str) -> Vec<Candidate> {
    let abi_of = |package: &str, prefix: &str| -> Option<String> {
        let abi = package.strip_prefix(prefix)?.strip_suffix(flavor)?;
        let rest = abi.strip_prefix(series)?;
        (rest.starts_with(['.', '-', '+']) && !abi.contains("unsigned")).then(|| abi.to_owned())
    };
    let find = |name: String| index.contains(&name).then_some(name);
    let mut found: Vec<Candidate> = Vec::new();
    for package in index {
        let split = abi_of(package, "linux-binary-");
        let Some(abi) = split.clone().or_else(|| abi_of(package, "linux-image-")) else {
            continue;
        };
        if found.iter().any(|candidate| candidate.abi == abi) {
            continue;
        }
        let modules = find(format!("linux-modules-{abi}{flavor}"));
        let packages = match (find(format!("linux-binary-{abi}{flavor}")), modules) {
            (Some(binary), Some(modules)) => {
                let base = find(format!("linux-base-{abi}{flavor}"));
                [binary, modules].into_iter().chain(base).collect()
            }
            (None, None) => vec![package.clone()],
            _ => continue,
        };
        found.push(Candidate { abi, packages });
    }
    found.sort_by_key(|candidate| std::cmp::Reverse(numbers(&candidate.abi)));
    found
}

/// The numbers in a name, for comparison: `6.12.90+deb12.1` -> 6, 12, 90, 12, 1.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

/// Unpacks a kernel into `staging`, in the cache's layout.
fn unpack(release: &str, debs: &[PathBuf], scratch: &Path, staging: &Path) -> Result<()> {
    let tree = scratch.join("tree");
    for deb in debs {
        packages::unpack(deb, &tree)?;
    }
    let libs = ["usr/lib/modules", "lib/modules"].map(|dir| tree.join(dir).join(release));
    let image = [
        tree.join(format!("boot/vmlinuz-{release}")),
        libs[0].join("vmlinuz"),
    ]
    .into_iter()
    .find(|path| path.exists());
    let modules = libs.iter().find(|dir| dir.join("kernel").is_dir());
    let (Some(image), Some(modules)) = (image, modules) else {
        return Err(LabError::environment(
            format!("the packages of {release} hold no kernel where one is expected"),
            "the archive's layout changed: choose another series",
        ));
    };
    fs::create_dir_all(staging).or_cannot("create", staging)?;
    for (from, to) in [(image, IMAGE), (modules.join("kernel"), "modules")] {
        fs::rename(&from, staging.join(to)).or_cannot("move", &from)?;
    }
    // Not every package has the list of built-in modules.
    let builtin = "modules.builtin";
    let _ = fs::rename(modules.join(builtin), staging.join(builtin));
    Ok(())
}

#[cfg(test)]
mod tests;
