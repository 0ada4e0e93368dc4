//! `justitia doctor`: finds pitfalls of this host, with evidence, consequence and remedy.
//!
//! Needs no agent and changes nothing. Exit codes: 0, every check could tell and nothing was found; 1, a
//! finding that the configuration does not silence; 69, no such finding, but some checks could not tell.

mod render;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::Args;
use justitia_agent::config::GLOB_REMEDY;
use justitia_agent::socket::{ask, is_listening};
use justitia_agent::{Error, Result, Settings};
use justitia_cgroup::survey::{HostFacts, Known, RealHost, Unread};
use justitia_cgroup::{Fs, RealFs};
use justitia_discover::{Owners, RuntimeDirs};
use justitia_doctor::{examine, gather, Facts, Look, Report, Verdict};
use justitia_policy::config::Mode;

use crate::output;
use crate::settings::{self, OutputArgs};

/// Arguments of `justitia doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Checks the host and all its cgroups, changes nothing, needs no agent. Each finding shows the evidence, the \
consequence and the remedy. A file that cannot be read is reported and never counts as fine. To silence an intended \
finding, name it in [doctor] of the configuration, with a reason: silence = [{ check = \"swap-none\", reason = \
\"...\" }].

Exit codes: 0 no finding, 1 a finding, 2 wrong arguments or no such group, 69 no finding, but some checks could not \
tell.

Examples:
  justitia doctor
  justitia doctor /app/db           what concerns this group
  justitia doctor --json | jq '.checks[] | select(.verdict == \"finding\")'")]
pub(crate) struct DoctorArgs {
    /// Only findings of this cgroup, its ancestors, its descendants and the host
    #[arg(value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: Option<String>,
    /// Time between the two samples that give the rates; 0: sample once, without rates
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=60))]
    pub(crate) seconds: u64,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let settings = settings::load(&args.output.config)?;
    let facts = survey(&settings, Duration::from_secs(args.seconds))?;
    let group = args.group.as_deref().map(|name| path_of(&settings, name));
    let group = group.map(|path| find(&facts, &path)).transpose()?;
    let report = examine(&facts, &settings.silences, group);
    output::print(args.output.json, &report, |screen| {
        render::render(&report, screen)
    })?;
    verdict(&report)
}

/// Gathers the facts of this host with two reads `window` apart, or one read if `window` is zero.
pub(super) fn survey(settings: &Settings, window: Duration) -> Result<Facts> {
    let owners = Owners::new(&settings.discover(), RuntimeDirs::host())
        .map_err(|error| Error::usage(error, GLOB_REMEDY))?;
    Ok(gather(Look {
        host: &RealHost::default(),
        groups: &open,
        owners: &owners,
        managed: managed(settings),
        window,
        wait: &mut std::thread::sleep,
    }))
}

/// The host's cgroups, whatever controllers they have.
fn open(host: &HostFacts) -> Known<Fs> {
    let Some(mount) = host.cgroup2()? else {
        return Err(Unread::new("cgroups", "no cgroup2 file system is mounted"));
    };
    match RealFs::on_directory(&mount.mount_point) {
        Ok(fs) => Ok(Arc::new(fs)),
        Err(error) => Err(Unread::new(&mount.mount_point, error.to_string())),
    }
}

/// The groups whose knobs a running agent writes. Empty without an agent.
fn managed(settings: &Settings) -> Known<HashSet<String>> {
    let socket = settings.socket();
    match ask(&socket) {
        Ok(report) if report.mode != Mode::Observe => {
            Ok(report.groups.into_iter().map(|group| group.path).collect())
        }
        Err(error) if is_listening(&socket) => Err(Unread::new("the agent's groups", error.cause)),
        _ => Ok(HashSet::new()),
    }
}

/// The path of a managed group that an agent knows by this name; otherwise the name.
fn path_of(settings: &Settings, name: &str) -> String {
    let report = ask(&settings.socket()).ok();
    let path = report.and_then(|report| report.find(name).map(|group| group.path.clone()));
    path.unwrap_or_else(|| name.to_owned())
}

/// The path of the group with this path, or of the only group whose path ends with it.
fn find<'a>(facts: &'a Facts, name: &str) -> Result<&'a str> {
    if let Err(unread) = &facts.tree {
        let remedy = "without GROUP, justitia doctor checks the host itself";
        return Err(Error::environment(unread, remedy));
    }
    let path = format!("/{}", name.trim_matches('/'));
    let paths = || facts.groups.iter().map(|group| group.path.as_str());
    if let Some(found) = paths().find(|have| *have == path) {
        return Ok(found);
    }
    let mut ending = paths().filter(|have| have.ends_with(&path));
    match (ending.next(), ending.next()) {
        (Some(found), None) => Ok(found),
        (Some(one), Some(other)) => Err(Error::usage(
            format!("{name} may be {one} or {other}"),
            "give the whole path",
        )),
        (None, _) => Err(Error::usage(
            format!("there is no cgroup {name}"),
            "give its path relative to the cgroup2 mount, as systemd-cgls shows it, or a name that justitia status shows",
        )),
    }
}

fn verdict(report: &Report) -> Result<()> {
    match report.verdict {
        Verdict::Finding => Err(Error::failed(
            output::number(report.findings_total, "finding"),
            "apply a remedy to each, or all where it says so, or silence an intended finding in [doctor] of the \
             configuration",
        )),
        Verdict::CouldNotTell => Err(Error::environment(
            format!(
                "nothing found, but {} could not tell",
                output::number(report.could_not_tell_total, "check")
            ),
            "run it as root on the host, for at least one second; the output lists what is missing",
        )),
        Verdict::Silenced | Verdict::Fine => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use justitia_agent::socket::{Board, Server};
    use justitia_report::example;
    use justitia_report::status::{Names, Setup};

    use super::*;

    #[test]
    fn a_group_has_the_names_that_the_agent_shows() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            state_dir: dir.path().to_owned(),
            ..Settings::default()
        };
        assert_eq!(path_of(&settings, "shop/db-0"), "shop/db-0", "no agent");
        let mut tick = example::tick(1, 3);
        let group = &tick.snapshot.groups[0];
        let (id, path) = (group.id, group.path.clone());
        let shop = Names {
            name: "shop/db-0".into(),
            ..Names::default()
        };
        tick.names = Arc::new([(id, shop)].into());
        let board = Board::new(Setup::default());
        board.post(tick);
        let _server = Server::listen(&settings.socket(), Arc::new(board)).unwrap();
        assert_eq!(path_of(&settings, "shop/db-0"), path);
        assert_eq!(path_of(&settings, "/other"), "/other");
    }
}
