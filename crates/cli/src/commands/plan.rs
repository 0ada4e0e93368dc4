//! `justitia plan`: shows the writes of a step and their reasons.

use clap::Args;
use justitia_agent::run;
use justitia_agent::socket::{ask, is_listening};
use justitia_agent::Result;
use justitia_policy::config::Mode;
use justitia_report::status::{PlannedWrite, Problem, Report};
use rustix::process::geteuid;
use serde::Serialize;

use super::trial::without_root;
use crate::output::{self, Page, Screen, Table};
use crate::settings::{self, ConfigArgs, PolicyArgs};

/// Arguments of `justitia plan`.
#[derive(Debug, Args)]
#[command(
    after_help = "Shows the running agent's last step. Without an agent, or with options of its own, it observes \
twice, one interval apart, and shows what an agent would write. It writes nothing itself.

Examples:
  justitia plan
  justitia plan --manage '/app/*' --mode justitia"
)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct PlanOutput<'a> {
    /// `agent`: the agent's last step; `here`: a step of this command.
    source: &'a str,
    mode: Mode,
    groups_total: usize,
    writes: &'a [PlannedWrite],
    problems: &'a [Problem],
}

/// Prints the plan of the running agent, or else a plan from this command's own observation.
pub(crate) fn run(args: &PlanArgs) -> Result<()> {
    let settings = settings::with_policy(&args.config, &args.policy)?;
    let socket = settings.socket();
    let own = args.policy.any() || args.config.config.is_some() || !is_listening(&socket);
    let (source, report) = if own {
        let mut report = run::look(&settings)?;
        let problem = without_root(geteuid().is_root(), "plan");
        report.problems.extend(problem);
        ("here", report)
    } else {
        ("agent", ask(&socket)?)
    };
    let plan = PlanOutput {
        source,
        mode: report.mode,
        groups_total: report.groups.len(),
        writes: &report.writes,
        problems: &report.problems,
    };
    output::print(args.json, &plan, |screen| render(&report, source, screen))
}

fn render(report: &Report, source: &str, screen: Screen) -> Page {
    let mut text = Page::on(screen);
    if source == "agent" {
        text.push_str("The running agent's last step:\n\n");
    } else {
        let groups = report.groups.len();
        write!(
            text,
            "Writes of an agent that would start now over {}:\n\n",
            output::number(groups, "group")
        );
    }
    if report.writes.is_empty() {
        text.push_str("nothing to write\n");
        if report.mode == Mode::Observe {
            text.push_str("mode observe never writes: see justitia plan --mode proportional\n");
        }
    } else {
        let value =
            |write: &PlannedWrite, value: &str| output::knob_value(value, write.knob.is_memory());
        let table = Table::of(&report.writes)
            .left("GROUP", 0, |w| w.path.clone())
            .left("KNOB", 0, |w| w.knob.to_string())
            .right("NOW", 1, |w| w.now.as_deref().map(|now| value(w, now)))
            .right("THEN", 0, |w| value(w, &w.value))
            .left("BECAUSE", 2, |w| w.because.clone());
        text.table(&table);
    }
    for problem in &report.problems {
        text.problem(problem);
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::commands::status::tests::example;

    pub(crate) fn rendered(report: &Report) -> Page {
        render(report, "agent", Screen::FILE)
    }

    #[test]
    fn each_write_is_shown_with_what_stands_there_and_why() {
        let text = render(&example(), "here", Screen::FILE);
        let line = text.line("/app/db");
        for cell in ["memory.high", "max", "391.0 MiB", "no contention"] {
            assert!(line.contains(cell), "{cell}: {line}");
        }
    }

    #[test]
    fn an_agent_that_does_not_answer_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let config = ConfigArgs {
            state_dir: Some(dir.path().to_owned()),
            ..ConfigArgs::default()
        };
        let settings = settings::load(&config).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(settings.socket()).unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
        let args = PlanArgs {
            config,
            policy: PolicyArgs::default(),
            json: false,
        };
        let error = run(&args).unwrap_err();
        let socket = settings.socket().display().to_string();
        assert!(error.cause.contains(&socket), "{error}");
    }

    #[test]
    fn a_plan_without_writes_says_so() {
        let report = Report {
            writes: Vec::new(),
            ..example()
        };
        let text = render(&report, "agent", Screen::FILE);
        assert!(text.contains("nothing to write"));
    }
}
