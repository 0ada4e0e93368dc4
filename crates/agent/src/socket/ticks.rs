//! A client that asks for ticks gets each of them, as one JSON line, until it leaves.
//!
//! ```text
//! {"began":{"version":"0.1.0","interval_s":1.0}}
//! {"tick":{"count":7,"missed":0,"at_unix_ms":..,"elapsed_ns":..,"config":{..},"snapshot":{..},
//!          "plan":{..},"before":{"version":1,"state":{..}}}}
//! ```
//!
//! A record holds the same (`justitia_record::Tick`): the policy's input and its decision. `before`, the
//! policy's state, comes with the first tick, after a gap, and once in a while.
//!
//! Each client has a thread, and there are at most [`MOST_CLIENTS`]. A thread waits for the next tick on the
//! [`Board`] and writes it at the client's pace: a slow client misses ticks, which the next line says, and
//! the loop never waits for it. A client that does not read for [`PATIENCE`] is dropped.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, UNIX_EPOCH};

use justitia_policy::{Config, Plan, Snapshot, State, STATE_VERSION};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{not_understood, unreachable_at, Board, Posted, Request};
use crate::error::{Error, Result};

/// Number of clients that may listen at once: each holds a tick.
pub const MOST_CLIENTS: usize = 4;
/// Time for which a client may read nothing.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which threads check for their end.
pub(super) const SLICE: Duration = Duration::from_millis(200);
/// Number of ticks between two lines with the policy's state.
const STATE_EVERY: u64 = 60;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[doc(hidden)]
pub enum Line<T> {
    /// The first line.
    Began {
        /// The agent's version.
        version: String,
        /// Time between two steps.
        interval_s: f64,
    },
    /// A tick.
    Tick(T),
    /// There will be no tick.
    Error { cause: String, remedy: String },
}

#[derive(Debug, Serialize)]
struct Tick<'a> {
    count: u64,
    missed: u64,
    at_unix_ms: u64,
    elapsed_ns: u64,
    config: &'a Config,
    snapshot: &'a Snapshot,
    plan: &'a Plan,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Before<'a>>,
}

#[derive(Debug, Serialize)]
struct Before<'a> {
    version: u32,
    state: &'a State,
}

/// The clients that listen. Dropping it ends their threads, once the flag is set.
pub(super) struct Streams {
    board: Arc<Board>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Streams {
    pub(super) fn new(board: Arc<Board>, stop: Arc<AtomicBool>) -> Streams {
        Streams {
            board,
            stop,
            threads: Vec::new(),
        }
    }

    /// Adds a client.
    pub(super) fn add(&mut self, stream: UnixStream) -> io::Result<()> {
        self.threads.retain(|thread| !thread.is_finished());
        let (board, stop) = (Arc::clone(&self.board), Arc::clone(&self.stop));
        let mut client = Client::new(stream, &stop)?;
        if self.threads.len() >= MOST_CLIENTS {
            return client.send_line(&error(
                format!("{MOST_CLIENTS} clients follow the agent's ticks already"),
                "stop one of the recorders",
            ));
        }
        let thread = thread::Builder::new()
            .name("ticks".into())
            .stack_size(256 << 10)
            .spawn(move || {
                // The error of a client that went away concerns nobody.
                let _ = client.follow(&board);
            })?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn error(cause: String, remedy: &str) -> Line<()> {
    Line::Error {
        cause,
        remedy: remedy.to_owned(),
    }
}

/// A client that reads at its own pace.
pub(super) struct Client {
    stream: UnixStream,
    stop: Arc<AtomicBool>,
}

impl Client {
    /// A client on this connection, until `stop` is set.
    pub(super) fn new(stream: UnixStream, stop: &Arc<AtomicBool>) -> io::Result<Client> {
        stream.set_write_timeout(Some(SLICE))?;
        Ok(Client {
            stream,
            stop: Arc::clone(stop),
        })
    }

    fn follow(&mut self, board: &Board) -> io::Result<()> {
        self.send_line(&Line::<()>::Began {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            interval_s: board.last().0.interval.as_secs_f64(),
        })?;
        let mut last = 0;
        let mut told_state = 0;
        while !self.stop.load(Ordering::Acquire) {
            let Some(posted) = board.later(last, SLICE) else {
                continue;
            };
            let count = posted.tick.count;
            let missed = if last == 0 { 0 } else { count - last - 1 };
            let state = last == 0 || missed > 0 || count - told_state >= STATE_EVERY;
            if state {
                told_state = count;
            }
            last = count;
            let Some(tick) = tick(&posted, missed, state) else {
                return self.send_line(&error(
                    "this agent does not stream its ticks".to_owned(),
                    "record without it: justitia record --interval 1s FILE",
                ));
            };
            self.send_line(&Line::Tick(tick))?;
        }
        Ok(())
    }

    fn send_line<T: Serialize>(&mut self, line: &Line<T>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.send(&text)
    }

    /// Sends all of it, at the client's pace.
    pub(super) fn send(&mut self, mut rest: &[u8]) -> io::Result<()> {
        let mut heard = Instant::now();
        while !rest.is_empty() {
            match self.stream.write(super::piece(rest)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    heard = Instant::now();
                }
                Err(error) if is_timeout(&error) => {
                    if self.stop.load(Ordering::Acquire) || heard.elapsed() > PATIENCE {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// `None`: the tick was posted without its input.
fn tick(posted: &Posted, missed: u64, with_state: bool) -> Option<Tick<'_>> {
    let step = posted.step.as_deref()?;
    let since_1970 = step.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(Tick {
        count: posted.tick.count,
        missed,
        at_unix_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
        elapsed_ns: u64::try_from(step.elapsed.as_nanos()).unwrap_or(u64::MAX),
        config: &step.policy,
        snapshot: &posted.tick.snapshot,
        plan: &posted.tick.plan,
        before: with_state.then_some(Before {
            version: STATE_VERSION,
            state: &step.before,
        }),
    })
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// The ticks of a running agent, from its socket.
#[derive(Debug)]
pub struct Ticks {
    path: PathBuf,
    input: BufReader<UnixStream>,
    line: Vec<u8>,
    version: String,
    interval: Duration,
}

/// Asks the agent that listens at `path` for its ticks.
pub fn follow(path: &Path) -> Result<Ticks> {
    let unreachable = |error: &io::Error| unreachable_at(path, error);
    let stream = super::request(path, &Request::Ticks).map_err(|error| unreachable(&error))?;
    let mut ticks = Ticks {
        path: path.to_owned(),
        input: BufReader::new(stream),
        line: Vec::new(),
        version: String::new(),
        interval: Duration::ZERO,
    };
    let never = AtomicBool::new(false);
    let read = ticks.read_line(&never, Some(super::CLIENT_PATIENCE));
    if !read.map_err(|error| unreachable(&error))? {
        return Err(unreachable(&io::ErrorKind::UnexpectedEof.into()));
    }
    match ticks.parse::<serde::de::IgnoredAny>()? {
        Line::Began {
            version,
            interval_s,
        } => {
            ticks.version = version;
            ticks.interval = Duration::try_from_secs_f64(interval_s).unwrap_or_default();
        }
        _ => return Err(ticks.confused()),
    }
    let timeout = ticks.input.get_ref().set_read_timeout(Some(SLICE));
    timeout.map_err(|error| unreachable(&error))?;
    Ok(ticks)
}

impl Ticks {
    /// The agent's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Time between two steps, at the time of the request.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The next tick (a `justitia_record::Tick`); `None` when the agent ended or `stop` was set.
    pub fn next<T: DeserializeOwned>(&mut self, stop: &AtomicBool) -> Result<Option<T>> {
        match self.read_line(stop, None) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(unreachable_at(&self.path, &error)),
        }
        match self.parse()? {
            Line::Tick(tick) => Ok(Some(tick)),
            _ => Err(self.confused()),
        }
    }

    /// Reads a whole line. False: there is none, or `stop` was set.
    fn read_line(&mut self, stop: &AtomicBool, patience: Option<Duration>) -> io::Result<bool> {
        let began = Instant::now();
        self.line.clear();
        loop {
            if stop.load(Ordering::Acquire) {
                return Ok(false);
            }
            // Bytes that were read before a timeout stay in the buffer.
            match self.input.read_until(b'\n', &mut self.line) {
                Ok(_) => return Ok(self.line.ends_with(b"\n")),
                Err(error) if is_timeout(&error) => {
                    if patience.is_some_and(|patience| began.elapsed() >= patience) {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The line, if it is no error.
    fn parse<T: DeserializeOwned>(&self) -> Result<Line<T>> {
        match serde_json::from_slice(&self.line) {
            Ok(Line::Error { cause, remedy }) => Err(Error::failed(cause, remedy)),
            Ok(line) => Ok(line),
            Err(error) => Err(not_understood(&self.path, error)),
        }
    }

    fn confused(&self) -> Error {
        not_understood(&self.path, "a line that does not belong there")
    }
}

#[cfg(test)]
mod tests;
