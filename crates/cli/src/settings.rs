//! Combines configuration file and arguments into the agent's settings. Arguments win.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::Args;
use justitia_agent::config::{parse_interval, parse_mode, parse_objective, GLOB_REMEDY};
use justitia_agent::{Error, Result, Settings};
use justitia_discover::Glob;
use justitia_policy::config::{Mode, Objective};

/// The files of the configuration and of the agent's state.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file [default: /etc/justitia.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the agent's journal, lock and socket [default: /run/justitia]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// The options of commands that print a record.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The cgroups that a command is about.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct GlobArgs {
    /// Cgroups to manage, relative to the cgroup2 mount; may be repeated
    /// [default: the containers, pods and VMs that are found, and services that have a weight]
    #[arg(long, value_name = "GLOB")]
    pub(crate) manage: Vec<String>,
    /// Cgroups to leave alone; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
}

/// Settings of the policy; each has precedence over the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct PolicyArgs {
    #[command(flatten)]
    pub(crate) globs: GlobArgs,
    /// Part of the policy that is in force [default: proportional]
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(Mode::NAMES))]
    pub(crate) mode: Option<String>,
    /// Aim of the feedback [default: fair]
    #[arg(long, value_name = "AIM", value_parser = PossibleValuesParser::new(Objective::NAMES))]
    pub(crate) objective: Option<String>,
    /// Time between two steps, 100ms to 60s [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub(crate) interval: Option<String>,
}

/// The configuration file's settings, or the defaults.
pub(crate) fn load(args: &ConfigArgs) -> Result<Settings> {
    let settings = match &args.config {
        Some(file) => Settings::load(file)?,
        None => Settings::of_host()?,
    };
    Ok(with_state_dir(settings, args))
}

/// The settings, with the state directory of the arguments.
pub(crate) fn with_state_dir(mut settings: Settings, args: &ConfigArgs) -> Settings {
    if let Some(dir) = &args.state_dir {
        settings.state_dir.clone_from(dir);
        settings.socket = None;
    }
    settings
}

/// The configuration file's settings, overridden by the policy arguments.
pub(crate) fn with_policy(config: &ConfigArgs, policy: &PolicyArgs) -> Result<Settings> {
    let mut settings = load(config)?;
    if let Some(mode) = &policy.mode {
        settings.mode = parse_mode(mode)?;
    }
    if let Some(objective) = &policy.objective {
        settings.objective = parse_objective(objective)?;
    }
    if let Some(interval) = &policy.interval {
        settings.interval = parse_interval("--interval", interval)?;
    }
    for (globs, set) in [
        (&policy.globs.manage, &mut settings.manage),
        (&policy.globs.exclude, &mut settings.exclude),
    ] {
        check_globs(globs)?;
        if !globs.is_empty() {
            set.clone_from(globs);
        }
    }
    Ok(settings)
}

/// Refuses malformed globs.
pub(crate) fn check_globs(globs: &[String]) -> Result<()> {
    for glob in globs {
        Glob::new(glob).map_err(|error| Error::usage(error, GLOB_REMEDY))?;
    }
    Ok(())
}

impl PolicyArgs {
    /// True if any of these arguments was given.
    pub(crate) fn any(&self) -> bool {
        *self != PolicyArgs::default()
    }
}
