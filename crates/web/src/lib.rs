//! Metrics, and a live page, over HTTP: a process of its own without any privilege.
//!
//! ```text
//! the agent's status.sock -> Feed -> Latest -> web thread -> / /metrics /api/status /api/history /healthz
//!                                                  |
//!                                                  +-- history: the last ten minutes
//! ```
//!
//! [`justitia_report::describe`] is the one description of everything that is told: the metrics, `justitia
//! status --fields` and `docs/metrics.md` come from it.
//!
//! Invariants: the agent never waits for anybody who looks, and reads nothing of this process; nothing can be
//! changed here; memory is bounded whatever clients do and however many groups there are; the page loads nothing
//! from elsewhere and no other site can read it. Left out on purpose: TLS, authentication and
//! compression; who needs them puts a proxy in front.

mod connection;
pub mod exposition;
mod feed;
mod history;
// Public for the fuzz target.
#[doc(hidden)]
pub mod http;
mod latest;
mod server;
mod site;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use justitia_report::error::plain;
use justitia_report::feed::Frame;
use justitia_report::status::Report;
use justitia_report::Log;

pub use feed::Feed;
pub use latest::{Latest, Told};
pub use server::Server;

/// How often a port that could not be had is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Who says where the page is.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// The agent, step by step.
    AsTold,
    /// The command line; `None`: nowhere.
    At(Option<SocketAddr>),
}

impl Place {
    fn or(self, told: Option<SocketAddr>) -> Option<SocketAddr> {
        match self {
            Place::AsTold => told,
            Place::At(listen) => listen,
        }
    }
}

/// The page, where the agent or the command line says it is.
#[derive(Debug)]
pub struct Page {
    latest: Arc<Latest>,
    place: Place,
    listen: Option<SocketAddr>,
    /// Bound, and not served yet.
    bound: Option<TcpListener>,
    server: Option<Server>,
    retry_at: Instant,
    log: Log,
}

impl Page {
    /// Takes the port, and answers nobody yet. What stands in the way is told and no reason to stop.
    pub fn bind(first: Frame<Report>, place: Place, log: Log) -> Page {
        let listen = place.or(first.listen);
        let mut page = Page {
            latest: Arc::new(Latest::new(told(first))),
            place,
            listen,
            bound: None,
            server: None,
            retry_at: Instant::now(),
            log,
        };
        page.take_port();
        page
    }

    /// Answers from now on.
    pub fn serve(&mut self) {
        let Some(listener) = self.bound.take() else {
            return;
        };
        match Server::start(listener, Arc::clone(&self.latest)) {
            Ok(server) => {
                let address = http::reachable(server.address());
                self.log
                    .info(format_args!("live page and metrics at http://{address}/"));
                self.server = Some(server);
            }
            Err(error) => self.log.warn_once(format_args!(
                "no live page and no metrics: cannot serve: {}; stop other programs, or raise the limit of threads",
                plain(&error)
            )),
        }
    }

    /// Tells this step, and moves where the agent says.
    pub fn follow(&mut self, frame: Frame<Report>) {
        let listen = self.place.or(frame.listen);
        self.latest.post(told(frame));
        let moves = listen != self.listen;
        if moves || (self.server.is_none() && Instant::now() >= self.retry_at) {
            self.listen = listen;
            // The old port is free before the new one is taken: they may be the same.
            self.server = None;
            self.take_port();
            self.serve();
        }
    }

    /// Where it answers; `None`: nowhere.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    fn take_port(&mut self) {
        self.retry_at = Instant::now() + RETRY;
        let Some(listen) = self.listen else { return };
        match TcpListener::bind(listen) {
            Ok(listener) => self.bound = Some(listener),
            Err(error) => {
                let remedy = match error.kind() {
                    ErrorKind::AddrInUse => "stop what listens there, or choose another port with listen = \"127.0.0.1:PORT\" or --listen",
                    ErrorKind::AddrNotAvailable => "choose an address of this machine with listen = \"ADDRESS:PORT\" or --listen",
                    ErrorKind::PermissionDenied => "choose a port above 1023 with listen = \"127.0.0.1:PORT\" or --listen",
                    _ => "choose another address with listen or --listen, or off; under systemd see RestrictAddressFamilies",
                };
                self.log.warn_once(format_args!(
                    "no live page and no metrics: cannot listen at {listen}: {}; {remedy}",
                    plain(&error)
                ));
            }
        }
    }
}

fn told(frame: Frame<Report>) -> Told {
    Told {
        own: frame.own,
        report: frame.report,
    }
}

#[cfg(test)]
mod testing;

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
