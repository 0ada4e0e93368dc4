//! Kernel modules for a guest: finds and decompresses them and determines the load order.
//!
//! The packages contain no `modules.dep` (Debian generates it at installation), so the order is derived from
//! the `depends=` field in each module's `.modinfo` section. A module that is built into the kernel has no
//! dependencies and is skipped.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{LabError, OrCannot, Result};
use crate::kernels::Kernel;
use crate::tools;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Name with underscores, as `lsmod` shows it.
    pub name: String,
    /// The ELF object.
    pub content: Vec<u8>,
}

/// The named modules and all their dependencies, dependencies first. An environment error when the kernel
/// neither has a module nor has it built in.
pub fn collect(kernel: &Kernel, names: &[String]) -> Result<Vec<Module>> {
    let mut ordered = Vec::new();
    let builtin = kernel.builtin_modules();
    for name in names {
        visit(kernel, &builtin, &canonical(name), &mut ordered)?;
    }
    Ok(ordered)
}

fn visit(kernel: &Kernel, builtin: &str, name: &str, ordered: &mut Vec<Module>) -> Result<()> {
    if ordered.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let found = kernel.module_paths().find(|path| module_name(path) == name);
    let Some(relative) = found else {
        if builtin.lines().any(|line| module_name(line) == name) {
            return Ok(());
        }
        return Err(LabError::environment(
            format!("kernel {} has no module {name}", kernel.release),
            "choose another kernel series or leave the module out",
        ));
    };
    let content = decompressed(&kernel.verified(relative)?)?;
    for dependency in depends(&content) {
        visit(kernel, builtin, &dependency, ordered)?;
    }
    ordered.push(Module {
        name: name.to_owned(),
        content,
    });
    Ok(())
}

fn decompressed(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return fs::read(path).or_cannot("read", path),
    };
    let output = tools::run(
        Command::new(tools::find(program)?)
            .arg("-dc")
            .arg(path)
            .stdout(Stdio::piped()),
        "remove the kernel from the cache and run this again",
    )?;
    Ok(output.stdout)
}

/// `kernel/block/bfq.ko.xz` -> `bfq`.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or_default();
    canonical(file.split(".ko").next().unwrap_or_default())
}

/// The kernel treats `-` and `_` in module names alike.
fn canonical(name: &str) -> String {
    name.trim().replace('-', "_")
}

/// The `depends=` field of a module's `.modinfo`: NUL-terminated `key=value` strings.
fn depends(elf: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = elf.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = elf[at + KEY.len()..]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    String::from_utf8_lossy(value)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(canonical)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ignore_paths_compression_and_the_kind_of_dash() {
        assert_eq!(module_name("modules/block/bfq.ko.xz"), "bfq");
        assert_eq!(module_name("kernel/drivers/nvme/nvme-core.ko"), "nvme_core");
    }

    #[test]
    fn dependencies_are_read_from_modinfo() {
        assert_eq!(
            depends(b"\x7fELF\0license=GPL\0depends=a-b,c\0name=x\0"),
            ["a_b", "c"]
        );
        assert!(depends(b"\0depends=\0").is_empty());
        assert!(depends(b"nothing").is_empty());
    }
}
