//! Debian packages through the machine's own apt, without touching the machine.
//!
//! A [`World`] is a private apt below the cache, with its own index, its own (empty) list of installed
//! packages and its own sources. The archive's address, its keys, proxies and everything else in `apt.conf.d`
//! come from the machine. apt verifies signatures and hashes. The machine's hooks are disabled because they
//! act on the machine's own package cache.
//! Callers hold the cache lock.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::architecture::Architecture;
use crate::cache::Cache;
use crate::error::{LabError, OrCannot, Result};
use crate::tools;

pub mod sources;

use sources::Source;

const REMEDY_ARCHIVE: &str =
    "check the network and that `apt-get update` works on this machine, then run this again";

/// A private apt for some suites.
#[derive(Debug)]
pub struct World {
    dir: PathBuf,
}

impl World {
    /// Creates the configuration of an architecture for `suites` (the first names the directory) and fetches
    /// the index.
    ///
    /// An environment error when no Debian archive is configured or it does not answer. Suites that end in
    /// `-security` are skipped when the machine has no security archive.
    pub fn open(cache: &Cache, architecture: Architecture, suites: &[&str]) -> Result<Self> {
        let configured = configured_sources()?;
        let mut stanzas = String::new();
        for suite in suites {
            match sources::source_for(&configured, suite) {
                Some(source) => {
                    stanzas.push_str(&sources::stanza(source, &[suite]));
                    stanzas.push('\n');
                }
                None if suite.ends_with("-security") => {}
                None => {
                    return Err(LabError::environment(
                        format!("apt has no Debian archive configured to take {suite} from"),
                        "add a source with a Debian suite and component main to \
                         /etc/apt/sources.list.d; the lab takes its address and key from there",
                    ))
                }
            }
        }
        let world = Self {
            dir: cache.path("apt").join(architecture.name(suites[0])),
        };
        world.write_configuration(architecture, &stanzas)?;
        let remedy = "check the network and `apt-get update`; if a signature is unknown, upgrade \
                      debian-archive-keyring";
        world.run("apt-get", "update --error-on=any".split(' '), remedy)?;
        Ok(world)
    }

    /// The packages whose names start with `prefix`.
    pub fn packages_with_prefix(&self, prefix: &str) -> Result<Vec<String>> {
        let names = self.run("apt-cache", ["pkgnames", prefix], REMEDY_ARCHIVE)?;
        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    /// The packages that installing `names` on an empty system would bring, sorted.
    pub fn closure(&self, names: &[String]) -> Result<Vec<String>> {
        let install = "install --simulate --no-install-recommends --yes --".split(' ');
        let arguments = install.chain(names.iter().map(String::as_str));
        let remedy = "check the package names; they must exist in the guest's Debian release";
        let mut packages = parse_simulation(&self.run("apt-get", arguments, remedy)?);
        packages.sort();
        packages.dedup();
        Ok(packages)
    }

    /// Downloads the newest versions of packages into `dir`, verified by apt; returns the files, sorted.
    pub fn download(&self, packages: &[String], dir: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(dir).or_cannot("create", dir)?;
        let mut apt = self.apt("apt-get")?;
        apt.current_dir(dir).arg("download").args(packages);
        tools::run(&mut apt, REMEDY_ARCHIVE)?;
        let entries = fs::read_dir(dir).or_cannot("list", dir)?;
        let mut files: Vec<_> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .collect();
        files.sort();
        if files.len() < packages.len() {
            return Err(LabError::environment(
                format!(
                    "apt delivered {} of {} packages",
                    files.len(),
                    packages.len()
                ),
                REMEDY_ARCHIVE,
            ));
        }
        Ok(files)
    }

    /// The output of a program of this apt.
    fn run<'a>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = &'a str>,
        remedy: &str,
    ) -> Result<String> {
        let output = tools::run(self.apt(program)?.args(arguments), remedy)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn apt(&self, program: &str) -> Result<Command> {
        let mut command = Command::new(tools::find(program)?);
        command
            .arg("-c")
            .arg(self.dir.join("apt.conf"))
            .env_remove("APT_CONFIG");
        Ok(command)
    }

    fn write_configuration(&self, architecture: Architecture, stanzas: &str) -> Result<()> {
        for dir in ["state/lists/partial", "cache/archives/partial"] {
            let path = self.dir.join(dir);
            fs::create_dir_all(&path).or_cannot("create", &path)?;
        }
        for (name, text) in [
            ("private.sources", stanzas.to_owned()),
            ("status", String::new()),
            ("apt.conf", configuration(&self.dir, architecture)),
        ] {
            let path = self.dir.join(name);
            fs::write(&path, text).or_cannot("write", &path)?;
        }
        Ok(())
    }
}

/// The private configuration, read after the machine's own (`-c`).
fn configuration(dir: &Path, architecture: Architecture) -> String {
    let (dir, architecture) = (dir.display(), architecture.debian());
    format!(
        "#clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n\
         #clear DPkg::Pre-Invoke;\n\
         #clear DPkg::Post-Invoke;\n\
         #clear DPkg::Pre-Install-Pkgs;\n\
         #clear Acquire::IndexTargets::deb::DEP-11;\n\
         APT::Architecture \"{architecture}\";\n\
         APT::Architectures {{ \"{architecture}\"; }};\n\
         APT::Sandbox::User \"root\";\n\
         APT::Get::List-Cleanup \"true\";\n\
         Acquire::Languages \"none\";\n\
         Dir::State \"{dir}/state\";\n\
         Dir::State::lists \"{dir}/state/lists\";\n\
         Dir::State::status \"{dir}/status\";\n\
         Dir::State::extended_states \"{dir}/state/extended_states\";\n\
         Dir::Cache \"{dir}/cache\";\n\
         Dir::Cache::archives \"{dir}/cache/archives\";\n\
         Dir::Etc::sourcelist \"{dir}/private.sources\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::preferences \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\n"
    )
}

/// The sources of this machine's apt, wherever its configuration keeps them.
fn configured_sources() -> Result<Vec<Source>> {
    let output = tools::run(
        Command::new(tools::find("apt-config")?)
            .args("shell LIST Dir::Etc::sourcelist/f PARTS Dir::Etc::sourceparts/d".split(' ')),
        "repair the configuration of apt",
    )?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let quoted = line.strip_prefix(key)?.strip_prefix('=')?;
            Some(PathBuf::from(quoted.trim_matches('\'')))
        })
    };
    let mut files: Vec<PathBuf> = value("LIST").into_iter().collect();
    if let Some(parts) = value("PARTS") {
        files.extend(
            fs::read_dir(parts)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path()),
        );
    }
    files.sort();
    Ok(files.iter().flat_map(|path| read_sources(path)).collect())
}

fn read_sources(path: &Path) -> Vec<Source> {
    let Ok(text) = fs::read_to_string(path) else {
        return Vec::new();
    };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("list") => sources::parse_list(&text),
        Some("sources") => sources::parse_deb822(&text),
        _ => Vec::new(),
    }
}

/// Lines of `apt-get --simulate`: `Inst name (version origin [arch])`.
fn parse_simulation(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| Some(line.strip_prefix("Inst ")?.split_once(' ')?.0.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_installation_gives_names() {
        let text = "Inst gcc-12-base (12.2.0-14+deb12u1 Debian:12/stable [amd64])\n\
                    Conf libc6 (2.36-9 Debian:12/stable [amd64])\n\
                    Inst perl [5.30] (5.36.0-7 Debian:12/stable [amd64]) []\n";
        assert_eq!(parse_simulation(text), ["gcc-12-base", "perl"]);
    }

    #[test]
    fn the_private_configuration_points_nowhere_outside_its_directory() {
        let text = configuration(Path::new("/c/w"), Architecture::Amd64);
        for line in text.lines().filter(|line| line.starts_with("Dir::")) {
            assert!(
                line.contains("\"/c/w/") || line.contains("/dev/null"),
                "{line}"
            );
        }
    }
}
