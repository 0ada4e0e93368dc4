//! The read-only socket: every client gets each step, from the last one on, until it leaves.
//!
//! For `justitia-web`, which has no privilege: it is given a connection, and nothing that it sends is read. A
//! step's line (see [`justitia_report::feed`]) is made once for all clients, and only if there are any. Each
//! client has a thread at ordinary priority, and there are at most [`MOST_CLIENTS`]. A slow client misses
//! steps, and the loop never waits for it. A client that does not read for a minute is dropped.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use justitia_report::error::plain;
use justitia_report::feed::{Frame, Listen, Tls};
use justitia_report::own::Own;
use justitia_report::status::Report;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use super::ticks::{Client, MOST_CLIENTS, SLICE};
use super::{lock, Board, Posted, Server};
use crate::config::{Settings, TlsFiles};
use crate::error::Result;

/// Longest certificate or key that is read, bytes.
const LONGEST_PEM: u64 = 1 << 20;

/// The address of the page, and its TLS.
#[derive(Debug, Clone, Default)]
pub struct Place {
    listen: Option<Listen>,
    tls: Option<TlsFiles>,
}

impl From<&Settings> for Place {
    fn from(settings: &Settings) -> Place {
        Place {
            listen: settings.listen.clone(),
            tls: settings.tls.clone(),
        }
    }
}

/// The listening thread and those that it started. Dropping it ends them and removes the socket.
pub struct Feed {
    shared: Arc<Shared>,
    server: Option<Server>,
}

struct Shared {
    board: Arc<Board>,
    stop: Arc<AtomicBool>,
    place: Mutex<Place>,
    /// The line of this step.
    line: Mutex<Option<(u64, Arc<[u8]>)>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Feed {
    /// Feeds the steps of this board and the address of the page. It has no clients yet.
    pub fn new(board: Arc<Board>, place: Place) -> Feed {
        let shared = Shared {
            board,
            stop: Arc::default(),
            place: Mutex::new(place),
            line: Mutex::default(),
            threads: Mutex::default(),
        };
        Feed {
            shared: Arc::new(shared),
            server: None,
        }
    }

    /// Also serves clients that connect to this path.
    pub fn listen(&mut self, path: &Path) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let stop = Arc::clone(&self.shared.stop);
        self.server = Some(Server::start(path, "feed", stop, move |stream| {
            // A client that cannot be served sees its connection end.
            let _ = Shared::add(&shared, stream);
        })?);
        Ok(())
    }

    /// Also serves the other end of this connection.
    pub fn add(&self, stream: UnixStream) -> io::Result<()> {
        Shared::add(&self.shared, stream)
    }

    /// Sets the address of the page from the next step on.
    pub fn follow(&self, place: Place) {
        *lock(&self.shared.place) = place;
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.server = None;
        for thread in lock(&self.shared.threads).drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn add(this: &Arc<Shared>, stream: UnixStream) -> io::Result<()> {
        let mut threads = lock(&this.threads);
        threads.retain(|thread| !thread.is_finished());
        if threads.len() >= MOST_CLIENTS {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let shared = Arc::clone(this);
        let thread = thread::Builder::new()
            .name("feed".into())
            .stack_size(256 << 10)
            .spawn(move || {
                // The agent's own priority is for its loop.
                let _ = setpriority_process(Some(gettid()), 0);
                // The error of a client that went away concerns nobody.
                let _ = shared.tell(stream);
            })?;
        threads.push(thread);
        Ok(())
    }

    fn tell(&self, stream: UnixStream) -> io::Result<()> {
        stream.shutdown(Shutdown::Read)?;
        let mut client = Client::new(stream, &self.stop)?;
        let mut posted = self.board.now();
        loop {
            client.send(&self.line(&posted)?)?;
            let told = posted.tick.count;
            posted = loop {
                if self.stop.load(Ordering::Acquire) {
                    return Ok(());
                }
                if let Some(later) = self.board.later(told, SLICE) {
                    break later;
                }
            };
        }
    }

    /// The line of a step. The lock is held while it is made: other clients wait for the same line.
    fn line(&self, posted: &Posted) -> io::Result<Arc<[u8]>> {
        let mut line = lock(&self.line);
        match &*line {
            Some((count, text)) if *count == posted.tick.count => Ok(Arc::clone(text)),
            _ => {
                let Place { listen, tls } = lock(&self.place).clone();
                let frame = Frame {
                    listen,
                    tls: tls.as_ref().map(read),
                    own: Own::read(),
                    report: Report::new(&posted.setup, &posted.tick),
                };
                let mut text = serde_json::to_vec(&frame)?;
                text.push(b'\n');
                let text: Arc<[u8]> = text.into();
                *line = Some((posted.tick.count, Arc::clone(&text)));
                Ok(text)
            }
        }
    }
}

/// Reads the files at each step: a renewed file counts from the next step on.
fn read(files: &TlsFiles) -> Tls {
    let text = |path: &Path| {
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(LONGEST_PEM).read_to_string(&mut text))
            .map(|_| text)
            .map_err(|error| format!("cannot read {}: {}", path.display(), plain(&error)))
    };
    match (text(&files.certificate), text(&files.key)) {
        (Ok(certificate), Ok(key)) => Tls::Pem { certificate, key },
        (Err(cause), _) | (_, Err(cause)) => Tls::Unreadable(cause),
    }
}

#[cfg(test)]
mod tests;
