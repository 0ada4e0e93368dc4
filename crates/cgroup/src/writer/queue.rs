//! The writer's bookkeeping, without threads or clock: which job may begin, which is superseded,
//! which is late.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::GroupId;

use super::{Outcome, Ticket, WriteResult};
use crate::{Error, Group, Written};

/// One write.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) ticket: Ticket,
    pub(super) group: Group,
    pub(super) knob: Knob,
    /// The value that the knob must hold; `None`: any.
    pub(super) present: Option<Value>,
    pub(super) value: Value,
}

impl Job {
    /// True if somebody else wrote the knob since the caller read it. The kernel has no compare-and-set: a write
    /// between this look and ours is still lost.
    pub(super) fn is_overtaken(&self) -> bool {
        self.present.is_some_and(|present| {
            let now = self.group.read_knob(self.knob).ok().flatten();
            now.is_some_and(|now| now != present)
        })
    }
}

/// A write in the kernel.
#[derive(Debug)]
struct Running {
    job: Job,
    began: Instant,
    /// Reported as timed out; its group no longer waits for it.
    timed_out: bool,
    /// Its worker was replaced and must end when it comes back.
    replaced: bool,
}

/// Writes of one group that may hang in the kernel at once: the one that hangs, and the one that
/// may free it. More would only use up the pool.
const IN_KERNEL: usize = 2;

/// A group's waiting jobs. Never empty.
#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// It is among the ready groups.
    ready: bool,
}

/// State that the pool shares.
#[derive(Debug, Default)]
pub(super) struct Queue {
    last_ticket: u64,
    groups: HashMap<GroupId, Waiting>,
    /// Groups whose next job may begin, in the order they became so.
    ready: VecDeque<GroupId>,
    running: BTreeMap<Ticket, Running>,
    /// Oldest first.
    pub(super) outcomes: Vec<Outcome>,
    pub(super) closed: bool,
}

impl Queue {
    /// Queues a job. It takes the place of a waiting job for the same knob.
    pub(super) fn submit(
        &mut self,
        group: Group,
        knob: Knob,
        present: Option<Value>,
        value: Value,
    ) -> Ticket {
        self.last_ticket += 1;
        let job = Job {
            ticket: Ticket(self.last_ticket),
            group,
            knob,
            present,
            value,
        };
        let id = job.group.id();
        let waiting = self.groups.entry(id).or_default();
        if let Some(old) = waiting.jobs.iter_mut().find(|old| old.knob == knob) {
            let old = std::mem::replace(old, job);
            self.report(&old, WriteResult::Superseded);
        } else {
            waiting.jobs.push_back(job);
            self.make_ready(id);
        }
        Ticket(self.last_ticket)
    }

    /// The next job that may begin.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Job> {
        let id = self.ready.pop_front()?;
        let waiting = self.groups.get_mut(&id)?;
        waiting.ready = false;
        let job = waiting.jobs.pop_front()?;
        if waiting.jobs.is_empty() {
            self.groups.remove(&id);
        }
        self.running.insert(
            job.ticket,
            Running {
                job: job.clone(),
                began: now,
                timed_out: false,
                replaced: false,
            },
        );
        Some(job)
    }

    /// A worker returned from the kernel; `None`: the job was overtaken. `true`: the worker was replaced meanwhile and
    /// has to end.
    pub(super) fn finish(&mut self, job: &Job, wrote: Option<Result<Written, Error>>) -> bool {
        let Some(running) = self.running.remove(&job.ticket) else {
            return false;
        };
        let result = match wrote {
            None => WriteResult::Changed,
            Some(late) if running.timed_out => WriteResult::Late(late),
            Some(Ok(Written::Done)) => WriteResult::Done,
            Some(Ok(Written::Partial)) => WriteResult::Partial,
            Some(Err(error)) => WriteResult::Failed(error),
        };
        self.report(job, result);
        self.make_ready(job.group.id());
        if running.replaced {
            // The worker stays in place of one that hangs and was not replaced, because too many hung.
            let next = self.hanging().next();
            if let Some(other) = next.and_then(|ticket| self.running.get_mut(&ticket)) {
                other.replaced = true;
                return false;
            }
        }
        running.replaced
    }

    /// Drops the jobs that have not begun.
    pub(super) fn drop_waiting(&mut self) {
        self.ready.clear();
        for waiting in std::mem::take(&mut self.groups).into_values() {
            for job in waiting.jobs {
                self.report(&job, WriteResult::Superseded);
            }
        }
    }

    /// Reports the writes past their deadline, lets their groups' next writes begin, and returns how many
    /// expired.
    pub(super) fn expire(&mut self, now: Instant, deadline: Duration) -> usize {
        let expired: Vec<Job> = self
            .running
            .values_mut()
            .filter(|running| !running.timed_out && now - running.began >= deadline)
            .map(|running| {
                running.timed_out = true;
                running.job.clone()
            })
            .collect();
        for job in &expired {
            self.report(job, WriteResult::TimedOut);
            self.make_ready(job.group.id());
        }
        expired.len()
    }

    /// Number of new workers to start in place of workers that hang, with at most `max_stuck` replaced at any
    /// time.
    pub(super) fn replacements(&self, expired: usize, max_stuck: usize) -> usize {
        let stuck = self.running.values().filter(|r| r.replaced).count();
        let allowed = max_stuck.saturating_sub(stuck).min(expired);
        self.hanging().count().min(allowed)
    }

    /// Marks the workers whose replacements were started. A worker that returned meanwhile stays, too.
    pub(super) fn replaced(&mut self, started: usize) {
        let hanging: Vec<Ticket> = self.hanging().take(started).collect();
        for ticket in hanging {
            if let Some(running) = self.running.get_mut(&ticket) {
                running.replaced = true;
            }
        }
    }

    fn hanging(&self) -> impl Iterator<Item = Ticket> + '_ {
        let running = self.running.iter();
        let hanging = running.filter(|(_, running)| running.timed_out && !running.replaced);
        hanging.map(|(&ticket, _)| ticket)
    }

    /// Earliest deadline of a running write; `None`: there is none.
    pub(super) fn next_deadline(&self, deadline: Duration) -> Option<Instant> {
        self.running
            .values()
            .filter(|running| !running.timed_out)
            .map(|running| running.began + deadline)
            .min()
    }

    /// Makes a group ready if it has a job and no running write is in its way.
    fn make_ready(&mut self, id: GroupId) {
        let Some(waiting) = self.groups.get_mut(&id) else {
            return;
        };
        let of_group = || self.running.values().filter(|r| r.job.group.id() == id);
        let in_the_way = of_group().any(|running| !running.timed_out);
        if !waiting.ready && !in_the_way && of_group().count() < IN_KERNEL {
            waiting.ready = true;
            self.ready.push_back(id);
        }
    }

    fn report(&mut self, job: &Job, result: WriteResult) {
        self.outcomes.push(Outcome {
            ticket: job.ticket,
            group: job.group.id(),
            knob: job.knob,
            value: job.value,
            result,
        });
    }

    /// Nothing is queued, and only timed-out writes are running.
    pub(super) fn is_idle(&self) -> bool {
        self.groups.is_empty() && self.running.values().all(|running| running.timed_out)
    }

    /// No write of these knobs is queued or running, timed-out ones included.
    pub(super) fn is_settled(&self, knobs: impl Fn(Knob) -> bool) -> bool {
        let queued = self.groups.values().flat_map(|waiting| &waiting.jobs);
        let running = self.running.values().map(|running| &running.job);
        !queued.chain(running).any(|job| knobs(job.knob))
    }
}
