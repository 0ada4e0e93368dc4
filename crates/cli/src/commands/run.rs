//! `justitia run`: runs the agent in the foreground.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::Args;
use justitia_agent::config::{parse_observer, Observing, OBSERVERS};
use justitia_agent::{run, Error, Log, Result};
use justitia_report::feed::parse_listen;

use crate::settings::{self, ConfigArgs, PolicyArgs};
use crate::sibling;

/// Arguments of `justitia run`.
#[derive(Debug, Args)]
#[command(after_help = "\
When the agent ends, it restores every knob. After kill -9, the next start does so, or justitia restore. SIGHUP \
reads the configuration again.
With --hand-over the knobs stay in force when the agent ends, and an agent that starts within two minutes continues \
from them. If no agent follows, run justitia restore, as the unit does.
With --hand-over=in-turn the agent waits until the running one ends. When it ends itself, it hands over if another \
agent waits, and restores every knob otherwise.

Modes: observe measures and writes nothing; justitia sets thresholds by weight (the paper); proportional adds the \
feedback on measured bandwidth, and moves memory from groups that declare themselves green to those that declare \
themselves red; memoplight does only that, for inferred colors too, whatever the weights.

Examples:
  justitia run --manage '/app/*'
  justitia run --mode observe --wait
  justitia run --config /etc/justitia.toml")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Counter of the traffic: BPF programs, or /proc [default: auto]
    #[arg(long, value_name = "SOURCE",
        value_parser = PossibleValuesParser::new(OBSERVERS).try_map(|name| parse_observer(&name)))]
    pub(crate) observer: Option<Observing>,
    /// Start even if no cgroup matches yet
    #[arg(long)]
    pub(crate) wait: bool,
    /// When told to stop, leave the knobs and the learned state to the next agent; in-turn: to one that waits
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "always")]
    pub(crate) hand_over: Option<HandOver>,
    /// Address of the live page and the metrics, unix:PATH, or off [default: 127.0.0.1:9619]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Log each write with its reason
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Condition under which an agent that is told to stop leaves the knobs in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HandOver {
    /// Always: afterward, start the next agent or run justitia restore
    Always,
    /// Only if another agent waits for it; at its start, this agent waits for the running one
    InTurn,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let read = || {
        let mut settings = settings::with_policy(&args.config, &args.policy)?;
        settings.hand_over = args.hand_over.is_some();
        settings.in_turn = args.hand_over == Some(HandOver::InTurn);
        if let Some(listen) = &args.listen {
            settings.listen = parse_listen(listen)?;
        }
        settings.observer = args.observer.unwrap_or(settings.observer);
        Ok(settings)
    };
    let (settings, log) = (read()?, Log::stderr(args.verbose));
    let started = settings.listen.as_ref().and_then(|_| Page::start(&log));
    let (page, stream) = started.unzip();
    let done = run::run(settings, args.wait, &log, stream, read);
    drop(page);
    done
}

/// The web process of an agent that runs without a service manager. The process becomes nobody, and its only
/// connection to the agent is the one it inherits.
struct Page(Child);

impl Page {
    /// Starts the process, before the agent takes its lock and while it has only one thread. A failure is
    /// logged and does not stop the agent.
    fn start(log: &Log) -> Option<(Page, UnixStream)> {
        if std::env::var_os("NOTIFY_SOCKET").is_some() {
            log.info("started by a service manager: justitia-web.service serves the live page");
            return None;
        }
        let started = sibling::find("justitia-web").and_then(|program| {
            let (ours, theirs) = UnixStream::pair()
                .map_err(|error| Error::io("make a connection to", &program, &error))?;
            let child = Command::new(&program)
                .arg("--stdin")
                .stdin(OwnedFd::from(theirs))
                .spawn()
                .map_err(|error| Error::io("start", &program, &error))?;
            Ok((Page(child), ours))
        });
        match started {
            Ok(started) => Some(started),
            Err(Error { cause, remedy, .. }) => {
                log.warn(format_args!(
                    "no live page and no metrics: {cause}; {remedy}"
                ));
                None
            }
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
