//! `justitia vm`: shows virtual machines and the host's page cache of their images. `justitia vm run` keeps
//! the pages that guests request again. `justitia vm policy` changes its policy.
//!
//! The report comes from the running image cache. Without one this command looks once and counts nothing, so
//! requests are unknown. Needs no agent and no cgroup v2.

mod table;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use justitia_agent::config::parse_weight;
use justitia_agent::{Error, Result};
use justitia_cgroup::Processes;
use justitia_policy::units::Weight;
use justitia_report::say;
use justitia_report::text::word;
use justitia_vm::control::{self, Control};
use justitia_vm::policy::Replacement;
use justitia_vm::report::Report;
use justitia_vm::{ImageCache, Settings};

use super::record::stop_on_signals;
use crate::output::{self, Page, Screen};
use crate::settings::{self, ConfigArgs, OutputArgs};

/// The image cache's socket in the state directory.
const SOCKET: &str = "vm.sock";
/// Interval at which a pause checks for its end.
const SLICE: Duration = Duration::from_millis(50);

/// Arguments of `justitia vm`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
CACHED is the host's page cache of a machine's disk images. LOW is how much it may hold whatever others want. SECOND \
is what its guest requested again. HITS is the share of its requests that was not read from disk. DROPPED is what \
was not kept after its first request. EVICTED is what it gave to others. A dash means not counted: run justitia vm \
run to count.

Examples:
  justitia vm
  justitia vm --images              each image too
  justitia vm --interval 1s         again and again
  justitia vm --json | jq '.machines[] | {name, cached_bytes}'
  justitia vm run                   keep only what guests request again, until Ctrl-C
  justitia vm policy lfu            another policy, while it runs"
)]
pub(crate) struct VmArgs {
    /// The command; without it: show the machines
    #[command(subcommand)]
    pub(crate) command: Option<VmCommand>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Show each image
    #[arg(long)]
    pub(crate) images: bool,
    /// Repeat this often, 100ms to 60s
    #[arg(long, value_name = "TIME", value_parser = settings::interval)]
    pub(crate) interval: Option<Duration>,
    /// Print JSON; with --interval one line each time
    #[arg(long)]
    pub(crate) json: bool,
}

/// Commands beside the display of machines.
#[derive(Debug, Subcommand)]
pub(crate) enum VmCommand {
    /// Keep in the page cache what guests request again, until it is told to stop
    #[command(after_help = "\
Policies, which justitia vm policy changes while it runs:
  default   the kernel's own: requests are counted, nothing is dropped
  lru2      everything is kept; machines above their share give up what was
            requested once, then what was least recently used
  lfu       everything is kept; they give up what was requested least often
  justitia  kept on the second request; they give up what was requested least
            often

A machine is above its share when it holds more than its weighted part of half the memory that is free or page \
cache. Nothing needs to be restored when this ends. The command never writes images, never drops dirty pages, and \
leaves images with cache=none alone.

Examples:
  justitia vm run
  justitia vm run --policy default          only count
  justitia vm run --weight db=400 --weight web=100")]
    Run(VmRunArgs),
    /// Show or change the policy of the running justitia vm run
    #[command(after_help = "Examples:
  justitia vm policy
  justitia vm policy default")]
    Policy {
        /// The new policy
        #[arg(value_name = "POLICY",
            value_parser = PossibleValuesParser::new(Replacement::NAMES).map(|name| named(&name)))]
        policy: Option<Replacement>,
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// Arguments of `justitia vm run`.
#[derive(Debug, Args)]
pub(crate) struct VmRunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Replacement policy for the pages of images
    #[arg(long, value_name = "POLICY", default_value = "justitia",
        value_parser = PossibleValuesParser::new(Replacement::NAMES).map(|name| named(&name)))]
    pub(crate) policy: Replacement,
    /// Time between two rounds, 100ms to 60s
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = settings::interval)]
    pub(crate) interval: Duration,
    /// A machine's weight among the machines, 1 to 10000; may be repeated [default: 100 each]
    #[arg(long, value_name = "NAME=N", value_parser = weight)]
    pub(crate) weight: Vec<(String, Weight)>,
}

pub(crate) fn run(args: &VmArgs) -> Result<()> {
    match &args.command {
        None => show(args),
        Some(VmCommand::Run(args)) => keep(args),
        Some(VmCommand::Policy { policy, output }) => switch(*policy, output),
    }
}

fn socket(config: &ConfigArgs) -> Result<PathBuf> {
    Ok(settings::load(config)?.state_dir.join(SOCKET))
}

/// The policy of a name that clap has validated.
fn named(name: &str) -> Replacement {
    serde_json::from_value(name.into()).unwrap_or_default()
}

/// The name of a policy; `none` without one.
pub(super) fn name(policy: Option<Replacement>) -> String {
    policy.map_or("none".into(), |policy| word(&policy))
}

fn show(args: &VmArgs) -> Result<()> {
    let socket = socket(&args.config)?;
    loop {
        let report = match control::ask(&socket)? {
            Some(report) => report,
            None => look()?,
        };
        let read = match (args.json, args.interval) {
            (true, None) => return output::print_json(&report),
            (true, Some(_)) => output::print_json_line(&report)?,
            (false, _) => table::text(&report, args.images, Screen::stdout()).flush()?,
        };
        match args.interval {
            Some(interval) if read => thread::sleep(interval),
            _ => return Ok(()),
        }
    }
}

/// A single report, without counting requests.
fn look() -> Result<Report> {
    let settings = Settings {
        only_look: true,
        ..Settings::default()
    };
    Ok(ImageCache::start(Processes::host(), settings)?.report())
}

fn keep(args: &VmRunArgs) -> Result<()> {
    let settings = Settings {
        replacement: args.policy,
        weights: args.weight.clone(),
        only_look: false,
    };
    let stop = stop_on_signals()?;
    // Listen first, to refuse a second image cache: two of them would count twice and drop each other's
    // pages.
    let control = Control::listen(&socket(&args.config)?)?;
    let mut image_cache = ImageCache::start(Processes::host(), settings)?;
    control.post(image_cache.report());
    let machines = output::number(image_cache.report().machines.len(), "machine");
    let tier = image_cache.report().tracking.unwrap_or_default();
    output::print_line(format_args!(
        "managing the cache of {machines}, policy {}, counting at {tier}; Ctrl-C ends it",
        word(&args.policy)
    ))?;
    loop {
        let began = Instant::now();
        if let Some(replacement) = control.asked() {
            output::print_line(format_args!("policy {}", word(&replacement)))?;
            image_cache.switch(replacement);
        }
        image_cache.tick()?;
        if let Some(complaint) = image_cache.complaint() {
            say::complain(&Page::of(format_args!("justitia vm: {complaint}")));
        }
        control.post(image_cache.report());
        while began.elapsed() < args.interval && !stop.load(Ordering::Acquire) {
            thread::sleep(SLICE.min(args.interval.saturating_sub(began.elapsed())));
        }
        if stop.load(Ordering::Acquire) {
            return Ok(());
        }
    }
}

fn weight(text: &str) -> Result<(String, Weight)> {
    let wrong = |why: &str| {
        Error::usage(
            format!("--weight {text}: {why}"),
            "write NAME=N with N from 1 to 10000, such as --weight db=400",
        )
    };
    let (name, number) = text.rsplit_once('=').ok_or_else(|| wrong("no ="))?;
    if name.is_empty() {
        return Err(wrong("no name"));
    }
    let weight = parse_weight(&format!("--weight {number} of {name}"), number)?;
    Ok((name.to_owned(), weight))
}

fn switch(policy: Option<Replacement>, options: &OutputArgs) -> Result<()> {
    let path = socket(&options.config)?;
    let report = match policy {
        Some(policy) => control::switch(&path, policy)?,
        None => control::ask(&path)?,
    };
    let Some(report) = report else {
        return Err(Error::failed(
            format!("no justitia vm run listens at {}", path.display()),
            "start it: justitia vm run; or name its --state-dir",
        ));
    };
    if options.json {
        return output::print_json(&serde_json::json!({ "policy": report.policy }));
    }
    output::print_line(format_args!("{}", name(report.policy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_a_name_and_a_number() {
        let (name, number) = weight("a=b=400").unwrap();
        assert_eq!((name.as_str(), number.get()), ("a=b", 400));
        for bad in ["db", "=5", "db=", "db=x", "db=0", "db=10001", "db=-1"] {
            assert_eq!(weight(bad).unwrap_err().exit.code(), 2, "{bad}");
        }
    }

    #[test]
    fn every_policy_that_is_offered_has_its_name() {
        for name in Replacement::NAMES {
            assert_eq!(super::name(Some(named(name))), name);
        }
    }
}
