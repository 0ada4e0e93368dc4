//! From arguments and configuration file to the agent's settings: arguments win.

use justitia_agent::config::{parse_interval, parse_mode, parse_objective, GLOB_REMEDY};
use justitia_agent::{Error, Result, Settings};
use justitia_discover::Glob;

use crate::args::{ConfigArgs, PolicyArgs};

/// The configuration file's settings, or the defaults.
pub(crate) fn load(args: &ConfigArgs) -> Result<Settings> {
    let mut settings = match &args.config {
        Some(file) => Settings::load(file)?,
        None => Settings::of_host()?,
    };
    if let Some(dir) = &args.state_dir {
        settings.state_dir.clone_from(dir);
        settings.socket = None;
    }
    Ok(settings)
}

/// The same with what the arguments say about the policy.
pub(crate) fn with_policy(config: &ConfigArgs, policy: &PolicyArgs) -> Result<Settings> {
    let mut settings = load(config)?;
    if let Some(mode) = &policy.mode {
        settings.policy.mode = parse_mode(mode)?;
    }
    if let Some(objective) = &policy.objective {
        settings.policy.objective = parse_objective(objective)?;
    }
    if let Some(interval) = &policy.interval {
        settings.interval =
            parse_interval(interval).map_err(|(cause, remedy)| Error::usage(cause, remedy))?;
    }
    for (globs, set) in [
        (&policy.manage, &mut settings.manage),
        (&policy.exclude, &mut settings.exclude),
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
    /// Whether any of them was given.
    pub(crate) fn any(&self) -> bool {
        !self.manage.is_empty()
            || !self.exclude.is_empty()
            || self.mode.is_some()
            || self.objective.is_some()
            || self.interval.is_some()
    }
}

/// What went wrong with a cgroup, and which kind of failure it is.
pub(crate) fn cgroup_error(error: &justitia_cgroup::Error) -> Error {
    if matches!(error, justitia_cgroup::Error::Denied { .. }) {
        Error::environment(error, error.remedy())
    } else {
        Error::failed(error, error.remedy())
    }
}
