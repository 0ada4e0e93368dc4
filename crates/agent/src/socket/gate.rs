//! The kernel module's gate over the socket.
//!
//! ```text
//! {"ask":"gate","on":true}
//! {"gate":{"ticks_total":17}}
//! ```
//!
//! The agent takes or releases the gate at its next step. The answer therefore gives the number of steps so
//! far: the report of a later step tells the result. The request holds until the agent stops (a restart keeps
//! it). After that the configuration's `[gate]` decides again.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{ask, converse, require, Answer, Board, Request};
use crate::error::{Error, Result};
use crate::status::Report;

/// Interval at which the report is read while waiting for the step.
const LOOK: Duration = Duration::from_millis(50);
/// A step takes this long at most, beside the interval.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes the agent that listens at `path` take or release the gate, and returns the report of the step that
/// did.
///
/// # Errors
/// No agent; an agent whose mode knows no weights; what the module refused.
pub fn set(path: &Path, on: bool) -> Result<Report> {
    require(path, "nobody holds the gate")?;
    let lacks = "nothing about the gate";
    let before = converse(path, &Request::Gate { on }, lacks, |answer| match answer {
        Answer::Gate { ticks_total } => Some(ticks_total),
        _ => None,
    })?;
    let report = later_report(path, before)?;
    if on && report.gate.is_none() {
        let mut problems = report.problems.iter();
        let problem = problems.find(|problem| problem.cause.starts_with("gate:"));
        return Err(problem.map_or_else(
            || Error::failed("the agent does not hold the gate", "see its log"),
            |problem| Error::environment(&problem.cause, &problem.remedy),
        ));
    }
    Ok(report)
}

/// The first report after two more steps: the step under way may not have seen the request.
fn later_report(path: &Path, before: u64) -> Result<Report> {
    let began = Instant::now();
    loop {
        let report = ask(path)?;
        let patience = PATIENCE + Duration::from_secs_f64(2.0 * report.interval_s);
        if report.ticks_total >= before + 2 {
            return Ok(report);
        }
        if began.elapsed() > patience {
            return Err(Error::failed(
                "the agent does not make its next step",
                "see its log: journalctl -u justitia",
            ));
        }
        thread::sleep(LOOK);
    }
}

/// The agent's side.
pub(super) fn hear(board: &Board, on: bool) -> Result<Answer> {
    let (setup, tick) = board.last();
    if on && !setup.mode.knows_weights() {
        return Err(Error::failed(
            "the agent's mode does not use weights, so it has nothing to feed the gate",
            "start it in mode justitia or proportional",
        ));
    }
    board.ask_for_gate(on);
    Ok(Answer::Gate {
        ticks_total: tick.count,
    })
}
