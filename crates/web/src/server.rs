//! The web thread: one poll loop over all connections and timers.
//!
//! Any local user may connect, so everything is bounded:
//!
//! - At most [`CONNECTIONS`] clients at once. Others wait in the kernel's queue, and a client that has not
//!   sent its request within [`MUTE`] gives up its place to them.
//! - At most [`HEAVY`] answers with their own content being sent. Others wait for their turn.
//! - [`ARRIVALS`] clients and [`CONTENTS`] such answers a second. These answers take at most [`CPU`] of a
//!   CPU's time.
//! - A deadline on each stage of a connection.
//!
//! With TLS, clients are accepted only while that CPU budget lasts, because handshakes use it too.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags};
use rustix::time::{clock_gettime, ClockId, Timespec};
use rustls::ServerConfig;

use justitia_report::feed::Listen;

use super::connection::Connection;
use super::http::{Names, Status};
use super::site::Site;
use super::wire::Wire;
use crate::latest::Latest;
use crate::listener::Listener;

/// Clients served at once.
const CONNECTIONS: usize = 32;
/// Answers sent at once that hold a report or a history, about 1 MB each at 1,000 groups.
const HEAVY: usize = 3;
/// Clients per second, and burst after a pause.
const ARRIVALS: (f64, f64) = (200.0, 200.0);
/// Answers with their own content per second, and burst after a pause. A page sends two requests a second.
const CONTENTS: (f64, f64) = (20.0, 40.0);
/// CPU seconds for such answers per second, and burst after a pause.
const CPU: (f64, f64) = (0.25, 2.0);
/// A client that is silent for this long gives up its place if all places are taken.
const MUTE: Duration = Duration::from_millis(250);
/// Pause after a failed accept, most likely for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// The web thread. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    at: Listen,
    tls: Arc<Secure>,
    /// Closing this end wakes and stops the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// The TLS configuration for new clients; `None`: plain HTTP.
type Secure = Mutex<Option<Arc<ServerConfig>>>;

impl Server {
    /// Starts the thread. It answers from the latest report, with TLS if there is a configuration.
    pub fn start(
        listener: Listener,
        tls: Option<Arc<ServerConfig>>,
        latest: Arc<Latest>,
    ) -> io::Result<Server> {
        let at = listener.at().clone();
        let (stop, stopped) = UnixStream::pair()?;
        let names = match &at {
            Listen::Tcp(address) if tls.is_none() => {
                let uname = rustix::system::uname();
                Names::new(*address, uname.nodename().to_str().ok().map(str::to_owned))
            }
            _ => Names::any(),
        };
        let tls = Arc::new(Mutex::new(tls));
        let mut web = Loop {
            listener,
            stopped,
            names,
            tls: Arc::clone(&tls),
            site: Site::new(latest, Instant::now()),
            connections: Vec::new(),
            deaf_until: None,
            arrivals: Budget::new(ARRIVALS),
            contents: Budget::new(CONTENTS),
            cpu: Budget::new(CPU),
            next_content: None,
        };
        let thread = thread::Builder::new()
            .name("web".into())
            .stack_size(256 << 10)
            .spawn(move || while web.turn() {})?;
        Ok(Server {
            at,
            tls,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub fn at(&self) -> &Listen {
        &self.at
    }

    /// Replaces the TLS configuration for new clients. A server without TLS stays without it.
    pub(crate) fn renew(&self, tls: Arc<ServerConfig>) {
        let mut ours = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        *ours = ours.is_some().then_some(tls);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Loop {
    listener: Listener,
    tls: Arc<Secure>,
    stopped: UnixStream,
    names: Names,
    site: Site,
    connections: Vec<Connection>,
    deaf_until: Option<Instant>,
    arrivals: Budget,
    contents: Budget,
    cpu: Budget,
    /// The time when a waiting request may be answered.
    next_content: Option<Instant>,
}

/// A token bucket: `per_s` tokens per second, at most `most` of them.
#[derive(Debug)]
struct Budget {
    per_s: f64,
    most: f64,
    left: f64,
    at: Instant,
}

impl Budget {
    fn new((per_s, most): (f64, f64)) -> Budget {
        Budget {
            per_s,
            most,
            left: most,
            at: Instant::now(),
        }
    }

    /// Takes a token. The error is the time when one is available.
    fn take(&mut self, now: Instant) -> Result<(), Instant> {
        self.has(1.0, now)?;
        self.spend(1.0);
        Ok(())
    }

    /// `Ok` if `wanted` tokens are available. The error is the time when they will be.
    fn has(&mut self, wanted: f64, now: Instant) -> Result<(), Instant> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * self.per_s).min(self.most);
        self.at = now;
        if self.left < wanted {
            return Err(now + Duration::from_secs_f64((wanted - self.left) / self.per_s));
        }
        Ok(())
    }

    /// Takes tokens that were used already. The balance may become negative, but a client that is gone does not cost
    /// the others more than one full budget.
    fn spend(&mut self, used: f64) {
        self.left = (self.left - used).max(-self.most);
    }
}

/// CPU time of this thread, seconds.
fn cpu_s() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

impl Loop {
    /// Polls once and handles the events; `false`: the server was stopped.
    fn turn(&mut self) -> bool {
        let (now, used) = (Instant::now(), cpu_s());
        self.site.look(now);
        self.deaf_until = self.deaf_until.filter(|until| *until > now);
        self.serve(now);
        self.connections.retain(|one| !one.is_over(now));
        let room_at = self.room_at(now);
        let listens = room_at.is_some_and(|at| at <= now) && self.deaf_until.is_none();
        let mut fds = Vec::with_capacity(2 + self.connections.len());
        fds.push(PollFd::new(&self.stopped, PollFlags::IN));
        let interest = if listens {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        fds.push(PollFd::new(&self.listener, interest));
        for one in &self.connections {
            fds.push(PollFd::new(&one.wire, one.interest()));
        }
        let room_at = room_at.filter(|at| *at > now);
        match poll(&mut fds, Some(&self.patience(now, room_at))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // Not expected from poll; must not become a busy loop.
            Err(_) => thread::sleep(PAUSE),
        }
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        if !ready[0].is_empty() {
            return false;
        }
        let now = Instant::now();
        for (one, ready) in self.connections.iter_mut().zip(&ready[2..]) {
            one.proceed(*ready, &self.names, now);
        }
        if ready[1].contains(PollFlags::IN) {
            self.accept(now);
        }
        self.cpu.spend(cpu_s() - used);
        true
    }

    /// The time from which on there is a place for a waiting client.
    fn room_at(&self, now: Instant) -> Option<Instant> {
        if self.connections.len() < CONNECTIONS {
            return Some(now);
        }
        let mute = self.connections.iter().filter_map(Connection::asking_since);
        mute.min().map(|since| since + MUTE)
    }

    fn accept(&mut self, now: Instant) {
        self.deaf_until = None;
        if self.connections.len() >= CONNECTIONS {
            let mute = (0..self.connections.len()).filter_map(|at| {
                let since = self.connections[at].asking_since()?;
                (since + MUTE <= now).then_some((since, at))
            });
            if let Some((_, at)) = mute.min() {
                self.connections.remove(at);
            }
        }
        let tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        let tls = tls.clone();
        while self.connections.len() < CONNECTIONS {
            let time = match tls {
                Some(_) => self.cpu.has(0.0, now),
                None => Ok(()),
            };
            if let Err(until) = time.and_then(|()| self.arrivals.take(now)) {
                return self.deaf_until = Some(until);
            }
            match self.listener.accept() {
                Ok(socket) => {
                    let wire = Wire::new(socket, tls.clone()).ok();
                    let connection = wire.map(|wire| Connection::new(wire, now));
                    self.connections.extend(connection);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client left before the accept.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => return self.deaf_until = Some(now + PAUSE),
            }
        }
    }

    /// Answers the requests whose turn it is.
    fn serve(&mut self, now: Instant) {
        let mut heavy = self.connections.iter().filter(|one| one.is_heavy()).count();
        let mut next = None;
        for one in &mut self.connections {
            let Some(request) = one.asked() else { continue };
            let is_heavy = Site::is_heavy(request);
            let mut turn = || {
                let turn = self.cpu.has(0.0, now);
                let turn = turn.and_then(|()| self.contents.take(now));
                turn.map_err(|at| next = Some(at)).is_ok()
            };
            if is_heavy && (heavy >= HEAVY || !turn()) {
                if now >= one.deadline {
                    one.refuse(Status::TooMany, now);
                }
                continue;
            }
            let answer = self.site.answer(request, now);
            let head_only = request.head_only;
            one.answer(answer, head_only, is_heavy, now);
            heavy += usize::from(one.is_heavy());
        }
        self.next_content = next;
    }

    /// Time until the next timer expires.
    fn patience(&self, now: Instant, room_at: Option<Instant>) -> Timespec {
        let deadlines = self.connections.iter().map(|one| one.deadline);
        let next = deadlines
            .chain(self.deaf_until)
            .chain(self.next_content)
            .chain(room_at)
            .fold(self.site.due(), Instant::min);
        let wait = next.saturating_duration_since(now);
        Timespec::try_from(wait).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        })
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod tls_tests;
