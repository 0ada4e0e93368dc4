//! Disk images of a guest: the root made of Debian packages, and the tools under test.
//!
//! The root is a Debian release ([`RELEASE`]) whatever the host is. It is read-only and shared by all runs.
//! It is built from package contents alone (no maintainer script runs), so it needs no privileges. Its
//! partition has a fixed identity ([`ROOT_PARTUUID`]), because the kernel probes NVMe devices in parallel and
//! numbers them in any order. The tools image carries what changes: our binaries and the modules of the
//! chosen kernel.
//!
//! Invariants: an image's name is the hash of what it was requested to hold; files inside belong to root.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::architecture::Architecture;
use crate::cache::{sha256_bytes, Cache, LockedCache};
use crate::error::{LabError, OrCannot, Result, Say};
use crate::fetch::World;
use crate::tools;

mod ext4;
mod tools_disk;

pub use ext4::ROOT_PARTUUID;
pub use tools_disk::tools_image;

use ext4::{make_ext4, room_for, write_file, write_partition_table, PARTITION_START};

/// The release of guests that do not ask for another.
pub const RELEASE: &str = "bookworm";

pub const BASE_PACKAGES: &str = "base-files bash busybox-static coreutils crun e2fsprogs fio \
    findutils grep kmod mawk mount procps sed util-linux";

/// Dependencies of the packages' maintainer scripts and side programs, which a guest never runs.
const UNUSED_PREFIXES: &str = "adduser debconf dpkg init-system-helpers libfile-find-rule-perl \
    libnumber-compare-perl libperl libpython3 libtext-glob-perl media-types perl python3 \
    usrmerge";

/// Parts of packages that only people read, below `/usr/share`.
const UNUSED_PATHS: &str = "doc info lintian locale man bug";

/// Incremented when the construction of the root image changes, to invalidate cached images.
const LAYOUT: u32 = 1;

const INIT: &str = include_str!("init.sh");

const DIRECTORIES: &str = "dev proc sys run tmp mnt data root home opt/lab etc usr/bin usr/sbin \
    usr/lib usr/lib64 usr/lib32 var/tmp var/lib var/log";

/// The read-only root image with [`BASE_PACKAGES`] and `extra` packages of a release; built if it is not
/// cached.
pub fn root_image(
    cache: &LockedCache,
    architecture: Architecture,
    release: &str,
    extra: &[String],
    progress: &mut Say,
) -> Result<PathBuf> {
    let mut wanted: Vec<String> = BASE_PACKAGES.split(' ').map(str::to_owned).collect();
    wanted.extend_from_slice(extra);
    wanted.sort();
    wanted.dedup();
    let mut request = format!("{LAYOUT}\n{INIT}\n{}", wanted.join("\n"));
    if release != RELEASE {
        let _ = write!(request, "\n{release}");
    }
    if architecture != Architecture::default() {
        let _ = write!(request, "\n{}", architecture.debian());
    }
    let name = format!("root-{}.img", &sha256_bytes(request.as_bytes())[..16]);
    if let Some(path) = cache.verified_image(&name)? {
        return Ok(path);
    }
    progress("building the guest's root from Debian packages");
    let world = World::open(
        cache,
        architecture,
        &[
            release,
            &format!("{release}-updates"),
            &format!("{release}-security"),
        ],
    )?;
    let mut packages = world.closure(&wanted)?;
    packages.retain(|package| wanted.contains(package) || !is_unused(package));
    build_root(cache, &world, &packages, &name, progress)
}

fn is_unused(package: &str) -> bool {
    UNUSED_PREFIXES
        .split(' ')
        .any(|prefix| package.starts_with(prefix))
}

fn build_root(
    cache: &Cache,
    world: &World,
    packages: &[String],
    name: &str,
    progress: &mut Say,
) -> Result<PathBuf> {
    let scratch = cache.run_dir()?;
    let debs = world.download(packages, &scratch.path().join("debs"))?;
    progress(&format!("unpacking {} packages", debs.len()));
    let tree = scratch.path().join("tree");
    skeleton(&tree)?;
    for deb in &debs {
        extract(deb, &tree)?;
    }
    finish_tree(&tree)?;
    let image = scratch.path().join("root.img");
    let bytes = room_for(&tree, 48 << 20);
    make_ext4(&tree, &image, "root", bytes, PARTITION_START)?;
    write_partition_table(&image, bytes)?;
    cache.adopt_image(&image, name)
}

/// The merged-/usr directory tree into which packages are unpacked.
fn skeleton(tree: &Path) -> Result<()> {
    for dir in DIRECTORIES.split(' ') {
        let path = tree.join(dir);
        fs::create_dir_all(&path).or_cannot("create", &path)?;
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("sbin", "usr/sbin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
        ("lib32", "usr/lib32"),
        ("var/run", "/run"),
        ("etc/mtab", "/proc/self/mounts"),
    ] {
        let path = tree.join(link);
        symlink(target, &path).or_cannot("create", &path)?;
    }
    Ok(())
}

/// Unpacks one package without its documentation and without running its scripts.
fn extract(deb: &Path, tree: &Path) -> Result<()> {
    let remedy = "check that the cache's file system has room, then run this again";
    let failed = |error: &dyn std::fmt::Display| {
        LabError::environment(format!("cannot unpack {}: {error}", deb.display()), remedy)
    };
    let mut unpacker = Command::new(tools::find("dpkg-deb")?)
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&error))?;
    let stream = unpacker.stdout.take().expect("stdout is piped");
    let tar = Command::new(tools::find("tar")?)
        .arg("-x")
        .arg("-C")
        .arg(tree)
        .args("--keep-directory-symlink --no-same-owner --delay-directory-restore".split(' '))
        .args(
            UNUSED_PATHS
                .split(' ')
                .map(|path| format!("--exclude=./usr/share/{path}")),
        )
        .stdin(stream)
        .output()
        .map_err(|error| failed(&error))?;
    let unpacked = unpacker.wait().map_err(|error| failed(&error))?;
    if tar.status.success() && unpacked.success() {
        return Ok(());
    }
    Err(failed(
        &String::from_utf8_lossy(&tar.stderr)
            .lines()
            .next()
            .unwrap_or("no reason given"),
    ))
}

/// Adds what maintainer scripts would have made, as far as a guest needs it, and our init.
fn finish_tree(tree: &Path) -> Result<()> {
    for (path, text, mode) in [
        (
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
            0o644,
        ),
        ("etc/group", "root:x:0:\nnogroup:x:65534:\n", 0o644),
        ("etc/hostname", "guest\n", 0o644),
        ("etc/hosts", "127.0.0.1 localhost guest\n", 0o644),
        ("usr/sbin/lab-init", INIT, 0o755),
    ] {
        write_file(&tree.join(path), text.as_bytes(), mode)?;
    }
    let awk = tree.join("usr/bin/awk");
    if !awk.exists() {
        symlink("mawk", &awk).or_cannot("create", &awk)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_of_maintainer_scripts_are_unused_and_libraries_are_not() {
        assert!(is_unused("perl-modules-5.36") && is_unused("libpython3.11-stdlib"));
        assert!(!is_unused("libc6") && !is_unused("procps"));
    }
}
