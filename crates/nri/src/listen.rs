//! The thread that holds the connection to the runtime.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use justitia_discover::Pods;
use justitia_report::status::Problem;
use prost::Message;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use crate::frame::{Frame, FrameError, Frames, PLUGIN, REQUEST, RESPONSE, RUNTIME};
use crate::message::{RegisterPlugin, Request, Response, RUNTIME_SERVICE};
use crate::told::{Told, MOST_CONTAINERS, MOST_PODS};

/// The default socket on which runtimes listen for plugins.
pub const SOCKET: &str = "/run/nri/nri.sock";

/// The plugin's name and index: it is called after the plugins that change containers.
const NAME: (&str, &str) = ("justitia", "90");
/// Time that a runtime may take to answer the registration, and to read what we send.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first pause between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two attempts to connect (backoff).
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Characters of a runtime's error message that are shown.
const MOST_WORDS: usize = 120;

/// Listens to a runtime on a separate thread until it is dropped.
#[derive(Debug)]
pub struct Listener {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pods: Arc<Pods>,
    problem: Option<Problem>,
    connection: Option<UnixStream>,
    /// A runtime has reported all that it has, or could not be reached.
    settled: bool,
    stop: bool,
}

#[derive(Debug, thiserror::Error)]
enum End {
    /// Nobody listens, or the runtime is gone.
    #[error("nobody listens there")]
    Absent,
    /// The socket is not root's.
    #[error("user {0} listens there")]
    Foreign(u32),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

impl Listener {
    /// Starts to listen at a socket. `required`: an absent runtime is a problem, too.
    pub fn start(socket: &Path, required: bool) -> io::Result<Listener> {
        let shared = Arc::new(Shared::default());
        let listener = Listener {
            shared: Arc::clone(&shared),
        };
        let socket = socket.to_owned();
        thread::Builder::new()
            .name("nri".into())
            .stack_size(256 << 10)
            .spawn(move || shared.listen(&socket, required))?;
        Ok(listener)
    }

    /// Waits until a runtime has reported all that it has, or it is clear that none does; at most for `most`.
    pub fn settle(&self, most: Duration) {
        let state = self.shared.lock();
        let changed = &self.shared.changed;
        drop(changed.wait_timeout_while(state, most, |state| !state.settled));
    }

    /// The pods that the runtime has reported so far; a different `Arc` whenever they changed. While no
    /// runtime is connected, they are those of the last one.
    pub fn pods(&self) -> Arc<Pods> {
        Arc::clone(&self.shared.lock().pods)
    }

    /// The reason why no pods are reported.
    pub fn problem(&self) -> Option<Problem> {
        self.shared.lock().problem.clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stop = true;
        if let Some(connection) = &state.connection {
            let _ = connection.shutdown(Shutdown::Both);
        }
        self.shared.changed.notify_all();
    }
}

impl Shared {
    /// Takes the lock. Nobody panics while holding it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, socket: &Path, required: bool) {
        let mut pause = PAUSE;
        loop {
            let mut told = Told::default();
            let end = self.hear(socket, &mut told).err().unwrap_or(End::Absent);
            if told.is_synchronized() {
                pause = PAUSE;
            }
            let tell = required || !matches!(end, End::Absent);
            let mut state = self.lock();
            state.connection = None;
            state.problem = tell.then(|| end.problem(socket));
            state.settled = true;
            self.changed.notify_all();
            let wait = self
                .changed
                .wait_timeout_while(state, pause, |state| !state.stop);
            let (state, _) = wait.unwrap_or_else(PoisonError::into_inner);
            if state.stop {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One connection, from start to end.
    fn hear(&self, socket: &Path, told: &mut Told) -> Result<(), End> {
        let mut stream = UnixStream::connect(socket)?;
        let peer = socket_peercred(&stream).map_err(io::Error::from)?.uid;
        if !peer.is_root() && peer != geteuid() {
            return Err(End::Foreign(peer.as_raw()));
        }
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let connection = stream.try_clone()?;
        {
            let mut state = self.lock();
            if state.stop {
                return Ok(());
            }
            state.connection = Some(connection);
        }
        stream.write_all(&registration().encode())?;
        let (mut frames, mut messages) = (Frames::default(), Vec::new());
        let mut buffer = vec![0; 64 << 10];
        loop {
            let length = stream.read(&mut buffer)?;
            if length == 0 || self.lock().stop {
                return Ok(());
            }
            frames.push(&buffer[..length], &mut messages)?;
            let mut changed = false;
            for message in messages.drain(..) {
                match (message.connection, message.kind) {
                    (RUNTIME, RESPONSE) => registered(&message)?,
                    (PLUGIN, REQUEST) => {
                        let request = Request::decode(message.data.as_slice())?;
                        let (response, news) = told.call(&request)?;
                        changed |= news;
                        let answer = Frame {
                            kind: RESPONSE,
                            data: response.encode_to_vec(),
                            ..message
                        };
                        stream.write_all(&answer.encode())?;
                    }
                    _ => {}
                }
            }
            if changed && told.is_synchronized() {
                // From now on, silence means that nothing happens.
                stream.set_read_timeout(None)?;
                self.tell(socket, told);
            }
        }
    }

    fn tell(&self, socket: &Path, told: &Told) {
        let pods = Arc::new(told.pods());
        let mut state = self.lock();
        state.pods = pods;
        state.settled = true;
        self.changed.notify_all();
        state.problem = told.is_full().then(|| Problem {
            group: None,
            cause: format!(
                "the runtime at {} has more than {MOST_PODS} pods or {MOST_CONTAINERS} containers; the others have the weight of their QoS class",
                socket.display()
            ),
            remedy: "give these pods weights in the configuration".to_owned(),
        });
    }
}

fn registration() -> Frame {
    let (name, index) = NAME;
    let plugin = RegisterPlugin {
        name: name.into(),
        index: index.into(),
    };
    let request = Request {
        service: RUNTIME_SERVICE.into(),
        method: "RegisterPlugin".into(),
        payload: plugin.encode_to_vec().into(),
        timeout_nano: PATIENCE.as_nanos() as i64,
    };
    Frame {
        connection: RUNTIME,
        stream: 1,
        kind: REQUEST,
        data: request.encode_to_vec(),
    }
}

fn registered(message: &Frame) -> Result<(), End> {
    let response = Response::decode(message.data.as_slice())?;
    match response.status {
        Some(status) if status.code != 0 => {
            let words = status.message.escape_debug().take(MOST_WORDS);
            let words: String = words.collect();
            Err(End::Other(format!("it refuses the plugin ({words})")))
        }
        _ => Ok(()),
    }
}

impl End {
    fn problem(&self, socket: &Path) -> Problem {
        let remedy = match self {
            End::Absent => "enable NRI in the runtime's configuration, or set nri = \"auto\"",
            End::Foreign(_) => "make root the owner of the socket, or set nri = \"off\"",
            End::Other(_) => "look at the runtime's log, or set nri = \"off\"",
        };
        Problem {
            group: None,
            cause: format!(
                "the runtime at {} does not report pods: {self}",
                socket.display()
            ),
            remedy: remedy.to_owned(),
        }
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        match error.kind() {
            ErrorKind::NotFound
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe => End::Absent,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => End::Other("it does not answer".into()),
            _ => End::Other(error.to_string()),
        }
    }
}

impl From<FrameError> for End {
    fn from(error: FrameError) -> End {
        End::Other(format!("it does not speak NRI ({error})"))
    }
}

impl From<prost::DecodeError> for End {
    fn from(_: prost::DecodeError) -> End {
        End::Other("it does not speak NRI (a message cannot be read)".into())
    }
}
