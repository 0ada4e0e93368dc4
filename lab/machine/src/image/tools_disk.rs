//! The tools disk: our programs and the kernel's modules, which change from run to run.
//!
//! The guest mounts it at `/opt/lab`. The guest's C library is that of Debian bookworm. A program linked
//! against a newer one would fail there with an obscure error, so it is refused here.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::ext4::{make_ext4, room_for, write_file};
use crate::cache::{sha256_bytes, LockedCache};
use crate::error::{LabError, OrCannot, Result};
use crate::kernels::Kernel;
use crate::modules;

/// The tools image for a kernel: `binaries` at the top level, `guest` as a link to the first of them,
/// `modules/NN-NAME.ko` and `modules/order`.
pub fn tools_image(
    cache: &LockedCache,
    kernel: &Kernel,
    binaries: &[PathBuf],
    module_names: &[String],
) -> Result<PathBuf> {
    let mut files: Vec<(String, Vec<u8>, u32)> = Vec::new();
    for path in binaries {
        let content = fs::read(path).map_err(|error| {
            LabError::environment(
                format!("cannot read {}: {error}", path.display()),
                "build it first: cargo build --release --workspace",
            )
        })?;
        check_glibc(path, &content)?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        files.push((name, content, 0o755));
    }
    let mut order = String::new();
    for (index, module) in modules::collect(kernel, module_names)?
        .into_iter()
        .enumerate()
    {
        let name = format!("{index:02}-{}.ko", module.name);
        order.extend([name.as_str(), "\n"]);
        files.push((format!("modules/{name}"), module.content, 0o644));
    }
    files.push(("modules/order".to_owned(), order.into_bytes(), 0o644));
    let mut identity = String::new();
    for (name, content, mode) in &files {
        // Writing to a String cannot fail.
        let _ = writeln!(identity, "{name} {mode:o} {}", sha256_bytes(content));
    }
    let name = format!("tools-{}.img", &sha256_bytes(identity.as_bytes())[..16]);
    if let Some(path) = cache.verified_image(&name)? {
        return Ok(path);
    }
    let scratch = cache.run_dir()?;
    let tree = scratch.path().join("tree");
    for (name, content, mode) in &files {
        write_file(&tree.join(name), content, *mode)?;
    }
    if let Some((program, ..)) = files.first().filter(|_| !binaries.is_empty()) {
        let link = tree.join("guest");
        symlink(program, &link).or_cannot("make", &link)?;
    }
    let image = scratch.path().join("tools.img");
    make_ext4(&tree, &image, "tools", room_for(&tree, 8 << 20), 0)?;
    cache.adopt_image(&image, &name)
}

/// Minor version of the C library in the guest (Debian bookworm has 2.36).
const GUEST_GLIBC_MINOR: u32 = 36;

/// Refuses a binary that was linked against a newer C library than the guest's.
fn check_glibc(path: &Path, elf: &[u8]) -> Result<()> {
    match newest_glibc_minor(elf) {
        Some(minor) if minor > GUEST_GLIBC_MINOR => Err(LabError::environment(
            format!(
                "{} needs the C library 2.{minor}; the guest has 2.{GUEST_GLIBC_MINOR}",
                path.display()
            ),
            "build it on Debian 12, or for the target x86_64-unknown-linux-musl",
        )),
        _ => Ok(()),
    }
}

/// The newest symbol version that a binary needs, from its NUL-terminated version strings.
fn newest_glibc_minor(elf: &[u8]) -> Option<u32> {
    elf.split(|byte| *byte == 0)
        .filter_map(|string| std::str::from_utf8(string.strip_prefix(b"GLIBC_2.")?).ok())
        .filter_map(|version| version.split('.').next()?.parse().ok())
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_needed_c_library_is_found() {
        assert_eq!(
            newest_glibc_minor(b"\0GLIBC_2.2.5\0GLIBC_2.39\0GLIBC_2.4\0"),
            Some(39)
        );
        assert_eq!(newest_glibc_minor(b"static"), None);
        assert!(check_glibc(Path::new("x"), b"\0GLIBC_2.36\0").is_ok());
        assert_eq!(
            check_glibc(Path::new("x"), b"\0GLIBC_2.37\0")
                .unwrap_err()
                .exit_code(),
            69
        );
    }
}
