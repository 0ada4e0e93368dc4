//! Answers on a Unix socket: one JSON request a line, one JSON answer.
//!
//! A thread of its own, with time limits on every client; it reads a shared copy of the last tick
//! and never touches the agent's loop. The socket is the owner's alone (mode 0600).
//!
//! Request: `{"ask":"status"}`. Answer: `{"ok":REPORT}` or `{"error":{"cause":..,"remedy":..}}`.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{plain, Error, Result};
use crate::status::{Report, Setup, Tick};

/// How long a client may take to ask, and to listen.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a client waits for the agent.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);
/// Requests are short.
const LONGEST_REQUEST: u64 = 4096;

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Everything.
    Status,
}

/// What is answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The report.
    Ok(Box<Report>),
    /// The request was not understood.
    Error {
        /// What was wrong.
        cause: String,
        /// What to do about it.
        remedy: String,
    },
}

/// The last tick, shared between the loop that replaces it and the thread that reads it. The lock
/// is held only to swap or clone a pointer.
#[derive(Debug)]
pub struct Board {
    posted: Mutex<(Arc<Setup>, Arc<Tick>)>,
}

impl Board {
    /// A board with nothing seen yet.
    pub fn new(setup: Setup) -> Board {
        Board {
            posted: Mutex::new((Arc::new(setup), Arc::default())),
        }
    }

    /// Replaces the last tick.
    pub fn post(&self, tick: Tick) {
        let tick = Arc::new(tick);
        // The old one is freed after the lock is released.
        let _old = std::mem::replace(&mut self.lock().1, tick);
    }

    /// Replaces the setup, after a reload.
    pub fn set_up(&self, setup: Setup) {
        self.lock().0 = Arc::new(setup);
    }

    /// The report of the last tick.
    pub fn report(&self) -> Report {
        let (setup, tick) = self.lock().clone();
        Report::new(&setup, &tick)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Arc<Setup>, Arc<Tick>)> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listening thread. Dropping it stops the thread and removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path`; a socket left behind by a dead agent is replaced (the caller holds the
    /// lock, so it is dead).
    pub fn listen(path: &Path, board: Arc<Board>) -> Result<Server> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("replace", path, &error));
            }
            _ => {}
        }
        let listener =
            UnixListener::bind(path).map_err(|error| Error::io("listen at", path, &error))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(|error| Error::io("protect", path, &error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("socket".into())
            .stack_size(256 << 10)
            .spawn(move || serve(&listener, &board, &stopped))
            .map_err(|error| Error::io("serve", path, &error))?;
        Ok(Server {
            path: path.to_owned(),
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread from accept.
        let _ = UnixStream::connect(&self.path);
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &UnixListener, board: &Board, stop: &AtomicBool) {
    loop {
        let stream = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        match stream {
            Ok((stream, _)) => {
                // A client that went away has nobody to tell.
                let _ = answer(&stream, board);
            }
            // Out of descriptors, most likely: not a reason to spin.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(stream: &UnixStream, board: &Board) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_REQUEST)).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(Request::Status) => Answer::Ok(Box::new(board.report())),
        Err(error) => Answer::Error {
            cause: format!("request not understood: {error}"),
            remedy: "send {\"ask\":\"status\"} and a line break".into(),
        },
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    let mut stream = stream;
    stream.write_all(text.as_bytes())
}

/// Asks the agent that listens at `path` for its report.
pub fn ask(path: &Path) -> Result<Report> {
    let text = exchange(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::failed(
            format!("no agent listens at {}", path.display()),
            "start it: systemctl start justitia, or justitia run; or name its --state-dir",
        ),
        io::ErrorKind::PermissionDenied => Error::environment(
            format!("no permission to ask {}", path.display()),
            "run it as root",
        ),
        _ => Error::failed(
            format!(
                "the agent at {} does not answer: {}",
                path.display(),
                plain(&error)
            ),
            "see its log: journalctl -u justitia",
        ),
    })?;
    match serde_json::from_str(&text) {
        Ok(Answer::Ok(report)) => Ok(*report),
        Ok(Answer::Error { cause, remedy }) => Err(Error::failed(cause, remedy)),
        Err(error) => Err(Error::failed(
            format!(
                "the agent at {} answers what is not understood: {error}",
                path.display()
            ),
            "use the agent's own version of this command",
        )),
    }
}

fn exchange(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(CLIENT_PATIENCE))?;
    stream.set_write_timeout(Some(CLIENT_PATIENCE))?;
    let mut request = serde_json::to_string(&Request::Status)?;
    request.push('\n');
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use justitia_policy::config::{Mode, Objective};
    use std::time::{Instant, UNIX_EPOCH};

    fn board() -> Arc<Board> {
        Arc::new(Board::new(Setup {
            mode: Mode::Proportional,
            objective: Objective::Fair,
            interval: Duration::from_secs(1),
            since: UNIX_EPOCH,
        }))
    }

    #[test]
    fn it_answers_with_the_last_tick_and_only_to_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let board = board();
        let server = Server::listen(&path, board.clone()).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(ask(&path).unwrap().ticks_total, 0);
        board.post(Tick {
            count: 7,
            ..Tick::default()
        });
        assert_eq!(ask(&path).unwrap().ticks_total, 7);
        drop(server);
        assert!(!path.exists());
        assert!(ask(&path).unwrap_err().cause.contains("no agent listens"));
    }

    #[test]
    fn nonsense_is_answered_with_what_to_send() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let _server = Server::listen(&path, board()).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"ask\":\"everything\"}\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(
            text.contains("\"error\"") && text.contains("status"),
            "{text}"
        );
    }

    #[test]
    fn a_client_that_says_nothing_holds_up_others_for_a_while_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let _server = Server::listen(&path, board()).unwrap();
        let _silent = UnixStream::connect(&path).unwrap();
        let began = Instant::now();
        ask(&path).unwrap();
        assert!(began.elapsed() < 2 * PATIENCE);
    }

    #[test]
    fn a_socket_left_behind_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        drop(UnixListener::bind(&path).unwrap());
        let _server = Server::listen(&path, board()).unwrap();
        ask(&path).unwrap();
    }
}
