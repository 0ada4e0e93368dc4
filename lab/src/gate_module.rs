//! The kernel module `justitia.ko` for a guest: this program contains its sources and builds it against the
//! headers of the kernel that will be booted.

use std::fs;
use std::path::{Path, PathBuf};

use justitia_machine::architecture::Architecture;
use justitia_machine::error::{OrCannot, Result, Say};
use justitia_machine::headers::build_module;
use justitia_machine::kernels::Series;

/// Name of the module, and of its file without `.ko`.
pub const NAME: &str = "justitia";

macro_rules! sources {
    ($($file:literal)*) => {
        &[$(($file, include_str!(concat!("../../kmod/", $file)))),*]
    };
}

/// The files of `kmod` that make up the module.
const SOURCES: &[(&str, &str)] = sources!(
    "Kbuild" "abi.h" "charge.h" "control.c" "control.h" "device.c" "device.h" "gate.c" "gate.h" "group.c" "group.h"
    "hook.c" "hook.h" "main.c" "main.h" "pace.h" "queue.h" "trace.h"
);

/// Builds the module for a series and writes it to `out`.
pub fn build(series: Series, out: &Path, progress: &mut Say) -> Result<PathBuf> {
    let source = tempfile::tempdir().or_cannot("create", out)?;
    for (name, text) in SOURCES {
        let path = source.path().join(name);
        fs::write(&path, text).or_cannot("write", &path)?;
    }
    progress(&format!("building the module {NAME} for {series}"));
    build_module(
        Architecture::Amd64,
        &series.into(),
        source.path(),
        NAME,
        out,
        progress,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_are_all_that_the_module_is_made_of() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kmod");
        let is_source = |path: &Path| {
            let ending = path.extension().unwrap_or_default();
            path.ends_with("Kbuild") || ending == "c" || ending == "h"
        };
        let mut there: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| is_source(path))
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            // Excludes what a build leaves behind.
            .filter(|name| !name.contains(".mod."))
            .collect();
        there.sort();
        let mut here: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
        here.sort_unstable();
        assert_eq!(here, there);
    }
}
