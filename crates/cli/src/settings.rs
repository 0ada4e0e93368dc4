//! Combines configuration file and arguments into the agent's settings. Arguments win.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
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
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub(crate) manage: Vec<String>,
    /// Cgroups to leave alone; may be repeated
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub(crate) exclude: Vec<String>,
}

/// Settings of the policy; each has precedence over the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct PolicyArgs {
    #[command(flatten)]
    pub(crate) globs: GlobArgs,
    /// Part of the policy that is in force [default: proportional]
    #[arg(long, value_name = "MODE",
        value_parser = PossibleValuesParser::new(Mode::NAMES).try_map(|name| parse_mode(&name)))]
    pub(crate) mode: Option<Mode>,
    /// Aim of the feedback [default: fair]
    #[arg(long, value_name = "AIM",
        value_parser = PossibleValuesParser::new(Objective::NAMES).try_map(|name| parse_objective(&name)))]
    pub(crate) objective: Option<Objective>,
    /// Time between two steps, 100ms to 60s [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) interval: Option<Duration>,
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
    settings.mode = policy.mode.unwrap_or(settings.mode);
    settings.objective = policy.objective.unwrap_or(settings.objective);
    settings.interval = policy.interval.unwrap_or(settings.interval);
    override_globs(&mut settings.manage, &policy.globs.manage);
    override_globs(&mut settings.exclude, &policy.globs.exclude);
    Ok(settings)
}

/// Replaces globs by those of the arguments, if there are any.
pub(crate) fn override_globs(set: &mut Vec<String>, globs: &[String]) {
    if !globs.is_empty() {
        *set = globs.to_vec();
    }
}

/// Parses the value of `--interval`.
pub(crate) fn interval(text: &str) -> Result<Duration> {
    Ok(parse_interval("--interval", text)?)
}

/// Refuses a malformed glob.
pub(crate) fn glob(text: &str) -> Result<String> {
    match Glob::new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(Error::usage(error, GLOB_REMEDY)),
    }
}

impl PolicyArgs {
    /// True if any of these arguments was given.
    pub(crate) fn any(&self) -> bool {
        *self != PolicyArgs::default()
    }
}
