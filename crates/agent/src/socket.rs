//! Answers requests on a Unix socket: one JSON request a line, one JSON answer.
//!
//! The server has a thread of its own and time limits for every client. It reads a shared copy of the last
//! tick and never touches the agent's loop. Only the owner can use the socket (mode 0600).
//!
//! Request: `{"ask":"status"}`. Answer: `{"ok":REPORT}` or `{"error":{"cause":..,"remedy":..}}`, with
//! `"usage":true` if the request names something that does not exist. The answer to `{"ask":"ticks"}` does not
//! end: see [`ticks`]. A color is declared with `{"ask":"color",..}`: see [`color`]. Memory is reserved with
//! `{"ask":"reserve",..}`: see [`mod@reserve`]. The kernel module's gate is taken or released with
//! `{"ask":"gate",..}`: see [`gate`]. A second socket, from which nothing is read, feeds the web page: see
//! [`feed`].

pub mod color;
pub mod feed;
pub mod gate;
pub mod reserve;
pub mod ticks;

pub use color::{clear_color, declare_color};

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use justitia_policy::snapshot::{GroupId, Reservation};
use justitia_policy::units::Bytes;
use justitia_policy::{Color, Config, State};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};

use crate::colors::Spoken;
use crate::error::{plain, Error, Exit, Result};
use crate::lock::make_state_dir;
use crate::status::{Report, Setup, Tick};

use color::Heard;
use reserve::Reserved;
use ticks::Streams;

/// The remedy where no agent listens.
const START: &str = "start it: systemctl start justitia, or justitia run; or name its --state-dir";
/// Time that a client may take for its whole request, and time that it may take to read the whole answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time for which a client waits for the agent.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);
/// Interval at which the server checks that its socket still exists.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// Longest request, bytes.
const LONGEST_REQUEST: usize = 4096;
/// Reservations that wait for one step.
const MOST_ASKED: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The whole report.
    Status,
    /// Each tick from now on.
    Ticks,
    /// Declares the color of a group.
    Color {
        /// Its path, or the last part of it.
        group: String,
        /// The color.
        color: Color,
        /// The reason, for people.
        #[serde(default)]
        reason: String,
        /// Lifetime, milliseconds; `None`: the configured time to live.
        #[serde(default)]
        for_ms: Option<u64>,
    },
    /// Withdraws a group's color that was declared over the socket.
    ClearColor {
        /// Its path, or the last part of it.
        group: String,
    },
    /// Reserves memory for a group.
    Reserve {
        /// Its path, or the last part of it.
        group: String,
        /// Bytes; zero cancels the reservation.
        bytes: u64,
        /// Lifetime, milliseconds.
        for_ms: u64,
    },
    /// Takes or releases the kernel module's gate.
    Gate {
        /// Take it; otherwise release it.
        on: bool,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The report.
    Ok(Box<Report>),
    /// The color of this group was taken in.
    Heard(Heard),
    /// Memory is reserved from the next step on.
    Reserved(Reserved),
    /// The gate is taken or released by the next step.
    Gate {
        /// Steps so far.
        ticks_total: u64,
    },
    /// The request was not understood, or was refused.
    Error {
        /// The problem.
        cause: String,
        /// The remedy.
        remedy: String,
        /// The request is wrong, by whatever state the agent is in.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        usage: bool,
    },
}

impl From<Error> for Answer {
    fn from(error: Error) -> Answer {
        Answer::Error {
            usage: error.exit == Exit::Usage,
            cause: error.cause,
            remedy: error.remedy,
        }
    }
}

/// The input of a tick, for recorders.
#[derive(Debug, Clone)]
pub struct Step {
    /// Time of the observation.
    pub at: SystemTime,
    /// Time since the previous step, as the policy was given it.
    pub elapsed: Duration,
    /// The policy's configuration.
    pub policy: Config,
    /// The policy's state before it.
    pub before: Arc<State>,
}

/// The last tick, shared between the loop that replaces it and the threads that read it. The lock
/// is held only to swap or clone pointers.
#[derive(Debug)]
pub struct Board {
    posted: Mutex<Posted>,
    changed: Condvar,
    /// Colors declared since the last step: at most one for each managed group.
    calls: Mutex<Calls>,
    /// Reservations requested since the last step.
    asked: Mutex<Vec<Reservation>>,
    /// The last request for the gate since the last step.
    gate: Mutex<Option<bool>>,
}

/// The declaration for each group; `None`: it is withdrawn.
pub type Calls = BTreeMap<GroupId, Option<Spoken>>;

#[derive(Debug, Clone)]
struct Posted {
    setup: Arc<Setup>,
    tick: Arc<Tick>,
    step: Option<Arc<Step>>,
}

impl Board {
    /// A board with nothing seen yet.
    pub fn new(setup: Setup) -> Board {
        let posted = Posted {
            setup: Arc::new(setup),
            tick: Arc::default(),
            step: None,
        };
        Board {
            posted: Mutex::new(posted),
            changed: Condvar::new(),
            calls: Mutex::default(),
            asked: Mutex::default(),
            gate: Mutex::default(),
        }
    }

    /// Replaces the last tick by one without its input, which nobody can record.
    pub fn post(&self, tick: Tick) {
        self.replace(tick, None);
    }

    /// Replaces the last tick and its input.
    pub fn post_step(&self, tick: Tick, step: Step) {
        self.replace(tick, Some(Arc::new(step)));
    }

    fn replace(&self, tick: Tick, step: Option<Arc<Step>>) {
        let tick = Arc::new(tick);
        let mut posted = lock(&self.posted);
        let old = (
            std::mem::replace(&mut posted.tick, tick),
            std::mem::replace(&mut posted.step, step),
        );
        drop(posted);
        self.changed.notify_all();
        // Freed after the lock was released.
        drop(old);
    }

    /// Replaces the setup, after a reload.
    pub fn set_up(&self, setup: Setup) {
        lock(&self.posted).setup = Arc::new(setup);
    }

    /// Leaves a color for the next step.
    fn call(&self, group: GroupId, spoken: Option<Spoken>) {
        lock(&self.calls).insert(group, spoken);
    }

    /// Takes the colors declared since the last call.
    pub fn take_calls(&self) -> Calls {
        std::mem::take(&mut *lock(&self.calls))
    }

    /// Leaves a reservation for the next step. Beyond [`MOST_ASKED`], the oldest ones are dropped.
    fn ask_to_reserve(&self, what: Reservation) {
        let mut asked = lock(&self.asked);
        asked.retain(|known| known.path != what.path);
        if asked.len() >= MOST_ASKED {
            asked.remove(0);
        }
        asked.push(what);
    }

    /// Takes the reservations requested since the last call.
    pub fn take_asked(&self) -> Vec<Reservation> {
        std::mem::take(&mut *lock(&self.asked))
    }

    /// Leaves for the next step whether the gate is to be held.
    fn ask_for_gate(&self, on: bool) {
        *lock(&self.gate) = Some(on);
    }

    /// Takes the request for the gate since the last call.
    pub fn take_gate_asked(&self) -> Option<bool> {
        lock(&self.gate).take()
    }

    /// The report of the last tick.
    pub fn report(&self) -> Report {
        let (setup, tick) = self.last();
        Report::new(&setup, &tick)
    }

    /// The last tick and its setup.
    pub fn last(&self) -> (Arc<Setup>, Arc<Tick>) {
        let posted = self.now();
        (posted.setup, posted.tick)
    }

    /// The last posted step.
    fn now(&self) -> Posted {
        lock(&self.posted).clone()
    }

    /// Waits for a tick later than the one of this number.
    fn later(&self, count: u64, patience: Duration) -> Option<Posted> {
        let later = |posted: &mut Posted| posted.tick.count <= count;
        let (posted, _) = self
            .changed
            .wait_timeout_while(lock(&self.posted), patience, later)
            .unwrap_or_else(PoisonError::into_inner);
        (posted.tick.count > count).then(|| posted.clone())
    }
}

/// Takes a lock, also after a thread panicked while it held it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The listening thread. Dropping it stops the thread and removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    /// Closing it wakes the thread, whatever became of the socket's path.
    wake: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// The socket, and the identity of its file.
struct Listening {
    listener: UnixListener,
    file: Option<(u64, u64)>,
}

/// Device and inode of the file at a path.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let meta = fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

impl Listening {
    fn at(path: &Path) -> Result<Listening> {
        let listener =
            UnixListener::bind(path).map_err(|error| Error::io("listen at", path, &error))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(|error| Error::io("protect", path, &error))?;
        let file = file_at(path);
        Ok(Listening { listener, file })
    }

    /// Listens again if the socket was removed, perhaps with its directory. A file that somebody else put
    /// there stays.
    fn renew(&mut self, path: &Path) {
        if self.file == file_at(path) || path.exists() {
            return;
        }
        if let Some(dir) = path.parent() {
            let _ = make_state_dir(dir);
        }
        if let Ok(anew) = Listening::at(path) {
            *self = anew;
        }
    }
}

impl Server {
    /// Listens at `path`; a socket left behind by a dead agent is replaced (the caller holds the
    /// lock, so it is dead).
    pub fn listen(path: &Path, board: Arc<Board>) -> Result<Server> {
        let stop = Arc::<AtomicBool>::default();
        let mut streams = Streams::new(Arc::clone(&board), Arc::clone(&stop));
        Server::start(path, "socket", stop, move |stream| {
            // The error of a client that went away concerns nobody.
            let _ = answer(stream, &board, &mut streams);
        })
    }

    /// Like [`Server::listen`], with any handler for clients.
    fn start(
        path: &Path,
        name: &str,
        stop: Arc<AtomicBool>,
        mut serve_one: impl FnMut(UnixStream) + Send + 'static,
    ) -> Result<Server> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("replace", path, &error));
            }
            _ => {}
        }
        let mut listening = Listening::at(path)?;
        let stopped = Arc::clone(&stop);
        let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let (woken, wake) = pipe.map_err(|error| Error::io("serve", path, &error.into()))?;
        let at = path.to_owned();
        let thread = thread::Builder::new()
            .name(name.into())
            .stack_size(256 << 10)
            .spawn(move || serve(&at, &mut listening, &woken, &stopped, &mut serve_one))
            .map_err(|error| Error::io("serve", path, &error))?;
        Ok(Server {
            path: path.to_owned(),
            stop,
            wake: Some(wake),
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn serve(
    path: &Path,
    listening: &mut Listening,
    woken: &OwnedFd,
    stop: &AtomicBool,
    serve_one: &mut dyn FnMut(UnixStream),
) {
    let mut spare = Spare::new();
    while !stop.load(Ordering::Acquire) {
        let mut ready = [
            PollFd::new(&listening.listener, PollFlags::IN),
            PollFd::new(woken, PollFlags::IN),
        ];
        let _ = poll(&mut ready, Some(&LOOK_EVERY));
        if ready[0].revents().is_empty() {
            listening.renew(path);
            continue;
        }
        if spare.serve(&listening.listener, serve_one).is_err() {
            // Do not spin on errors.
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A spare descriptor, given away for a client when the process has no more.
struct Spare(Option<fs::File>);

impl Spare {
    fn new() -> Spare {
        Spare(fs::File::open("/dev/null").ok())
    }

    /// Serves a client, in place of the spare descriptor if needed. The spare is opened again after the
    /// client's descriptor is free.
    fn serve(
        &mut self,
        listener: &UnixListener,
        serve_one: &mut dyn FnMut(UnixStream),
    ) -> io::Result<()> {
        let accepted = listener.accept().or_else(|error| {
            self.0.take().ok_or(error)?;
            listener.accept()
        });
        let served = accepted.map(|(stream, _)| serve_one(stream));
        if self.0.is_none() {
            *self = Spare::new();
        }
        served
    }
}

fn answer(mut stream: UnixStream, board: &Board, streams: &mut Streams) -> io::Result<()> {
    let line = hear(&mut stream)?;
    // A client that follows the ticks gets a thread of its own.
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some(answer) = reply(&line, board) else {
        return streams.add(stream);
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    tell(&mut stream, &text)
}

/// The answer to a line. `None`: the request is for the ticks. Public for the fuzz target.
#[doc(hidden)]
pub fn reply(line: &[u8], board: &Board) -> Option<Answer> {
    let answer = match serde_json::from_slice(line) {
        Ok(Request::Status) => Ok(Answer::Ok(Box::new(board.report()))),
        Ok(Request::Ticks) => return None,
        Ok(Request::Color {
            group,
            color,
            reason,
            for_ms,
        }) => color::hear(board, &group, Some(color::spoken(color, &reason, for_ms))),
        Ok(Request::ClearColor { group }) => color::hear(board, &group, None),
        Ok(Request::Reserve {
            group,
            bytes,
            for_ms,
        }) => reserve::hear(board, &group, Bytes(bytes), for_ms),
        Ok(Request::Gate { on }) => gate::hear(board, on),
        Err(error) => Err(Error::failed(
            format_args!("request not understood: {error}"),
            "send {\"ask\":\"status\"} and a line break",
        )),
    };
    Some(answer.unwrap_or_else(Answer::from))
}

/// Time left until a client's deadline.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// Reads a request: a line, or the bytes before the end.
fn hear(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut line = vec![0; LONGEST_REQUEST];
    let mut heard = 0;
    while heard < line.len() && !line[..heard].ends_with(b"\n") {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut line[heard..])? {
            0 => break,
            count => heard += count,
        }
    }
    line.truncate(heard);
    Ok(line)
}

/// The part that is written in one call: the kernel's timeout is for each piece of a write
/// (`net/unix/af_unix.c`, `unix_stream_sendmsg`), not for all of it.
fn piece(text: &[u8]) -> &[u8] {
    &text[..text.len().min(16 << 10)]
}

fn tell(stream: &mut UnixStream, mut text: &[u8]) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !text.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        let count = stream.write(piece(text))?;
        text = &text[count..];
    }
    Ok(())
}

/// Asks the agent that listens at `path` for its report.
pub fn ask(path: &Path) -> Result<Report> {
    converse(path, &Request::Status, "no report", |answer| match answer {
        Answer::Ok(report) => Some(*report),
        _ => None,
    })
}

/// Sends a request and takes from the answer what it asks for. `lacks` says what another answer is.
fn converse<T>(
    path: &Path,
    what: &Request,
    lacks: &str,
    take: impl FnOnce(Answer) -> Option<T>,
) -> Result<T> {
    let mut text = String::new();
    request(path, what)
        .and_then(|mut stream| stream.read_to_string(&mut text))
        .map_err(|error| unreachable_at(path, &error))?;
    match serde_json::from_str(&text) {
        Ok(Answer::Error {
            cause,
            remedy,
            usage,
        }) if usage => Err(Error::usage(cause, remedy)),
        Ok(Answer::Error { cause, remedy, .. }) => Err(Error::failed(cause, remedy)),
        Ok(answer) => take(answer).ok_or_else(|| not_understood(path, lacks)),
        Err(error) => Err(not_understood(path, error)),
    }
}

/// True if an agent listens at `path`, or another process whose socket this user may not open.
pub fn is_listening(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// An error unless an agent listens at `path`; `without` says what cannot be done then.
pub fn require(path: &Path, without: &str) -> Result<()> {
    if is_listening(path) {
        return Ok(());
    }
    Err(Error::failed(
        format!("no agent listens at {}: {without}", path.display()),
        START,
    ))
}

/// The error that no agent answers.
fn unreachable_at(path: &Path, error: &io::Error) -> Error {
    use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound, PermissionDenied};
    match error.kind() {
        NotFound | NotADirectory | ConnectionRefused => {
            Error::failed(format!("no agent listens at {}", path.display()), START)
        }
        PermissionDenied => Error::environment(
            format!("no permission to ask {}", path.display()),
            "run it as root",
        ),
        _ => Error::failed(
            format!(
                "the agent at {} does not answer: {}",
                path.display(),
                plain(error)
            ),
            "see its log: journalctl -u justitia",
        ),
    }
}

/// The error that the agent is of another version.
fn not_understood(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::failed(
        format!(
            "the answer of the agent at {} is not understood: {error}",
            path.display()
        ),
        "use the agent's own version of this command",
    )
}

/// Connects to the agent and sends a request.
fn request(path: &Path, request: &Request) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(CLIENT_PATIENCE))?;
    stream.set_write_timeout(Some(CLIENT_PATIENCE))?;
    let mut request = serde_json::to_string(request)?;
    request.push('\n');
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

#[cfg(test)]
mod tests;
