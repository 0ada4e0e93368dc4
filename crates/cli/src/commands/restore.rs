//! `justitia restore`: restores the prior values of knobs after an agent was killed.

use std::process::{Command, Stdio};

use clap::Args;
use justitia_agent::run::{is_handed_over, restore_host};
use justitia_agent::{Error, Result, Settings};

use crate::output::{self, Page};
use crate::settings::{self, ConfigArgs};

/// Arguments of `justitia restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
A knob is restored only if it still holds the agent's value; a value that another program set stays. Not needed \
after the agent ended by itself, nor before it starts again.

Example:
  justitia restore")]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Do nothing if systemd is about to start this unit again and the agent handed over
    #[arg(long, value_name = "UNIT")]
    pub(crate) unless_restarting: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &RestoreArgs) -> Result<()> {
    let loaded = settings::load(&args.config);
    if let (Some(unit), Ok(settings)) = (&args.unless_restarting, &loaded) {
        if is_handed_over(settings) && is_restarting(unit) {
            output::print_line(format_args!("the knobs stay in force: {unit} starts again"))?;
            return Ok(());
        }
    }
    if let Some(dir) = args.config.state_dir.as_ref().filter(|dir| !dir.exists()) {
        return Err(Error::failed(
            format!("there is no directory {}", dir.display()),
            "name the agent's state directory with --state-dir",
        ));
    }
    // A mistake in the configuration must not prevent restoring.
    let (settings, refused) = match loaded {
        Ok(settings) => (settings, None),
        Err(error) => {
            let settings = settings::with_state_dir(Settings::default(), &args.config);
            (settings, Some(error))
        }
    };
    let found = restore_host(&settings)?;
    let nothing = found.is_none();
    if let (true, Some(refused)) = (nothing, refused) {
        return Err(refused);
    }
    let restored = found.unwrap_or_default();
    let failure = restored.problems.first().cloned();
    if args.json {
        output::print_json(&restored)?;
    } else if nothing {
        let dir = settings.state_dir.display();
        output::print_line(format_args!("nothing to restore: {dir} has no journal"))?;
    } else {
        let mut text = Page::new();
        writeln!(text, "{}", restored.summary());
        for knob in &restored.foreign {
            writeln!(text, "{knob} was set by somebody else: left alone");
        }
        text.print()?;
    }
    match failure {
        None => Ok(()),
        Some(problem) => Err(Error::failed(problem.cause, problem.remedy)),
    }
}

/// True if systemd is about to start this stopping unit again. `false` if systemd does not answer.
fn is_restarting(unit: &str) -> bool {
    let jobs = Command::new("systemctl")
        .args(["list-jobs", "--no-legend", unit])
        .stdin(Stdio::null())
        .output();
    let result = std::env::var("SERVICE_RESULT").ok();
    jobs.is_ok_and(|jobs| {
        let text = String::from_utf8_lossy(&jobs.stdout);
        jobs.status.success() && starts_again(&text, unit, result.as_deref())
    })
}

/// Decides [`is_restarting`] from systemd's jobs (`ID UNIT TYPE STATE`) and `$SERVICE_RESULT`
/// (`systemd.exec(5)`). `Restart=` starts a unit again that failed and has no job.
fn starts_again(jobs: &str, unit: &str, result: Option<&str>) -> bool {
    let mut jobs = jobs.lines().map(|line| line.split_whitespace());
    let job = jobs.find_map(|mut words| (words.nth(1)? == unit).then(|| words.next())?);
    match job {
        Some(kind) => kind == "restart",
        None => result.is_some_and(|result| result != "success"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_restart_and_a_failure_are_followed_by_a_start() {
        let unit = "justitia.service";
        let again = |jobs: &str, result| starts_again(jobs, unit, Some(result));
        assert!(again(" 77 justitia.service restart running\n", "success"));
        assert!(!again("77 justitia.service stop running\n", "success"));
        assert!(!again("77 justitia.service stop running\n", "signal"));
        // The unit failed while it was starting.
        assert!(!again("77 justitia.service start running\n", "exit-code"));
        assert!(again("", "signal") && again("", "watchdog"));
        assert!(!again("", "success") && !starts_again("", unit, None));
        let other = "78 justitia-web.service restart waiting\n";
        assert!(!again(other, "success"));
    }
}
