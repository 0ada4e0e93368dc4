//! Writes knobs without blocking the caller.
//!
//! A write to `memory.high` or `memory.reclaim` reclaims in the kernel and may block for seconds.
//! So writes are done by a pool of threads, each with a deadline:
//!
//! - one stuck cgroup never delays another: a worker past its deadline is written off and
//!   replaced, up to [`WriterConfig::max_stuck`] of them;
//! - writes to one group happen in the order they were submitted, one at a time, until one times out: then
//!   newer ones go past it (raising `memory.high` frees a group that hangs in reclaim);
//! - a write that waited gives way to the value that somebody else wrote meanwhile ([`Writer::submit_over`]);
//! - a newer value for a knob supersedes one that still waits in the queue;
//! - every ticket has exactly one outcome, and a timed-out one a second, [`WriteResult::Late`], when the
//!   kernel returns.
//!
//! Left out: cancelling. A write in the kernel cannot be taken back.

mod queue;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::GroupId;

use crate::{Error, Group, Written};
use queue::{Job, Queue};

/// A worker needs no deep stack.
const STACK_BYTES: usize = 128 << 10;

/// Size and deadline of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterConfig {
    /// Threads that write.
    pub workers: usize,
    /// Threads that may hang in the kernel and be replaced before new work has to wait.
    pub max_stuck: usize,
    /// Time after which a write is reported as timed out.
    pub deadline: Duration,
}

impl Default for WriterConfig {
    fn default() -> Self {
        WriterConfig {
            workers: 2,
            max_stuck: 16,
            deadline: Duration::from_secs(2),
        }
    }
}

/// Names one submitted write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The ticket that the write got when it was submitted.
    pub ticket: Ticket,
    /// The group.
    pub group: GroupId,
    /// The knob.
    pub knob: Knob,
    /// The value.
    pub value: Value,
    /// The result.
    pub result: WriteResult,
}

/// Result of a write.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteResult {
    /// Written.
    Done,
    /// `memory.reclaim` reclaimed less than requested.
    Partial,
    /// Not written: the knob no longer held the value that the caller had read.
    Changed,
    /// Dropped before it began, usually for a newer value of the same knob.
    Superseded,
    /// Past its deadline. It may still happen: then a [`WriteResult::Late`] follows.
    TimedOut,
    /// A timed-out write returned after all.
    Late(Result<Written, Error>),
    /// Not written.
    Failed(Error),
}

/// Writes knobs in the background.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: WriterConfig,
    state: Mutex<Queue>,
    /// Signaled for new work, and at the end.
    work: Condvar,
    /// Signaled to the monitor when a write begins, and at the end.
    begun: Condvar,
    /// Signaled for each outcome.
    done: Condvar,
}

impl Writer {
    /// Starts the pool. It is an error if the system has no threads left.
    pub fn new(config: WriterConfig) -> io::Result<Writer> {
        let shared = Arc::new(Shared {
            config,
            state: Mutex::new(Queue::default()),
            work: Condvar::new(),
            begun: Condvar::new(),
            done: Condvar::new(),
        });
        // Dropped on failure, which ends the threads that were started.
        let writer = Writer { shared };
        for _ in 0..config.workers.max(1) {
            start("justitia-write", &writer.shared, work)?;
        }
        start("justitia-deadline", &writer.shared, watch_deadlines)?;
        Ok(writer)
    }

    /// Queues a write and returns at once.
    pub fn submit(&self, group: &Group, knob: Knob, value: Value) -> Ticket {
        self.queue(group, knob, None, value)
    }

    /// The same, but writes only if the knob still holds `present` when the write begins.
    pub fn submit_over(&self, group: &Group, knob: Knob, present: Value, value: Value) -> Ticket {
        self.queue(group, knob, Some(present), value)
    }

    fn queue(&self, group: &Group, knob: Knob, present: Option<Value>, value: Value) -> Ticket {
        let mut state = self.shared.lock();
        let ticket = state.submit(group.clone(), knob, present, value);
        drop(state);
        self.shared.work.notify_one();
        ticket
    }

    /// Takes the outcomes there are, oldest first, and returns at once.
    pub fn outcomes(&self, out: &mut Vec<Outcome>) {
        out.append(&mut self.shared.lock().outcomes);
    }

    /// Waits until nothing is queued or running, timed-out writes not counted. `false`: `patience` ran out.
    pub fn drain(&self, patience: Duration) -> bool {
        self.wait_until(patience, Queue::is_idle)
    }

    /// Waits until no write of these knobs is queued or running, timed-out writes included. `false`: `patience` ran
    /// out.
    pub fn settle(&self, patience: Duration, knobs: impl Fn(Knob) -> bool) -> bool {
        self.wait_until(patience, |state| state.is_settled(&knobs))
    }

    fn wait_until(&self, patience: Duration, reached: impl Fn(&Queue) -> bool) -> bool {
        let state = self.shared.lock();
        let (_state, timeout) = self
            .shared
            .done
            .wait_timeout_while(state, patience, |state| !reached(state))
            .unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out()
    }

    /// Drops the writes that have not begun. Each is reported as superseded.
    pub fn drop_waiting(&self) {
        self.shared.lock().drop_waiting();
    }
}

impl Drop for Writer {
    /// Queued writes are dropped, running ones end by themselves. Call [`Writer::drain`] first.
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
        self.shared.begun.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(name: &str, shared: &Arc<Shared>, run: fn(&Arc<Shared>)) -> io::Result<()> {
    let shared = Arc::clone(shared);
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || run(&shared))
        .map(drop)
}

/// A worker: takes jobs until the end, or until it was replaced while it hung.
fn work(shared: &Arc<Shared>) {
    loop {
        let Some(job) = next_job(shared) else { return };
        shared.begun.notify_one();
        let wrote = (!job.is_overtaken()).then(|| job.group.write_knob(job.knob, job.value));
        let replaced = shared.lock().finish(&job, wrote);
        // Another job of the same group may be free to go now.
        shared.work.notify_one();
        shared.done.notify_all();
        if replaced {
            return;
        }
    }
}

fn next_job(shared: &Shared) -> Option<Job> {
    let mut state = shared.lock();
    loop {
        if state.closed {
            return None;
        }
        if let Some(job) = state.begin(Instant::now()) {
            return Some(job);
        }
        state = shared
            .work
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// The monitor: reports writes past their deadline and replaces their workers. A thread that could
/// not be started is tried again a deadline later.
fn watch_deadlines(shared: &Arc<Shared>) {
    let mut state = shared.lock();
    let mut lacking = 0;
    while !state.closed {
        let expired = state.expire(Instant::now(), shared.config.deadline);
        let replace = state.replacements(expired + lacking, shared.config.max_stuck);
        lacking = 0;
        if expired > 0 || replace > 0 {
            drop(state);
            let started = (0..replace)
                .take_while(|_| start("justitia-write", shared, work).is_ok())
                .count();
            lacking = replace - started;
            shared.work.notify_all();
            shared.done.notify_all();
            state = shared.lock();
            state.replaced(started);
            if lacking == 0 {
                continue;
            }
        }
        let retry = (lacking > 0).then(|| Instant::now() + shared.config.deadline);
        let next = state.next_deadline(shared.config.deadline);
        state = match next.into_iter().chain(retry).min() {
            None => shared
                .begun
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
            Some(deadline) => {
                let wait = deadline.saturating_duration_since(Instant::now());
                let result = shared.begun.wait_timeout(state, wait);
                result.unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}
