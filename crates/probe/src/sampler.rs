//! Measures on a separate thread, so that a target that hangs blocks nobody else.
//!
//! One measurement is under way at a time. A measurement that takes longer than the timeout is given up. Its
//! thread is left to end by itself (every client has time limits of its own), and the next measurement gets a
//! new thread and a new connection, but never more than [`MOST_THREADS`] at a time. After a failure, the next
//! try waits 1, 2, 4, then 8 s (backoff).

use std::sync::mpsc::{sync_channel, Sender, SyncSender};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::measure::Measurement;
use crate::targets::Target;
use crate::Trouble;

/// Makes an unconnected target for a new thread.
pub type Open = Arc<dyn Fn() -> Box<dyn Target> + Send + Sync>;

/// Events that wake the loop.
#[derive(Debug)]
pub enum Event {
    /// A measurement came to an end.
    Answer {
        /// The thread that measured.
        worker: u64,
        result: Result<Measurement, Trouble>,
    },
    /// The probe has to end.
    Stop,
}

/// Threads that measure or hang, at most.
const MOST_THREADS: usize = 3;
/// Longest pause between two tries, as a power of two in seconds.
const MOST_BACKOFF: u32 = 3;
/// Clients need little stack.
const STACK_BYTES: usize = 1 << 20;

/// A thread that measures when asked to.
struct Worker {
    ask: SyncSender<()>,
    number: u64,
    asked: Option<Instant>,
}

/// Starts measurements, and counts the threads that hang.
pub(crate) struct Sampler {
    open: Open,
    events: Sender<Event>,
    worker: Option<Worker>,
    started: u64,
    /// Held by each thread: its strong count is the number of threads plus one.
    threads: Arc<()>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Sampler {
    pub(crate) fn new(open: Open, events: Sender<Event>) -> Sampler {
        Sampler {
            open,
            events,
            worker: None,
            started: 0,
            threads: Arc::new(()),
            failures: 0,
            not_before: None,
        }
    }

    /// Starts a measurement, unless one is under way, it is too early after a failure, or too many
    /// hang.
    pub(crate) fn ask(&mut self, now: Instant) {
        let early = self.not_before.is_some_and(|then| now < then);
        if early || self.under_way(now).is_some() {
            return;
        }
        if self.worker.is_none() && !self.start() {
            return;
        }
        if let Some(worker) = &mut self.worker {
            match worker.ask.try_send(()) {
                Ok(()) => worker.asked = Some(now),
                // The thread is gone; the next call starts a new one.
                Err(_) => self.worker = None,
            }
        }
    }

    fn start(&mut self) -> bool {
        if Arc::strong_count(&self.threads) > MOST_THREADS {
            return false;
        }
        self.started += 1;
        let number = self.started;
        let (ask, asked) = sync_channel::<()>(1);
        let (open, events) = (Arc::clone(&self.open), self.events.clone());
        let alive = Arc::clone(&self.threads);
        let thread = std::thread::Builder::new()
            .name("measure".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let mut target = open();
                while asked.recv().is_ok() {
                    let result = target.measure();
                    let answer = Event::Answer {
                        worker: number,
                        result,
                    };
                    if events.send(answer).is_err() {
                        break;
                    }
                }
                drop(alive);
            });
        self.worker = thread.is_ok().then_some(Worker {
            ask,
            number,
            asked: None,
        });
        thread.is_ok()
    }

    /// Time since the measurement under way began; `None`: none is under way.
    pub(crate) fn under_way(&self, now: Instant) -> Option<Duration> {
        let asked = self.worker.as_ref()?.asked?;
        Some(now.saturating_duration_since(asked))
    }

    /// True if this answer belongs to the measurement under way, which then is over. The answer of a thread
    /// that was given up belongs to none.
    pub(crate) fn answered(&mut self, number: u64) -> bool {
        match &mut self.worker {
            Some(worker) if worker.number == number => worker.asked.take().is_some(),
            _ => false,
        }
    }

    /// The measurement worked.
    pub(crate) fn worked(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    /// The measurement failed: backs off.
    pub(crate) fn failed(&mut self, now: Instant) {
        let pause = Duration::from_secs(1 << self.failures.min(MOST_BACKOFF));
        self.failures = self.failures.saturating_add(1);
        // A little less than whole periods, so that the try falls into the period in which it is due.
        self.not_before = Some(now + pause.mul_f64(0.9));
    }

    /// Gives up a measurement that hangs.
    pub(crate) fn give_up(&mut self, now: Instant) {
        self.worker = None;
        self.failed(now);
    }
}
