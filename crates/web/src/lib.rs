//! Serves metrics and a live page over HTTP, from a separate process without any privilege.
//!
//! ```text
//! the agent's status.sock -> Feed -> Latest -> web thread -> / /metrics /api/status /api/history /healthz
//!                                                  |
//!                                                  +-- history: the last ten minutes
//! ```
//!
//! [`justitia_report::describe`] is the one description of all fields: the metrics,
//! `justitia status --fields` and `docs/metrics.md` come from it.
//!
//! Invariants: the agent never waits for a client, and reads nothing from this process. Clients can change
//! nothing. Memory is bounded whatever clients do and however many groups there are. The page loads nothing
//! from elsewhere, and no other site can read it. Authentication and compression are left out on purpose: a
//! proxy adds them, preferably in front of a Unix socket.

mod connection;
pub mod exposition;
mod feed;
mod history;
// Public for the fuzz target.
#[doc(hidden)]
pub mod http;
mod latest;
mod listener;
mod server;
mod site;
mod wire;

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use justitia_report::error::plain;
use justitia_report::feed::{Frame, Listen, Tls};
use justitia_report::status::Report;
use justitia_report::Log;
use rustls::ServerConfig;

pub use feed::Feed;
pub use latest::Latest;
pub use listener::Listener;
pub use server::Server;

/// Interval of attempts to bind after a failure.
const RETRY: Duration = Duration::from_secs(10);

/// The source of the page's address.
#[derive(Debug, Clone)]
pub enum Place {
    /// The agent's frames; the address may change with each.
    AsTold,
    /// The command line; `None`: the page is off.
    At(Option<Listen>),
}

impl Place {
    /// The address, if the agent's frame has `told`; `None`: the page is off.
    pub fn or(&self, told: Option<Listen>) -> Option<Listen> {
        match self {
            Place::AsTold => told,
            Place::At(listen) => listen.clone(),
        }
    }
}

/// The page at the address from the agent or the command line.
#[derive(Debug)]
pub struct Page {
    latest: Arc<Latest>,
    place: Place,
    listen: Option<Listen>,
    secrecy: Secrecy,
    /// Bound, but not served yet.
    bound: Option<Listener>,
    server: Option<Server>,
    retry_at: Instant,
    log: Log,
}

/// The TLS settings from the agent.
#[derive(Debug, Default)]
struct Secrecy {
    told: Option<Tls>,
    /// The last valid configuration; a later invalid one does not replace it.
    config: Option<Arc<ServerConfig>>,
}

impl Page {
    /// Binds the address without answering yet. A failure is logged and tried again later.
    pub fn bind(mut first: Frame<Report>, place: Place, log: Log) -> Page {
        let listen = place.or(first.listen.take());
        let tls = first.tls.take();
        let mut page = Page {
            latest: Arc::new(Latest::new(first)),
            place,
            listen,
            secrecy: Secrecy::default(),
            bound: None,
            server: None,
            retry_at: Instant::now(),
            log,
        };
        page.hear(tls);
        page.take_port();
        page
    }

    /// Begins to answer.
    pub fn serve(&mut self) {
        let Some(listener) = self.bound.take() else {
            return;
        };
        let tls = self.secrecy.config.clone();
        let tls = tls.filter(|_| self.needs_tls(listener.at()));
        let scheme = if tls.is_some() { "https" } else { "http" };
        match Server::start(listener, tls, Arc::clone(&self.latest)) {
            Ok(server) => {
                let place = match server.at() {
                    Listen::Tcp(address) => format!("{scheme}://{}/", http::reachable(*address)),
                    at @ Listen::Unix(_) => at.to_string(),
                };
                self.log
                    .info(format_args!("live page and metrics at {place}"));
                self.server = Some(server);
            }
            Err(error) => self.log.warn_once(format_args!(
                "no live page and no metrics: cannot serve: {}; stop other programs, or raise the limit of threads",
                plain(&error)
            )),
        }
    }

    /// Publishes a step, and moves to a new address if the agent names one.
    pub fn follow(&mut self, mut frame: Frame<Report>) {
        let listen = self.place.or(frame.listen.take());
        let other = self.hear(frame.tls.take());
        self.latest.post(frame);
        let moves = other || listen != self.listen;
        if moves || (self.server.is_none() && Instant::now() >= self.retry_at) {
            self.listen = listen;
            // Release the old port before binding the new one: they may be the same.
            self.server = None;
            self.take_port();
            self.serve();
        }
    }

    /// The address that it answers at; `None`: it does not answer.
    pub fn at(&self) -> Option<&Listen> {
        self.server.as_ref().map(Server::at)
    }

    /// Takes the agent's TLS settings. Returns whether the server must restart for them.
    fn hear(&mut self, told: Option<Tls>) -> bool {
        let secrecy = &mut self.secrecy;
        if told == secrecy.told {
            return false;
        }
        let began = told.is_some() != secrecy.told.is_some();
        secrecy.told = told;
        let Some(told) = &secrecy.told else {
            secrecy.config = None;
            return began;
        };
        match wire::configuration(told) {
            Ok(config) => {
                let first = secrecy.config.replace(Arc::clone(&config)).is_none();
                match &self.server {
                    Some(server) if !began => server.renew(config),
                    _ => {}
                }
                began || first
            }
            Err(cause) => {
                let stays = if secrecy.config.is_some() {
                    "the previous certificate stays in use"
                } else {
                    "no live page and no metrics"
                };
                self.log.warn_once(format_args!(
                    "TLS of the live page: {cause}; {stays}; correct the files of the key tls, which are read each second"
                ));
                began
            }
        }
    }

    /// True if an address needs TLS. A Unix socket never leaves the machine.
    fn needs_tls(&self, listen: &Listen) -> bool {
        matches!(listen, Listen::Tcp(_)) && self.secrecy.told.is_some()
    }

    fn take_port(&mut self) {
        self.retry_at = Instant::now() + RETRY;
        let Some(listen) = &self.listen else { return };
        if self.needs_tls(listen) && self.secrecy.config.is_none() {
            return;
        }
        match Listener::bind(listen) {
            Ok(listener) => self.bound = Some(listener),
            Err(error) => self.log.warn_once(format_args!(
                "no live page and no metrics: cannot listen at {listen}: {}; {}",
                plain(&error),
                remedy(listen, &error)
            )),
        }
    }
}

fn remedy(listen: &Listen, error: &Error) -> &'static str {
    match (listen, error.kind()) {
        (_, ErrorKind::AddrInUse) => "stop what listens there, or choose another port with listen = \"127.0.0.1:PORT\" or --listen",
        (Listen::Unix(_), ErrorKind::NotFound) => "create the directory, or name one that exists; under systemd see RuntimeDirectory",
        (Listen::Unix(_), ErrorKind::PermissionDenied) => "choose a directory that justitia-web may write to; under systemd see RuntimeDirectory",
        (_, ErrorKind::AddrNotAvailable) => "choose an address of this machine with listen = \"ADDRESS:PORT\" or --listen",
        (_, ErrorKind::PermissionDenied) => "choose a port above 1023 with listen = \"127.0.0.1:PORT\" or --listen",
        _ => "choose another address with listen or --listen, or off; under systemd see RestrictAddressFamilies",
    }
}

#[cfg(test)]
mod tests;
