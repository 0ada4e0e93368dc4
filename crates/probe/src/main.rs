//! `justitia probe` as a program: measures an application and declares its color.
//!
//! Changes go to stdout, and problems with the target go to stderr, once each. With `--dry-run`, `--json` and
//! `--once` nothing is declared, and stdout has a line for each period.

mod group;
mod kinds;
mod secure;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use justitia_agent::config::parse_interval;
use justitia_agent::Settings;
use justitia_args::probe::{CommonArgs, ProbeArgs};
use justitia_probe::declare::value;
use justitia_probe::stats::Stats;
use justitia_probe::{once, Config, Error, Event, Exit, Happening, Sink, XattrSink};
use justitia_report::say;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// Interval of the lines of `--stats`.
const STATS_EVERY: Duration = Duration::from_secs(60);

/// Measure an application and declare its color: green, yellow, red
#[derive(Parser)]
#[command(
    name = "justitia probe",
    bin_name = "justitia probe",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    probe: ProbeArgs,
}

fn main() -> ExitCode {
    justitia_args::main(|cli: &Cli| run(&cli.probe))
}

/// Probes until a signal.
fn run(args: &ProbeArgs) -> Result<(), Error> {
    let common = kinds::common(&args.kind);
    let interval = parse_interval("--interval", &common.interval)?;
    let chosen = kinds::choose(&args.kind)?;
    if let Some(unchecked) = chosen.unchecked {
        say::warn(format_args!(
            "{unchecked}: anyone on the network path can impersonate the server"
        ));
    }
    let config = Config {
        open: chosen.open,
        objective: chosen.objective,
        window: common.window,
        interval,
        timeout: chosen.timeout,
    };
    let (sender, receiver) = channel();
    stop_on_signals(sender.clone())
        .map_err(|error| Error::failed(format!("cannot handle signals: {error}"), "report this"))?;
    if !declares(common) {
        check_group(common)?;
    }
    let done = if common.once {
        once(&config, (sender, &receiver)).and_then(|verdict| {
            let line = if common.json {
                json!({ "color": verdict.color, "reason": verdict.reason }).to_string()
            } else {
                format!("{} {}", verdict.color, verdict.reason)
            };
            say::line(line)
                .map(drop)
                .map_err(|error| say::unprinted(&error))
        })
    } else {
        sink(common).and_then(|mut sink| {
            let mut teller = Teller::new(common, sender.clone());
            let done = justitia_probe::run(&config, &mut *sink, (sender, &receiver), &mut |it| {
                teller.tell(&it);
            });
            teller.end();
            done
        })
    };
    chosen.running.end();
    done
}

/// True if the color is declared, not only printed.
fn declares(common: &CommonArgs) -> bool {
    !(common.once || common.dry_run || common.json)
}

/// Refuses an unknown group in a run that declares nothing: the same command would fail to declare.
fn check_group(common: &CommonArgs) -> Result<(), Error> {
    let Some(name) = &common.group else {
        return Ok(());
    };
    group::named(name, &Settings::of_host()?).map(drop)
}

/// The sink for the color.
fn sink(common: &CommonArgs) -> Result<Box<dyn Sink>, Error> {
    if !declares(common) {
        return Ok(Box::new(Nowhere));
    }
    let sink = match common.group.clone() {
        None => XattrSink::new(Box::new(group::own)),
        Some(name) => {
            let settings = Settings::of_host()?;
            XattrSink::new(Box::new(move || {
                // It may come later: the unit starts the probe again after this exit code, and not after a refusal.
                group::named(&name, &settings).map_err(|error| match error.exit {
                    Exit::Usage => Error {
                        exit: Exit::Failed,
                        ..error
                    },
                    _ => error,
                })
            }))
        }
    };
    Ok(Box::new(sink?))
}

struct Nowhere;

impl Sink for Nowhere {
    fn declare(&mut self, _value: &str) -> Result<(), Error> {
        Ok(())
    }
}

/// Ends the probe at the first signal; the second one ends the process at once.
fn stop_on_signals(events: Sender<Event>) -> std::io::Result<()> {
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stopping))?;
        flag::register(signal, Arc::clone(&stopping))?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if signals.forever().next().is_some() {
                let _ = events.send(Event::Stop);
            }
        })?;
    Ok(())
}

/// Prints what happens.
struct Teller<'a> {
    args: &'a CommonArgs,
    stats: Option<(Stats, Instant)>,
    stop: Sender<Event>,
}

impl Teller<'_> {
    fn new(args: &CommonArgs, stop: Sender<Event>) -> Teller<'_> {
        Teller {
            args,
            stats: args.stats.then(|| (Stats::start(), Instant::now())),
            stop,
        }
    }

    fn tell(&mut self, happening: &Happening<'_>) {
        match happening {
            Happening::Period {
                count,
                seen,
                verdict,
            } => {
                if self.args.json {
                    let line = json!({
                        "at": now(),
                        "count": count,
                        "color": verdict.color,
                        "reason": verdict.reason,
                        "measured": seen,
                    });
                    self.say(&line.to_string());
                } else if self.args.dry_run {
                    self.say(&value(verdict.color, *count, &verdict.reason));
                } else if self.args.verbose {
                    self.say(&format!("{}: {}", verdict.color, verdict.reason));
                }
                self.say_stats();
            }
            Happening::Silent(trouble) => {
                if self.args.json {
                    let line = json!({ "at": now(), "color": null, "cause": trouble.cause });
                    self.say(&line.to_string());
                }
                self.say_stats();
            }
            Happening::Changed { from, verdict } => {
                if !(self.args.json || self.args.dry_run) {
                    let was = from.map_or("at first".to_owned(), |from| format!("was {from}"));
                    self.say(&format!("{} ({was}): {}", verdict.color, verdict.reason));
                }
            }
            Happening::Lost(trouble) => {
                let cause = format!("no color declared: {}", trouble.cause);
                say::two_lines(&cause, &trouble.remedy);
            }
            Happening::Found { after } => {
                say::warn(format_args!(
                    "it answers again, after {:.0} s",
                    after.as_secs_f64()
                ));
            }
            Happening::Undeclared(error) => say::two_lines(&error.cause, &error.remedy),
            Happening::Declared => say::warn("the color can be declared again"),
        }
    }

    fn say_stats(&mut self) {
        if let Some((stats, last)) = &mut self.stats {
            if last.elapsed() >= STATS_EVERY {
                *last = Instant::now();
                say::warn(stats.line());
            }
        }
    }

    fn end(&self) {
        if let Some((stats, _)) = &self.stats {
            say::warn(stats.line());
        }
    }

    /// Prints a line. A reader who closed our output wants no more of it, so the probe ends.
    fn say(&self, line: &str) {
        let unread = matches!(say::line(line), Ok(false));
        if unread && (self.args.dry_run || self.args.json) {
            let _ = self.stop.send(Event::Stop);
        }
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests;
