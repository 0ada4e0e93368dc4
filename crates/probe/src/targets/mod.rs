//! The targets that can be probed. A target connects when it is first measured, drops its connection after an
//! error, and reconnects the next time. Its clients have time limits of their own, somewhat longer than the
//! probe's timeout, so that a thread that was given up comes to an end.

mod driven;
pub mod exec;
pub mod http;
pub mod log;
pub mod mysql;
pub mod postgres;
pub mod prometheus;
pub mod redis;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::measure::Measurement;
use crate::Trouble;

pub trait Target: Send {
    /// Measures now. May block.
    fn measure(&mut self) -> Result<Measurement, Trouble>;

    /// True if the first measurement is only a base for counters.
    fn needs_two(&self) -> bool {
        false
    }
}

/// A server that is measured over a connection.
pub trait Server: Send {
    /// A connection, and what was counted over it.
    type Session: Send;

    fn connect(&self) -> Result<Self::Session, Trouble>;

    fn look(&self, session: &mut Self::Session) -> Result<Measurement, Trouble>;
}

/// The target of a server: keeps the connection until a measurement over it fails.
pub struct Connected<S: Server> {
    server: S,
    session: Option<S::Session>,
}

impl<S: Server> Connected<S> {
    pub fn new(server: S) -> Connected<S> {
        let session = None;
        Connected { server, session }
    }
}

impl<S: Server> Target for Connected<S> {
    fn measure(&mut self) -> Result<Measurement, Trouble> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.server.connect()?,
        };
        let seen = self.server.look(&mut session)?;
        self.session = Some(session);
        Ok(seen)
    }

    fn needs_two(&self) -> bool {
        true
    }
}

/// The default query. It reads nothing, so memory hardly matters to it.
pub(crate) const CANARY: &str = "SELECT 1";
/// The note on a measurement with this query.
pub(crate) const CANARY_NOTE: &str = "latency of SELECT 1 only";

/// Seconds on a monotonic clock.
pub(crate) fn now_seconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// The work that waits: what runs beyond `parallel`.
pub(crate) fn beyond(running: f64, parallel: f64) -> f64 {
    (running - parallel).max(0.0)
}

/// The time limit of a client whose probe gives up after `timeout`.
pub(crate) fn client_limit(timeout: Duration) -> Duration {
    timeout + Duration::from_secs(1)
}

/// Measures the time of something that may fail.
pub(crate) fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(T, f64), E> {
    let start = Instant::now();
    work().map(|result| (result, start.elapsed().as_secs_f64()))
}
