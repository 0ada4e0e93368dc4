//! The compiler and tools of another suite than this machine's, in a root of their own, to build a module.
//! Packages are unpacked beside the kernel's headers, and the build enters them by `chroot` in a user
//! namespace, so it needs no privileges and installs nothing.
//!
//! The cache keeps the packages as it keeps those of the headers.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::architecture::Architecture;
use crate::cache::Cache;
use crate::error::{LabError, OrCannot, Result, Say};
use crate::fetch::World;
use crate::kernels::Series;
use crate::packages::{cached, keep, unpack};
use crate::tools;

/// Programs that the kernel's Makefiles need besides the compiler.
const PROGRAMS: &str = "base-files coreutils dash diffutils findutils grep make mawk sed";

/// From outside, the new root has only devices, for `/dev/null`, and processes, for `objtool`.
const ENTER: &str = "mount --rbind /dev \"$0/dev\" && mount --rbind /proc \"$0/proc\" && \
     exec chroot \"$0\" /usr/bin/env -i PATH=/usr/bin \"$@\"";

/// True if the compiler that the headers name is installed; true if they name none.
pub(crate) fn is_here(architecture: Architecture, headers: &Path) -> bool {
    let text = fs::read_to_string(headers.join(".kernelvariables")).unwrap_or_default();
    let prefix = architecture.compiler_prefix();
    compiler(&text).is_none_or(|name| tools::find(&format!("{prefix}{name}")).is_ok())
}

/// Unpacks the suite's compiler and tools into `tree`, beside the unpacked `headers`.
pub(crate) fn install(
    cache: &Cache,
    series: Series,
    headers: &Path,
    debs: &[PathBuf],
    tree: &Path,
    progress: &mut Say,
) -> Result<()> {
    let variables = headers.join(".kernelvariables");
    let text = fs::read_to_string(&variables).or_cannot("read", &variables)?;
    let compiler = compiler(&text).ok_or_else(|| {
        LabError::environment(
            format!("{} names no compiler", variables.display()),
            "build the module on the release that this kernel belongs to",
        )
    })?;
    let suites = series.tool_suites();
    let dir = cache
        .path("toolchains")
        .join(format!("{}-{compiler}", suites[0]));
    let packages = if let Some(packages) = cached(&dir) {
        packages
    } else {
        progress(&format!("fetching {compiler} of {}", suites[0]));
        let world = World::open(cache, Architecture::Amd64, suites)?;
        let mut wanted: Vec<String> = PROGRAMS.split(' ').map(str::to_owned).collect();
        wanted.push(compiler.to_owned());
        // For the libraries it needs; the package itself is already here.
        let kbuild = kbuild_package(debs);
        wanted.extend(kbuild.clone());
        let mut closure = world.closure(&wanted)?;
        closure.retain(|package| Some(package) != kbuild.as_ref());
        keep(cache, &world, &closure, &dir)?
    };
    progress(&format!("unpacking {} packages", packages.len()));
    merge_usr(tree)?;
    for package in &packages {
        unpack(package, tree)?;
    }
    shell(tree)?;
    for name in ["dev", "proc"] {
        let path = tree.join(name);
        fs::create_dir_all(&path).or_cannot("create", &path)?;
    }
    Ok(())
}

/// `make` with these arguments, in the new root. An environment error if `unshare` is missing.
pub(crate) fn make(tree: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<Command> {
    let mut command = Command::new(tools::find("unshare")?);
    command
        .args(["--map-root-user", "--mount", "sh", "-c", ENTER])
        .arg(tree)
        .arg("make")
        .args(arguments);
    Ok(command)
}

/// The compiler's package, as named by Debian's headers: `gcc-14`.
fn compiler(variables: &str) -> Option<&str> {
    let is_part = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    variables.split(is_part).find(|word| {
        word.strip_prefix("gcc-")
            .is_some_and(|version| version.parse::<u32>().is_ok())
    })
}

/// The name of the package of the kernel's build tools.
fn kbuild_package(debs: &[PathBuf]) -> Option<String> {
    let names = debs.iter().filter_map(|deb| deb.file_name()?.to_str());
    let mut packages = names.filter_map(|name| name.split_once('_'));
    let found = packages.find(|(package, _)| package.starts_with("linux-kbuild-"));
    found.map(|(package, _)| package.to_owned())
}

/// Links such as `/bin`, before anything is unpacked into them.
fn merge_usr(tree: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        let target = tree.join("usr").join(name);
        fs::create_dir_all(&target).or_cannot("create", &target)?;
        let link = tree.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(format!("usr/{name}"), &link).or_cannot("create", &link)?;
        }
    }
    Ok(())
}

/// Sets up `sh` and `awk`, as the packages' own scripts would.
fn shell(tree: &Path) -> Result<()> {
    for (name, program) in [("sh", "dash"), ("awk", "mawk")] {
        let link = tree.join("usr/bin").join(name);
        if fs::symlink_metadata(&link).is_err() {
            std::os::unix::fs::symlink(program, &link).or_cannot("create", &link)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_is_the_one_debian_names() {
        let variables = "override ARCH = x86\nCCACHE = ccache\nCC = $(if $(USE_CCACHE),$(CCACHE)) \
                         $(CROSS_COMPILE)gcc-14\n";
        assert_eq!(compiler(variables), Some("gcc-14"));
        assert_eq!(compiler("CC := gcc\n"), None);
    }

    #[test]
    fn the_build_tools_package_is_found_by_its_name() {
        let debs = [
            PathBuf::from("/c/linux-headers-7.2-common_7.2-1_all.deb"),
            PathBuf::from("/c/linux-kbuild-7.2_7.2-1_amd64.deb"),
        ];
        assert_eq!(kbuild_package(&debs), Some("linux-kbuild-7.2".into()));
        assert_eq!(kbuild_package(&[]), None);
    }
}
