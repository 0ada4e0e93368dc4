//! The web thread: one loop over all connections and the clock.
//!
//! Any local user may ask. Bounded in every way. At most [`CONNECTIONS`] clients at once (others wait in the
//! kernel's queue; a client that has not said within [`MUTE`] what it wants makes room for them), at most
//! [`HEAVY`] answers with content of their own being sent (others wait their turn), [`ARRIVALS`] clients and
//! [`CONTENTS`] such answers a second, which take no more than [`CPU`] of a processor's time, and a deadline on
//! everything a client does. With TLS, clients are taken only while there is time of the processor left, which
//! handshakes use too.

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
use super::http::Names;
use super::site::Site;
use super::wire::Wire;
use crate::latest::Latest;
use crate::listener::Listener;

/// Clients served at once.
const CONNECTIONS: usize = 32;
/// Answers being sent at once that hold a report or a history, about 1 MB each at 1,000 groups.
const HEAVY: usize = 3;
/// Clients a second, and at once after a pause.
const ARRIVALS: (f64, f64) = (200.0, 200.0);
/// Answers with content of their own a second, and at once after a pause. A page asks twice a second.
const CONTENTS: (f64, f64) = (20.0, 40.0);
/// Seconds of a processor that a second gives to such answers, and at most at once.
const CPU: (f64, f64) = (0.25, 2.0);
/// Who is silent for so long gives up its place where there is no other.
const MUTE: Duration = Duration::from_millis(250);
/// After an accept that failed, out of descriptors most likely.
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

/// How TLS is spoken to who comes next; `None`: it is not.
type Secure = Mutex<Option<Arc<ServerConfig>>>;

impl Server {
    /// Answers who comes here, from what was told last, by TLS if there is a configuration for it.
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

    /// Where it listens.
    pub fn at(&self) -> &Listen {
        &self.at
    }

    /// Speaks TLS like that to who comes from now on, if it speaks TLS at all.
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
    /// When somebody who waits may be answered.
    next_content: Option<Instant>,
}

/// So many a second, and some more after a pause.
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

    /// Takes one, or says when there is one.
    fn take(&mut self, now: Instant) -> Result<(), Instant> {
        self.has(1.0, now)?;
        self.spend(1.0);
        Ok(())
    }

    /// Whether there is so much, or when.
    fn has(&mut self, wanted: f64, now: Instant) -> Result<(), Instant> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * self.per_s).min(self.most);
        self.at = now;
        if self.left < wanted {
            return Err(now + Duration::from_secs_f64((wanted - self.left) / self.per_s));
        }
        Ok(())
    }

    /// What was used, more than there is perhaps.
    fn spend(&mut self, used: f64) {
        self.left -= used;
    }
}

/// Processor time of this thread, seconds.
fn cpu_s() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

impl Loop {
    /// Waits for something to do and does it; false when told to stop.
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
            fds.push(PollFd::new(one.wire(), one.interest()));
        }
        let room_at = room_at.filter(|at| *at > now);
        match poll(&mut fds, Some(&self.patience(now, room_at))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // Not expected of poll; must not become a busy loop.
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

    /// From when on there is room for somebody who waits.
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
                // The client was gone before we came.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => return self.deaf_until = Some(now + PAUSE),
            }
        }
    }

    /// Answers requests whose turn it is.
    fn serve(&mut self, now: Instant) {
        let mut heavy = self.connections.iter().filter(|one| one.is_heavy()).count();
        let mut next = None;
        for one in &mut self.connections {
            let Some(request) = one.asked() else { continue };
            let is_heavy = Site::is_heavy(request);
            let waits = is_heavy
                && (heavy >= HEAVY
                    || self
                        .cpu
                        .has(0.0, now)
                        .and_then(|()| self.contents.take(now))
                        .map_err(|at| next = Some(at))
                        .is_err());
            if waits {
                if now >= one.deadline() {
                    one.busy(now);
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

    /// Until the next thing that happens by itself.
    fn patience(&self, now: Instant, room_at: Option<Instant>) -> Timespec {
        let deadlines = self.connections.iter().map(Connection::deadline);
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
