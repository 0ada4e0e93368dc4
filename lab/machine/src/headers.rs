//! Headers of a cached kernel, and modules built against them.
//!
//! The packages (`linux-headers-RELEASE`, its `-common` part and `linux-kbuild-…`) come from the kernel's
//! suite, at the kernel's own ABI, because a kernel refuses a module of another ABI. The cache keeps them as
//! fetched, with their SHA-256. Each build unpacks them into a temporary directory; nothing is installed. One
//! Makefile of Debian's headers names `/usr/src`; it is rewritten to the place where they were unpacked.
//!
//! The tools in `linux-kbuild` are programs of their suite: those of Debian 13 (kernel 7.2) do not run on
//! Debian 12, and the kernel's compiler is another one. The build then uses the suite's own tools
//! ([`toolchain`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::architecture::Architecture;
use crate::cache::{Cache, LockedCache};
use crate::error::{LabError, OrCannot, Result, Say};
use crate::fetch::World;
use crate::kernels::{self, flavor, Kernel, Series, Wanted};
use crate::packages::{cached, keep, unpack};
use crate::toolchain;
use crate::tools;

/// The processor of this machine, on which the build tools run.
const HOST: Architecture = Architecture::Amd64;

fn find(index: &[String], name: String) -> Option<String> {
    index.contains(&name).then_some(name)
}

/// The packages in an index that hold the headers of `release`, which has this ABI.
fn headers_of(index: &[String], release: &str, abi: &str) -> Option<Vec<String>> {
    Some(vec![
        find(index, format!("linux-headers-{release}"))?,
        find(index, format!("linux-headers-{abi}-common"))?,
    ])
}

/// The package in an index that holds the build tools for this ABI.
fn kbuild_of(index: &[String], abi: &str) -> Option<Vec<String>> {
    // Debian 12's own kernel has one kbuild for all its ABIs, named after the series.
    let series = abi.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    let mut names = [abi, &series]
        .map(|of| format!("linux-kbuild-{of}"))
        .into_iter();
    Some(vec![names.find_map(|name| find(index, name))?])
}

/// The packages of a kernel's headers and of the build tools, from the cache if intact. `None`: the archive has
/// moved on to another ABI.
fn obtain(
    cache: &LockedCache,
    architecture: Architecture,
    series: Series,
    kernel: &Kernel,
    progress: &mut Say,
) -> Result<Option<Vec<PathBuf>>> {
    let release = &kernel.release;
    let Some(abi) = release.strip_suffix(&flavor(architecture)) else {
        return Ok(None);
    };
    let mut part = |architecture, kind, name: &str, chosen: &Choice| {
        let dir = cache.path(kind).join(name);
        if let Some(kept) = cached(&dir) {
            return Ok(Some(kept));
        }
        progress(&format!("fetching the {kind} of {name}"));
        let world = World::open(cache, architecture, series.suites())?;
        let index = world.packages_with_prefix(&format!("linux-{kind}-"))?;
        let Some(packages) = chosen(&index) else {
            return Ok(None);
        };
        keep(cache, &world, &packages, &dir).map(Some)
    };
    let headers = part(architecture, "headers", release, &|index| {
        headers_of(index, release, abi)
    })?;
    let kbuild = part(HOST, "kbuild", abi, &|index| kbuild_of(index, abi))?;
    Ok(headers
        .zip(kbuild)
        .map(|(headers, kbuild)| [headers, kbuild].concat()))
}

/// Chooses packages from an index.
type Choice<'a> = dyn Fn(&[String]) -> Option<Vec<String>> + 'a;

/// The headers of the cached kernel. If the archive no longer has them, those of the series' newest kernel,
/// which replaces the cached one.
fn obtain_with_kernel(
    cache: &LockedCache,
    architecture: Architecture,
    series: Series,
    progress: &mut Say,
) -> Result<(Kernel, Vec<PathBuf>)> {
    let kernel = kernels::obtain(cache, architecture, series, progress)?;
    if let Some(debs) = obtain(cache, architecture, series, &kernel, progress)? {
        return Ok((kernel, debs));
    }
    progress(&format!(
        "the archive has no headers of {} any more",
        kernel.release
    ));
    let old = cache.path("kernels").join(architecture.name(series.name()));
    fs::remove_dir_all(&old).or_cannot("remove", &old)?;
    let kernel = kernels::obtain(cache, architecture, series, progress)?;
    let debs = obtain(cache, architecture, series, &kernel, progress)?.ok_or_else(|| {
        LabError::environment(
            format!("the archive has {} without its headers", kernel.release),
            "try again when the archive is complete",
        )
    })?;
    Ok((kernel, debs))
}

/// Builds the module whose sources are in `source` for a kernel, and writes `NAME.ko` to `out`. An
/// environment error if the headers or the suite's compiler cannot be obtained or do not run here. A failure if the
/// compiler rejects the sources; its cause contains the messages.
pub fn build_module(
    architecture: Architecture,
    wanted: &Wanted,
    source: &Path,
    name: &str,
    out: &Path,
    progress: &mut Say,
) -> Result<PathBuf> {
    let cache = Cache::open()?.lock(progress)?;
    let scratch = cache.run_dir()?;
    let tree = scratch.path().join("tree");
    let work = tree.join("module");
    copy_sources(source, &work)?;
    let (kernel, mut command) = match wanted {
        Wanted::Series(series) => {
            let (kernel, debs) = obtain_with_kernel(&cache, architecture, *series, progress)?;
            let unpacked = Unpacked {
                architecture,
                series: *series,
                kernel: &kernel,
                debs: &debs,
                tree: &tree,
            };
            let make = unpacked.make(&cache, &work, progress)?;
            (kernel, make)
        }
        Wanted::Built(headers) => {
            let kernel = wanted.obtain(&cache, architecture, progress)?;
            (kernel, make_here(architecture, headers, &work)?)
        }
    };
    // The rest needs no lock: it works on this run's own files.
    drop(cache);
    let output = command.output().or_cannot("run", Path::new("make"))?;
    let built = work.join(format!("{name}.ko"));
    if !output.status.success() || !built.exists() {
        return Err(LabError::failed(
            format!(
                "{name} does not build for {}: {}",
                kernel.release,
                String::from_utf8_lossy(&output.stderr).trim()
            ),
            "correct the sources",
        ));
    }
    let target = out.join(format!("{name}.ko"));
    fs::copy(&built, &target).or_cannot("write", &target)?;
    Ok(target)
}

/// Headers and build tools of a kernel, to be unpacked into a tree.
struct Unpacked<'a> {
    architecture: Architecture,
    series: Series,
    kernel: &'a Kernel,
    debs: &'a [PathBuf],
    tree: &'a Path,
}

impl Unpacked<'_> {
    /// `make` with them.
    fn make(&self, cache: &Cache, work: &Path, progress: &mut Say) -> Result<Command> {
        for deb in self.debs {
            unpack(deb, self.tree)?;
        }
        let headers = self
            .tree
            .join("usr/src")
            .join(format!("linux-headers-{}", self.kernel.release));
        if runs_here(self.architecture, &headers)? {
            turn_to(&headers.join("Makefile"), self.tree)?;
            return make_here(self.architecture, &headers, work);
        }
        if self.architecture != HOST {
            return Err(LabError::environment(
                format!(
                    "this machine has no cross compiler for {}",
                    self.kernel.release
                ),
                "run scripts/setup --arm64, or choose a kernel of this machine's release",
            ));
        }
        toolchain::install(cache, self.series, &headers, self.debs, self.tree, progress)?;
        let inside =
            |path: &Path| Path::new("/").join(path.strip_prefix(self.tree).unwrap_or(path));
        let arguments = make_arguments(self.architecture, &inside(&headers), &inside(work));
        toolchain::make(self.tree, &arguments)
    }
}

/// `make` with this machine's compilers.
fn make_here(architecture: Architecture, headers: &Path, work: &Path) -> Result<Command> {
    let mut make = Command::new(tools::find("make")?);
    make.args(make_arguments(architecture, headers, work));
    Ok(make)
}

/// Replaces `/usr/src` in a Makefile of the headers by its counterpart below `tree`.
fn turn_to(makefile: &Path, tree: &Path) -> Result<()> {
    let text = fs::read_to_string(makefile).or_cannot("read", makefile)?;
    let turned = text.replace("/usr/src/", &format!("{}/usr/src/", tree.display()));
    fs::write(makefile, turned).or_cannot("write", makefile)
}

/// Arguments of `make`.
fn make_arguments(architecture: Architecture, headers: &Path, work: &Path) -> Vec<String> {
    let mut arguments = vec![
        "--silent".to_owned(),
        "-C".to_owned(),
        headers.display().to_string(),
        format!("M={}", work.display()),
        // The module's types are for BPF programs only, and generating them needs another program (pahole).
        "CONFIG_DEBUG_INFO_BTF_MODULES=".to_owned(),
        "modules".to_owned(),
    ];
    if architecture != HOST {
        arguments.push(format!("ARCH={}", architecture.debian()));
        arguments.push(format!("CROSS_COMPILE={}", architecture.compiler_prefix()));
    }
    arguments
}

/// True if the suite's build tools run on this machine, and the kernel's compiler is installed.
fn runs_here(architecture: Architecture, headers: &Path) -> Result<bool> {
    if !toolchain::is_here(architecture, headers) {
        return Ok(false);
    }
    let modpost = headers.join("scripts/mod/modpost");
    // Without arguments it succeeds or complains without doing anything; a failing loader exits with 127 or 1
    // and names GLIBC.
    let output = Command::new(&modpost).output().or_cannot("run", &modpost)?;
    Ok(!String::from_utf8_lossy(&output.stderr).contains("GLIBC_"))
}

/// Copies the files of a source directory, without subdirectories and output of an earlier build.
fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).or_cannot("create", to)?;
    let entries = fs::read_dir(from).or_cannot("list", from)?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let source = path
            .extension()
            .is_some_and(|ending| ending == "c" || ending == "h")
            || path.ends_with("Kbuild");
        if path.is_file() && source && !path.to_string_lossy().ends_with(".mod.c") {
            let target = to.join(path.file_name().unwrap_or_default());
            fs::copy(&path, &target).or_cannot("write", &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_kernels_own_abi() {
        let index = [
            "linux-headers-6.12.96+deb12-cloud-amd64",
            "linux-headers-6.12.95+deb12-cloud-amd64",
            "linux-headers-6.12.95+deb12-common",
            "linux-kbuild-6.12.96+deb12",
            "linux-kbuild-6.12.95+deb12",
        ]
        .map(str::to_owned);
        let headers = |abi| headers_of(&index, &format!("{abi}-cloud-amd64"), abi);
        assert_eq!(
            headers("6.12.95+deb12").unwrap(),
            [
                "linux-headers-6.12.95+deb12-cloud-amd64",
                "linux-headers-6.12.95+deb12-common"
            ]
        );
        assert_eq!(headers("6.12.97+deb12"), None);
        let kbuild = kbuild_of(&index, "6.12.95+deb12");
        assert_eq!(kbuild.unwrap(), ["linux-kbuild-6.12.95+deb12"]);
    }

    #[test]
    fn one_kbuild_serves_all_abis_of_debian_12s_own_kernel() {
        let index = ["linux-kbuild-6.1".to_owned()];
        assert_eq!(kbuild_of(&index, "6.1.0-56").unwrap(), index);
    }
}
