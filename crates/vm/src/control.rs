//! The control socket of a running image cache: a Unix socket, one JSON request and one JSON answer per
//! connection, each on one line.
//!
//! Request: `{"ask":"report"}` or `{"ask":"policy","name":"lfu"}`. Answer: `{"ok":REPORT}` or
//! `{"error":"..."}`. The socket has mode 0600. A separate thread answers, with timeouts on every client. It
//! shares with the image cache's loop only the last report and the requested policy.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::Replacement;
use crate::report::Report;
use crate::Error;

/// Read and write timeout, on both ends of the connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a request that are read.
const LONGEST_REQUEST: u64 = 4096;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    Report,
    Policy { name: Replacement },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(Box<Report>),
    Error(String),
}

#[derive(Debug, Default)]
struct Board {
    report: Report,
    asked: Option<Replacement>,
}

/// The socket of a running image cache, removed when dropped.
#[derive(Debug)]
pub struct Control {
    board: Arc<Mutex<Board>>,
    path: PathBuf,
}

impl Control {
    /// Listens at a path. A stale socket there is replaced.
    ///
    /// # Errors
    /// Another image cache listens there, or the path cannot be used.
    pub fn listen(path: &Path) -> Result<Control, Error> {
        let io = |doing: &str, error: &io::Error| Error::io(doing, path, error);
        if UnixStream::connect(path).is_ok() {
            return Err(Error::failed(
                format!("another justitia vm run listens at {}", path.display()),
                "change its policy with justitia vm policy, or stop it first",
            ));
        }
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(|error| io("make the directory of", &error))?;
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io("replace", &error))
            }
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(|error| io("listen at", &error))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(|error| io("protect", &error))?;
        let board = Arc::new(Mutex::new(Board::default()));
        let shared = Arc::clone(&board);
        thread::Builder::new()
            .name("vm-control".into())
            .spawn(move || {
                for client in listener.incoming().flatten() {
                    // A failure concerns this client alone.
                    let _ = serve(&client, &shared);
                }
            })
            .map_err(|error| io("answer at", &error))?;
        Ok(Control {
            board,
            path: path.to_owned(),
        })
    }

    /// Replaces the report that clients get.
    pub fn post(&self, report: Report) {
        lock(&self.board).report = report;
    }

    /// Takes the policy that was requested since the last call.
    pub fn asked(&self) -> Option<Replacement> {
        lock(&self.board).asked.take()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn lock(board: &Mutex<Board>) -> std::sync::MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(client: &UnixStream, board: &Mutex<Board>) -> io::Result<()> {
    let answer = match serde_json::from_str(&hear(client, LONGEST_REQUEST)?) {
        Ok(Request::Report) => Answer::Ok(Box::new(lock(board).report.clone())),
        Ok(Request::Policy { name }) => {
            let mut board = lock(board);
            board.asked = Some(name);
            // The policy takes effect in the next round; the answer already shows it.
            board.report.policy = Some(name);
            Answer::Ok(Box::new(board.report.clone()))
        }
        Err(error) => Answer::Error(format!("the request is not understood: {error}")),
    };
    say(client, &answer)
}

/// Reads a line.
fn hear(stream: &UnixStream, longest: u64) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(longest)).read_line(&mut line)?;
    Ok(line)
}

/// Writes a line.
fn say(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(what)?;
    text.push(b'\n');
    stream.write_all(&text)
}

/// Reads the report of the image cache at a path. `None`: no image cache listens there.
///
/// # Errors
/// It does not answer, or we have no permission to connect.
pub fn ask(path: &Path) -> Result<Option<Report>, Error> {
    call(path, &Request::Report)
}

/// Requests another policy of the image cache at a path. `None`: no image cache listens there.
///
/// # Errors
/// It does not answer, or we have no permission to connect.
pub fn switch(path: &Path, replacement: Replacement) -> Result<Option<Report>, Error> {
    call(path, &Request::Policy { name: replacement })
}

fn call(path: &Path, request: &Request) -> Result<Option<Report>, Error> {
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Error::io("ask at", path, &error))
        }
        Err(_) => return Ok(None),
    };
    let failed = |cause: String| {
        Error::failed(
            cause,
            "see whether justitia vm run is stuck, and start it again",
        )
    };
    let heard = say(&stream, request).and_then(|()| hear(&stream, u64::MAX));
    let line = heard.map_err(|error| {
        failed(format!(
            "the image cache at {} does not answer: {error}",
            path.display()
        ))
    })?;
    match serde_json::from_str(&line) {
        Ok(Answer::Ok(report)) => Ok(Some(*report)),
        Ok(Answer::Error(cause)) => Err(failed(cause)),
        Err(error) => Err(failed(format!(
            "the image cache's answer is not understood: {error}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_cache_answers_and_takes_orders_and_its_socket_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made/vm.sock");
        assert_eq!(ask(&path).unwrap(), None);
        let control = Control::listen(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        control.post(Report {
            free_bytes: Some(7),
            ..Report::default()
        });
        assert_eq!(ask(&path).unwrap().unwrap().free_bytes, Some(7));
        assert_eq!(control.asked(), None);
        let told = switch(&path, Replacement::Lfu).unwrap().unwrap();
        assert_eq!(told.policy, Some(Replacement::Lfu));
        assert_eq!(control.asked(), Some(Replacement::Lfu));
        assert_eq!(control.asked(), None);
        assert!(Control::listen(&path).is_err(), "two image caches");
        drop(control);
        assert!(!path.exists());
    }

    #[test]
    fn a_request_that_is_not_understood_is_refused_and_the_image_cache_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm.sock");
        let _control = Control::listen(&path).unwrap();
        for bad in [
            "nonsense\n",
            "{\"ask\":\"policy\",\"name\":\"arc\"}\n",
            "\n",
        ] {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(bad.as_bytes()).unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            assert!(line.contains("not understood"), "{line}");
        }
        assert!(ask(&path).unwrap().is_some());
    }
}
