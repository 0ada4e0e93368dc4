//! The programs that the lab calls, their paths, and the Debian package of each.
//!
//! No privileges are needed. The PATH of an ordinary user on Debian lacks the `sbin` directories that contain
//! `mke2fs`, so they are searched too.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::error::{LabError, Result};

/// A program and the Debian package that contains it.
const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mke2fs", "e2fsprogs"),
    ("dpkg-deb", "dpkg"),
    ("apt-get", "apt"),
    ("apt-cache", "apt"),
    ("apt-config", "apt"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
];

/// Emulates a processor that few guests use.
const OTHER_QEMU: (&str, &str) = ("qemu-system-aarch64", "qemu-system-arm");

/// Makes files of an ordinary user belong to root inside an image; root does not need it.
const FAKEROOT: (&str, &str) = ("fakeroot", "fakeroot");

/// The path of a program, or an error that names the package to install.
pub fn find(program: &str) -> Result<PathBuf> {
    locate(program).ok_or_else(|| missing_error(&[package_entry(program)]))
}

/// Checks all programs at once, so that one error names everything that is missing.
pub fn check_all() -> Result<()> {
    let wanted = PROGRAMS
        .iter()
        .chain((!running_as_root()).then_some(&FAKEROOT));
    let missing: Vec<_> = wanted
        .filter(|(name, _)| locate(name).is_none())
        .copied()
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(missing_error(&missing))
    }
}

/// Runs a command to completion, without input, in the C locale. An environment error with the most
/// informative line of its stderr when it fails.
pub fn run(command: &mut Command, remedy: &str) -> Result<Output> {
    let name = Path::new(command.get_program())
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let output = command
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|error| LabError::environment(format!("cannot start {name}: {error}"), remedy))?;
    if output.status.success() {
        return Ok(output);
    }
    let complaint = first_complaint(&String::from_utf8_lossy(&output.stderr));
    Err(LabError::environment(
        format!("{name} failed ({}): {complaint}", output.status),
        remedy,
    ))
}

pub fn running_as_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The most informative line of a program's stderr: an `E:` line, else the first that is not empty.
pub(crate) fn first_complaint(stderr: &str) -> String {
    let lines = || {
        stderr
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    lines()
        .find(|line| line.starts_with("E: "))
        .or_else(|| lines().next())
        .unwrap_or("it said nothing")
        .to_owned()
}

fn locate(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

fn package_entry(program: &str) -> (&'static str, &'static str) {
    PROGRAMS
        .iter()
        .chain([&FAKEROOT, &OTHER_QEMU])
        .find(|(name, _)| *name == program)
        .copied()
        .unwrap_or(("a program", "coreutils"))
}

fn missing_error(missing: &[(&str, &str)]) -> LabError {
    let programs: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    LabError::environment(
        format!(
            "the lab needs {}, not found on this machine",
            programs.join(", ")
        ),
        format!("install with: apt-get install {}", packages.join(" ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named_with_their_packages_once() {
        let error = missing_error(&[
            ("qemu-system-x86_64", "qemu-system-x86"),
            ("apt-get", "apt"),
            ("apt-cache", "apt"),
        ]);
        assert_eq!(error.exit_code(), 69);
        assert!(error
            .cause()
            .contains("qemu-system-x86_64, apt-get, apt-cache"));
        assert!(error
            .remedy()
            .ends_with("apt-get install qemu-system-x86 apt"));
    }

    #[test]
    fn the_error_line_of_apt_wins_over_its_warnings() {
        assert_eq!(first_complaint("W: old\nE: no route\n"), "E: no route");
        assert_eq!(first_complaint("\n oops \nmore"), "oops");
        assert_eq!(first_complaint(""), "it said nothing");
    }

    #[test]
    fn a_program_outside_the_users_path_is_found() {
        assert!(locate("sh").is_some());
        assert!(locate("no-such-program-of-the-lab").is_none());
    }
}
