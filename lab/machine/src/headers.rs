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
use crate::cache::{Cache, CacheLock};
use crate::error::LabError;
use crate::fetch::{Package, World};
use crate::kernels::{self, flavor, Kernel, Series, Wanted};
use crate::packages::{cached, keep, unpack};
use crate::toolchain;
use crate::tools;

/// Modules are built for the host's processor.
const ARCHITECTURE: Architecture = Architecture::Amd64;

/// The packages in an index that hold the headers of `release`.
fn packages_of(index: &[Package], release: &str) -> Option<Vec<Package>> {
    let find = |name: String| index.iter().find(|package| package.name == name).cloned();
    let abi = release.strip_suffix(&flavor(ARCHITECTURE))?;
    // Debian 12's own kernel has one kbuild for all its ABIs, named after the series.
    let series = abi.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    Some(vec![
        find(format!("linux-headers-{release}"))?,
        find(format!("linux-headers-{abi}-common"))?,
        find(format!("linux-kbuild-{abi}")).or_else(|| find(format!("linux-kbuild-{series}")))?,
    ])
}

/// The packages of a kernel's headers, from the cache if intact. `None`: the archive has moved on to another
/// ABI.
fn obtain(
    cache: &Cache,
    _lock: &CacheLock,
    series: Series,
    kernel: &Kernel,
    progress: &mut dyn FnMut(&str),
) -> Result<Option<Vec<PathBuf>>, LabError> {
    let dir = cache.path("headers").join(&kernel.release);
    if let Some(debs) = cached(&dir) {
        return Ok(Some(debs));
    }
    progress(&format!("fetching the headers of {}", kernel.release));
    let world = World::open(cache, ARCHITECTURE, series.suites())?;
    let mut index = world.packages_with_prefix("linux-headers-")?;
    index.extend(world.packages_with_prefix("linux-kbuild-")?);
    let Some(packages) = packages_of(&index, &kernel.release) else {
        return Ok(None);
    };
    keep(cache, &world, &packages, &dir).map(Some)
}

/// The headers of the cached kernel. If the archive no longer has them, those of the series' newest kernel,
/// which replaces the cached one.
fn obtain_with_kernel(
    cache: &Cache,
    lock: &CacheLock,
    series: Series,
    progress: &mut dyn FnMut(&str),
) -> Result<(Kernel, Vec<PathBuf>), LabError> {
    let kernel = kernels::obtain(cache, lock, ARCHITECTURE, series, progress)?;
    if let Some(debs) = obtain(cache, lock, series, &kernel, progress)? {
        return Ok((kernel, debs));
    }
    progress(&format!(
        "the archive has no headers of {} any more",
        kernel.release
    ));
    let old = cache.path("kernels").join(series.name());
    fs::remove_dir_all(&old).map_err(|error| LabError::io("remove", &old, error))?;
    let kernel = kernels::obtain(cache, lock, ARCHITECTURE, series, progress)?;
    let debs = obtain(cache, lock, series, &kernel, progress)?.ok_or_else(|| {
        LabError::environment(
            format!("the archive has {} without its headers", kernel.release),
            "try again when the archive is complete",
        )
    })?;
    Ok((kernel, debs))
}

/// Builds the module whose sources are in `source` for a kernel, and writes `NAME.ko` to `out`.
///
/// # Errors
/// Environment: the headers or the suite's compiler cannot be obtained or do not run here. Failed: the
/// compiler rejects the sources; the cause contains its messages.
pub fn build_module(
    wanted: &Wanted,
    source: &Path,
    name: &str,
    out: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, LabError> {
    let cache = Cache::open()?;
    let lock = cache.lock(progress)?;
    let scratch = cache.run_dir()?;
    let tree = scratch.path().join("tree");
    let work = tree.join("module");
    copy_sources(source, &work)?;
    let (kernel, mut command) = match wanted {
        Wanted::Series(series) => {
            let (kernel, debs) = obtain_with_kernel(&cache, &lock, *series, progress)?;
            let make = make_with(&cache, *series, &kernel, &debs, &tree, &work, progress)?;
            (kernel, make)
        }
        Wanted::Built(headers) => {
            let kernel = wanted.obtain(&cache, &lock, ARCHITECTURE, progress)?;
            (kernel, make_here(headers, &work)?)
        }
    };
    // The rest needs no lock: it works on this run's own files.
    drop(lock);
    let output = command
        .output()
        .map_err(|error| LabError::io("run", Path::new("make"), error))?;
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
    fs::copy(&built, &target).map_err(|error| LabError::io("write", &target, error))?;
    Ok(target)
}

/// `make` with the headers of these packages, which it unpacks into `tree`.
fn make_with(
    cache: &Cache,
    series: Series,
    kernel: &Kernel,
    debs: &[PathBuf],
    tree: &Path,
    work: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Command, LabError> {
    for deb in debs {
        unpack(deb, tree)?;
    }
    let headers = tree
        .join("usr/src")
        .join(format!("linux-headers-{}", kernel.release));
    if runs_here(&headers)? {
        turn_to(&headers.join("Makefile"), tree)?;
        return make_here(&headers, work);
    }
    toolchain::install(cache, series, &headers, debs, tree, progress)?;
    let inside = |path: &Path| Path::new("/").join(path.strip_prefix(tree).unwrap_or(path));
    toolchain::make(tree, &make_arguments(&inside(&headers), &inside(work)))
}

/// `make` with this machine's compiler.
fn make_here(headers: &Path, work: &Path) -> Result<Command, LabError> {
    let mut make = Command::new(tools::find("make")?);
    make.args(make_arguments(headers, work));
    Ok(make)
}

/// Replaces `/usr/src` in a Makefile of the headers by its counterpart below `tree`.
fn turn_to(makefile: &Path, tree: &Path) -> Result<(), LabError> {
    let text =
        fs::read_to_string(makefile).map_err(|error| LabError::io("read", makefile, error))?;
    let turned = text.replace("/usr/src/", &format!("{}/usr/src/", tree.display()));
    fs::write(makefile, turned).map_err(|error| LabError::io("write", makefile, error))
}

/// Arguments of `make`.
fn make_arguments(headers: &Path, work: &Path) -> Vec<String> {
    vec![
        "--silent".to_owned(),
        "-C".to_owned(),
        headers.display().to_string(),
        format!("M={}", work.display()),
        // The module's types are for BPF programs only, and generating them needs another program (pahole).
        "CONFIG_DEBUG_INFO_BTF_MODULES=".to_owned(),
        "modules".to_owned(),
    ]
}

/// Whether the suite's build tools run on this machine, and the kernel's compiler is installed.
fn runs_here(headers: &Path) -> Result<bool, LabError> {
    if !toolchain::is_here(headers) {
        return Ok(false);
    }
    let modpost = headers.join("scripts/mod/modpost");
    // Without arguments it succeeds or complains without doing anything; a failing loader exits with 127 or 1
    // and names GLIBC.
    let output = Command::new(&modpost)
        .output()
        .map_err(|error| LabError::io("run", &modpost, error))?;
    Ok(!String::from_utf8_lossy(&output.stderr).contains("GLIBC_"))
}

/// Copies the files of a source directory, without subdirectories and output of an earlier build.
fn copy_sources(from: &Path, to: &Path) -> Result<(), LabError> {
    fs::create_dir_all(to).map_err(|error| LabError::io("create", to, error))?;
    let entries = fs::read_dir(from).map_err(|error| LabError::io("list", from, error))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let source = path
            .extension()
            .is_some_and(|ending| ending == "c" || ending == "h")
            || path.ends_with("Kbuild");
        if path.is_file() && source && !path.to_string_lossy().ends_with(".mod.c") {
            let target = to.join(path.file_name().unwrap_or_default());
            fs::copy(&path, &target).map_err(|error| LabError::io("write", &target, error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(names: &[&str]) -> Vec<Package> {
        let package = |name: &&str| Package {
            name: (*name).into(),
            version: "1".into(),
        };
        names.iter().map(package).collect()
    }

    fn names(index: &[Package], release: &str) -> Option<Vec<String>> {
        packages_of(index, release).map(|list| list.into_iter().map(|p| p.name).collect())
    }

    #[test]
    fn headers_are_those_of_the_kernels_own_abi() {
        let index = index(&[
            "linux-headers-6.12.96+deb12-cloud-amd64",
            "linux-headers-6.12.95+deb12-cloud-amd64",
            "linux-headers-6.12.95+deb12-common",
            "linux-kbuild-6.12.96+deb12",
            "linux-kbuild-6.12.95+deb12",
        ]);
        let expected = [
            "linux-headers-6.12.95+deb12-cloud-amd64",
            "linux-headers-6.12.95+deb12-common",
            "linux-kbuild-6.12.95+deb12",
        ];
        assert_eq!(
            names(&index, "6.12.95+deb12-cloud-amd64").unwrap(),
            expected
        );
        assert_eq!(names(&index, "6.12.97+deb12-cloud-amd64"), None);
    }

    #[test]
    fn one_kbuild_serves_all_abis_of_debian_12s_own_kernel() {
        let index = index(&[
            "linux-headers-6.1.0-56-cloud-amd64",
            "linux-headers-6.1.0-56-common",
            "linux-kbuild-6.1",
        ]);
        let found = names(&index, "6.1.0-56-cloud-amd64").unwrap();
        assert_eq!(found[2], "linux-kbuild-6.1");
    }
}
