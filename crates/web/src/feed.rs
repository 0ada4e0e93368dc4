//! Reads the agent's frames, from its socket or from standard input that systemd or `justitia run` connected
//! to it.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use justitia_report::error::plain;
use justitia_report::feed::{Frame, SOCKET};
use justitia_report::status::Report;
use justitia_report::{Error, Result};

/// Longest line in bytes. A report of 10,000 groups has about 10 MB.
const LONGEST: u64 = 256 << 20;
/// Interval of attempts to connect while waiting for an agent.
const RETRY: Duration = Duration::from_millis(500);

/// The stream of frames, one per step.
#[derive(Debug)]
pub struct Feed {
    input: BufReader<File>,
    line: Vec<u8>,
}

impl Feed {
    /// Connects to the agent with this state directory; `wait`: also to one that starts later. Only root may
    /// connect to its socket.
    pub fn connect(state_dir: &Path, wait: bool) -> Result<Feed> {
        let path = state_dir.join(SOCKET);
        loop {
            match UnixStream::connect(&path) {
                Ok(stream) => return Ok(Feed::from(OwnedFd::from(stream))),
                Err(error) if wait && nobody_listens(&error) => thread::sleep(RETRY),
                Err(error) => return Err(unreachable_at(&path, &error)),
            }
        }
    }

    /// Reads frames from standard input.
    pub fn stdin() -> Result<Feed> {
        let stdin = io::stdin().as_fd().try_clone_to_owned();
        stdin.map(Feed::from).map_err(|error| broken(&error))
    }

    /// The frame of the next step; `None`: the agent has ended.
    pub fn read(&mut self) -> Result<Option<Frame<Report>>> {
        self.line.clear();
        let mut input = self.input.by_ref().take(LONGEST);
        match input.read_until(b'\n', &mut self.line) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(broken(&error)),
        }
        if !self.line.ends_with(b"\n") {
            return Ok(None);
        }
        let frame = serde_json::from_slice(&self.line).map_err(|error| {
            Error::failed(
                format!("the agent's report is not understood: {error}"),
                "use the agent's own version of justitia-web",
            )
        })?;
        Ok(Some(frame))
    }
}

impl From<OwnedFd> for Feed {
    fn from(input: OwnedFd) -> Feed {
        Feed {
            input: BufReader::with_capacity(64 << 10, File::from(input)),
            line: Vec::new(),
        }
    }
}

fn nobody_listens(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | ConnectionRefused)
}

fn unreachable_at(path: &Path, error: &io::Error) -> Error {
    if nobody_listens(error) {
        return Error::failed(
            format!("no agent listens at {}", path.display()),
            "start it: systemctl start justitia, or justitia run; or name its --state-dir",
        );
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::environment(
            format!("no permission to read {}", path.display()),
            "start it as root (it drops root itself), or: systemctl start justitia-web",
        ),
        _ => broken(error),
    }
}

fn broken(error: &io::Error) -> Error {
    Error::failed(
        format!("cannot read the agent's report: {}", plain(error)),
        "start justitia-web again",
    )
}
