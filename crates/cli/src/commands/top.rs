//! `justitia top`: shows page cache and bandwidth of all groups, live.
//!
//! Queries the agent's socket once an interval. Everything on the screen is from the agent's report, so the
//! screen, `status --json` and the metrics never disagree. Data flows one way: [`picture`] keeps the last
//! report and a short history, [`rows`] makes rows of it, [`columns`] cells, and [`view`] a screen. [`app`]
//! is the state that keys change. All of these are pure; only [`screen`] touches the terminal. An unknown
//! value is a dash, never zero.

mod app;
mod bars;
mod columns;
mod detail;
mod format;
mod help;
mod picture;
#[cfg(test)]
mod recording_tests;
mod rows;
mod screen;
mod theme;
mod tree;
mod values;
mod view;

use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::{Duration, Instant};

use app::App;
use clap::Args;
pub(crate) use format::age;
use justitia_agent::socket::ask;
use justitia_agent::{Error, Result};
use justitia_report::say;
use justitia_report::status::Report;
use theme::Theme;

use crate::output::{self, Page, Screen};
use crate::settings::{self, ConfigArgs};

/// Arguments of `justitia top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Press ? for the keys and the columns, q to quit. Set NO_COLOR to turn colors off.
CACHE/THRESHOLD is a group's page cache against the part that is protected.
SHARE/IDEAL is its share of the contending groups' bandwidth against its share of their weight.

Examples:
  justitia top
  justitia top --interval 500ms
  justitia top --once               one frame as text, as wide as COLUMNS says
  justitia top --json | jq '.pv'    one line for each interval")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Time between two updates, 100ms to 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = settings::interval)]
    pub(crate) interval: Duration,
    /// Print one frame as text and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON, one line for each interval
    #[arg(long)]
    pub(crate) json: bool,
}

/// Width of a plain frame if the terminal's width is unknown: wide enough for the important columns.
const PLAIN_COLUMNS: usize = 120;

/// Shows the screen, or prints one frame, or JSON lines.
pub(crate) fn run(args: &TopArgs) -> Result<()> {
    let interval = args.interval;
    if !args.once && !args.json {
        check_terminal(
            io::stdout().is_terminal(),
            std::env::var("TERM").ok().as_deref(),
        )?;
    }
    let socket = settings::load(&args.config)?.socket();
    // Fail at once if there is no agent. An agent that goes away later may return.
    let first = ask(&socket)?;
    match (args.json, args.once) {
        (true, true) => output::print_json_line(&first).map(|_| ()),
        (true, false) => stream(first, interval, || ask(&socket)),
        (false, true) => frame(first, Screen::stdout().width).print(),
        (false, false) => screen::run(App::new(first, Theme::of_terminal()), socket, interval),
    }
}

/// One frame as plain text, with all groups.
fn frame(report: Report, width: Option<usize>) -> Page {
    let app = App::new(report, Theme::PLAIN);
    view::plain(&app, width.unwrap_or(PLAIN_COLUMNS))
}

/// Refuses if stdout is not a terminal that can move its cursor.
fn check_terminal(is_terminal: bool, term: Option<&str>) -> Result<()> {
    let cause = match term {
        _ if !is_terminal => "standard output is not a terminal",
        Some("dumb") => "this terminal (TERM=dumb) cannot move its cursor",
        _ => return Ok(()),
    };
    Err(Error::usage(cause, "use --once or --json"))
}

/// Prints one report per line, until the reader closes the pipe. While the agent is away it prints nothing,
/// except the reason once on stderr.
fn stream(first: Report, interval: Duration, ask: impl Fn() -> Result<Report>) -> Result<()> {
    let mut next = Instant::now();
    let mut answer: Result<Report> = Ok(first);
    let mut away = false;
    loop {
        match answer {
            Ok(report) => {
                away = false;
                if !output::print_json_line(&report)? {
                    return Ok(());
                }
            }
            Err(error) if !away => {
                away = true;
                say::error(&error);
            }
            Err(_) => {}
        }
        next = following(next, interval, Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
        answer = ask();
    }
}

/// Time of the next query: one interval after `last`, or `now` if that has passed. Missed queries are not
/// made up for.
fn following(last: Instant, interval: Duration, now: Instant) -> Instant {
    (last + interval).max(now)
}

#[cfg(test)]
pub(crate) mod tests;
