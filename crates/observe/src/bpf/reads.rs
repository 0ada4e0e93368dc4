//! Decides when each read is counted, and when only a sample of reads.
//!
//! A program behind `filemap_read` costs some hundred nanoseconds per call, most of it the kernel's own
//! overhead. Its cost on this host is measured when it is attached. While the rate of reads times that cost
//! stays below [`BUDGET`] of a CPU, the program stays attached and every read is counted. Above the budget, it
//! is attached for one [`WINDOW`] in each [`EVERY`], at a random phase, or more seldom where attaching it takes
//! much CPU time ([`period_for`]). A thread of its own does this, because detaching can take a second. The
//! kernel's own count (`rchar`, `bpf/threads.h`) goes on in and between windows, and [`super::estimate`]
//! computes from both what the group read.
//!
//! Each window also observes reads for curves ([`super::curves`]). Every [`STRETCH_EVERY`], one window is
//! longer for them.
//!
//! Attaching changes the kernel's text on all CPUs, so a host with `nohz_full` CPUs has no windows. Neither has an
//! agent in a pid namespace of its own: the iterator over threads would not see all of them.

use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use justitia_cgroup::{has_nohz_full, sees_all_processes, GroupId};
use libbpf_rs::{Link, Object};

use super::choice::Choice;
use super::curves::{Curves, Then};
use super::estimate::Seen;
use super::memory::{CounterMemory, ReadMemory};
use super::sharing::run;
use super::{attach_one, cpu_time_of, types, Error};

/// Fraction of one CPU's time.
const BUDGET: f64 = 0.008;
const WINDOW: Duration = Duration::from_millis(100);
/// A window begins this long after the programs were attached: they do not run at the end of a call that began before,
/// but `rchar` has that call's bytes.
const SETTLES: Duration = Duration::from_millis(50);
const EVERY: Duration = Duration::from_secs(5);
/// The longest period, and the part of one CPU's time that attaching and detaching may take: the kernel searches all
/// its functions each time (`ftrace_run_update_code`).
const SELDOM: Duration = Duration::from_secs(15);
const SWITCH_BUDGET: f64 = 0.002;
/// A curve ends at the length of a window, so one window per `STRETCH_EVERY` is longer. Its length is such
/// that these windows cost `STRETCH_BUDGET` of the load's CPU time, but at most `STRETCH`.
const STRETCH: Duration = Duration::from_millis(2500);
const STRETCH_EVERY: Duration = Duration::from_secs(100);
const STRETCH_BUDGET: f64 = 0.003;
/// Each read is counted again after this many windows in a row with less than half of what the budget allows.
const CALM: u32 = 3;
/// The programs that run for each read.
pub(super) const PROGRAMS: [&str; 2] = ["filemap_read", "filemap_splice_read"];
/// Counts a thread's reads when it ends.
pub(super) const ENDS: &str = "thread_ends";
/// Counts the reads of all other threads.
const LOOKS: &str = "threads_read";
/// Assumed cost of the program per read, where it cannot be measured.
const PRICE: Duration = Duration::from_nanos(400);
/// No program behind a function of the kernel costs less than this.
const LEAST_PRICE: Duration = Duration::from_nanos(50);
const MOST_PRICE: Duration = Duration::from_micros(2);

/// A slot, the group that owns it, and its counters.
type Counted = ((u32, GroupId), types::counters);

/// State shared by the thread and the observer.
struct Common {
    object: Arc<Object>,
    counters: Arc<CounterMemory>,
    reads: ReadMemory,
    /// The iterator over threads. `None`: no windows on this host.
    looks: Option<Link>,
    /// Those of `PROGRAMS` that were chosen.
    programs: Vec<&'static str>,
    /// Reads per second that fit into the budget.
    most_per_s: f64,
    /// Slots in use, and their groups.
    slots: Mutex<Vec<(u32, GroupId)>>,
    /// Counts of windows, by group, until the observer takes them.
    seen: Mutex<Vec<(GroupId, Seen)>>,
    curves: Mutex<Curves>,
    /// Length of the longer window for curves.
    stretch: Duration,
}

/// The programs behind reads, attached or not.
pub(super) struct Reads {
    common: Arc<Common>,
    mode: Mode,
    /// Number of reads at the last step, and its time.
    last: (u64, Instant),
}

enum Mode {
    /// Each read is counted.
    Always {
        /// Empty if the programs could not be attached again.
        links: Vec<Link>,
    },
    Windows {
        stop: Sender<()>,
        /// Ends when windows are no longer needed, and returns the links.
        thread: Option<JoinHandle<Vec<Link>>>,
        /// Keeps the program `ENDS` attached.
        _ends: Link,
    },
}

/// The method by which reads were counted in a step, and the method from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Counted before, and from now on.
    Counted,
    /// Counted before, sampled from now on.
    CountedLast,
    /// Sampled before, and from now on.
    Sampled,
    /// Sampled before, counted from now on.
    SampledLast,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reads {
    /// Attaches the programs.
    pub(super) fn start(
        object: &Arc<Object>,
        counters: &Arc<CounterMemory>,
        choice: &Choice,
        cpus: u32,
        curves: Curves,
    ) -> Result<Reads, Error> {
        let reads = ReadMemory::map(object, cpus)?;
        let chosen = |name: &&str| choice.programs.contains(name);
        let looks = if [LOOKS, ENDS].iter().all(chosen) {
            Some(attach_one(object, LOOKS)?)
        } else {
            None
        };
        let mut common = Common {
            object: Arc::clone(object),
            counters: Arc::clone(counters),
            reads,
            looks: looks.filter(|_| !has_nohz_full() && sees_all_processes()),
            programs: PROGRAMS.into_iter().filter(chosen).collect(),
            most_per_s: 0.0,
            slots: Mutex::default(),
            seen: Mutex::default(),
            curves: Mutex::new(curves),
            stretch: STRETCH,
        };
        let bare = least_of_a_read();
        let links = common.attach()?;
        let before = common.reads.total();
        let watched = least_of_a_read();
        let price = match (bare, watched) {
            (Some(bare), Some(watched)) if common.reads.total() > before => price(bare, watched),
            _ => PRICE,
        };
        common.most_per_s = BUDGET / price.as_secs_f64();
        // Each read costs the load at least as much as a bare read.
        let part = price.as_secs_f64() / bare.unwrap_or(price).max(price).as_secs_f64();
        common.stretch = STRETCH.min(STRETCH_EVERY.mul_f64(STRETCH_BUDGET / part));
        let last = (common.reads.total(), Instant::now());
        Ok(Reads {
            common: Arc::new(common),
            mode: Mode::Always { links },
            last,
        })
    }

    pub(super) fn curves(&self) -> MutexGuard<'_, Curves> {
        locked(&self.common.curves)
    }

    /// Rate of reads up to which each is counted. `None`: each is counted at any rate.
    pub(super) fn most_per_s(&self) -> Option<f64> {
        self.common.looks.as_ref().map(|_| self.common.most_per_s)
    }

    /// True if the reads of groups are estimated.
    pub(super) fn sampled(&self) -> bool {
        matches!(self.mode, Mode::Windows { .. })
    }

    /// True if the reads of groups are known, counted or estimated.
    pub(super) fn known(&self) -> bool {
        !matches!(&self.mode, Mode::Always { links } if links.is_empty())
    }

    /// Number of programs that are attached now, without those of windows.
    pub(super) fn attached(&self) -> usize {
        match &self.mode {
            Mode::Always { links } => links.len(),
            Mode::Windows { .. } => 1,
        }
    }

    /// Sets the slots that windows read, and their groups.
    pub(super) fn watch(&self, slots: impl Iterator<Item = (u32, GroupId)>) {
        let mut watched = locked(&self.common.slots);
        watched.clear();
        watched.extend(slots);
    }

    /// Decides once a step whether to go on as before. Where reads are or were sampled, it brings the
    /// kernel's own count up to date. `prepare` is called before the first look at threads.
    pub(super) fn turn(&mut self, prepare: impl FnOnce()) -> Turn {
        let now = (self.common.reads.total(), Instant::now());
        let per_s = now.0.saturating_sub(self.last.0) as f64
            / (now.1 - self.last.1).as_secs_f64().max(1e-3);
        self.last = now;
        match &mut self.mode {
            Mode::Always { .. } => {
                let over = self.most_per_s().is_some_and(|most| per_s > most);
                if over && self.leave(prepare).is_ok() {
                    Turn::CountedLast
                } else {
                    Turn::Counted
                }
            }
            Mode::Windows { thread, .. } => {
                // If this fails, the old count stands: estimates are late, not wrong.
                let _ = self.common.look();
                if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
                    return Turn::Sampled;
                }
                let links = thread.take().and_then(|thread| thread.join().ok());
                // If the thread panicked, the links that it held are detached.
                let links = links.or_else(|| self.common.attach().ok());
                self.mode = Mode::Always {
                    links: links.unwrap_or_default(),
                };
                self.curves().begin();
                Turn::SampledLast
            }
        }
    }

    /// Takes the counts of windows since the last call, by group.
    pub(super) fn seen(&self) -> Vec<(GroupId, Seen)> {
        std::mem::take(&mut *locked(&self.common.seen))
    }

    /// Changes from counting each read to windows. The present links serve the first window.
    fn leave(&mut self, prepare: impl FnOnce()) -> io::Result<()> {
        prepare();
        let ends = attach_one(&self.common.object, ENDS).map_err(io::Error::other)?;
        self.common.look()?;
        let (stop, stopped) = channel();
        let (hand, take) = channel();
        let common = Arc::clone(&self.common);
        let thread = thread::Builder::new()
            .name("justitia-reads".into())
            .spawn(move || common.windows(take.recv().unwrap_or_default(), &stopped))?;
        let windows = Mode::Windows {
            stop,
            thread: Some(thread),
            _ends: ends,
        };
        if let Mode::Always { links } = std::mem::replace(&mut self.mode, windows) {
            let _ = hand.send(links);
        }
        Ok(())
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        if let Mode::Windows { stop, thread, .. } = &mut self.mode {
            let _ = stop.send(());
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

impl Common {
    /// Brings the kernel's count of all threads into the counters.
    fn look(&self) -> io::Result<()> {
        self.looks
            .as_ref()
            .map_or(Ok(()), |link| run(link).map(drop))
    }

    /// The counters of each watched slot, up to now.
    fn counted(&self) -> io::Result<Vec<Counted>> {
        self.look()?;
        let slots = locked(&self.slots);
        let read = slots
            .iter()
            .map(|owned| Some((*owned, self.counters.read(owned.0)?)));
        Ok(read.flatten().collect())
    }

    fn attach(&self) -> Result<Vec<Link>, Error> {
        let names = self.programs.iter();
        names.map(|name| attach_one(&self.object, name)).collect()
    }

    /// Runs windows, the first of them now, until reads are few or the observer stops it.
    fn windows(&self, mut links: Vec<Link>, stopped: &Receiver<()>) -> Vec<Link> {
        let mut calm = 0;
        // The first window continues what was observed before.
        let mut goes_on = true;
        let mut stretched = Instant::now();
        // Periods follow one another; the position of the window in its period is random.
        let mut period = Instant::now();
        let mut every = EVERY;
        loop {
            let (since, reads) = (Instant::now(), self.reads.total());
            let stretch = goes_on || stretched.elapsed() >= STRETCH_EVERY;
            if stretch {
                stretched = since;
            }
            let mut settles = Duration::ZERO;
            if !goes_on {
                locked(&self.curves).begin();
                settles = SETTLES;
            }
            let mut ended = self.window(settles, WINDOW, stopped);
            if stretch && ended.is_ok() {
                locked(&self.curves).look(Then::Stretch);
                let length = self.stretch.saturating_sub(WINDOW);
                ended = self.window(Duration::ZERO, length, stopped);
            }
            locked(&self.curves).look(Then::Rest);
            if ended.is_err() {
                return links;
            }
            goes_on = false;
            let per_s = (self.reads.total() - reads) as f64 / since.elapsed().as_secs_f64();
            calm = if per_s < self.most_per_s / 2.0 {
                calm + 1
            } else {
                0
            };
            if calm == CALM {
                return links;
            }
            let mut switching = cpu_time_of(|| links.clear());
            while links.is_empty() {
                // Reads may be few for good.
                let length = if calm == 0 { every } else { EVERY };
                period += length;
                let spare = length.saturating_sub(SETTLES + WINDOW).as_nanos() as u64;
                let phase = Duration::from_nanos(RandomState::new().hash_one(reads) % spare);
                let until = (period + phase).saturating_duration_since(Instant::now());
                if stopped.recv_timeout(until) != Err(RecvTimeoutError::Timeout) {
                    return links;
                }
                switching += cpu_time_of(|| links = self.attach().unwrap_or_default());
            }
            every = period_for(switching);
        }
    }

    /// Runs one window after a pause. Returns an error if it is to be the last.
    fn window(
        &self,
        settles: Duration,
        length: Duration,
        stopped: &Receiver<()>,
    ) -> io::Result<()> {
        let wait = |time| match stopped.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::Interrupted)),
        };
        wait(settles)?;
        let since = Instant::now();
        let before = self.counted()?;
        wait(length)?;
        let after = self.counted()?;
        let seconds = since.elapsed().as_secs_f64();
        locked(&self.seen).extend(seen_in(&before, &after, seconds));
        Ok(())
    }
}

/// Reads of each group between two readings of the counters. A slot whose owner changed yields none.
fn seen_in<'a>(
    before: &'a [Counted],
    after: &'a [Counted],
    seconds: f64,
) -> impl Iterator<Item = (GroupId, Seen)> + 'a {
    let after: HashMap<_, _> = after.iter().map(|(owned, now)| (owned, now)).collect();
    before.iter().filter_map(move |(owned, before)| {
        let after = after.get(owned)?;
        let seen = Seen {
            read_bytes: after.read_bytes - before.read_bytes,
            asked: after.asked_pages - before.asked_pages,
            rchar: after.rchar - before.rchar,
            seconds,
        };
        Some((owned.1, seen))
    })
}

/// The period of windows, from the CPU time of attaching and detaching the programs once.
fn period_for(switching: Duration) -> Duration {
    switching.div_f64(SWITCH_BUDGET).clamp(EVERY, SELDOM)
}

/// Cost of the program per read, from the least time of a read without it and with it. If the program seems
/// to cost nothing, the host was busy during all reads without it, and the measurement is worthless.
fn price(bare: Duration, watched: Duration) -> Duration {
    let price = watched.saturating_sub(bare);
    if price < LEAST_PRICE {
        PRICE
    } else {
        price.min(MOST_PRICE)
    }
}

/// The least measured time of a read of a cached file, because disturbances only add time. Pauses keep one
/// disturbance from covering all rounds.
fn least_of_a_read() -> Option<Duration> {
    const ROUNDS: u32 = 8;
    const CALLS: u32 = 64;
    const PAUSE: Duration = Duration::from_millis(2);
    let file = File::open(env::current_exe().ok()?).ok()?;
    let mut byte = [0];
    let mut least = Duration::MAX;
    for _ in 0..ROUNDS {
        thread::sleep(PAUSE);
        let since = Instant::now();
        for _ in 0..CALLS {
            file.read_exact_at(&mut byte, 0).ok()?;
        }
        least = least.min(since.elapsed() / CALLS);
    }
    Some(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(slot: u32, group: u64, read_bytes: u64) -> Counted {
        let counters = types::counters {
            read_bytes,
            ..types::counters::default()
        };
        ((slot, GroupId(group)), counters)
    }

    fn read(before: &[Counted], after: &[Counted]) -> Vec<(u64, u64)> {
        let seen = seen_in(before, after, 1.0);
        seen.map(|(group, seen)| (group.0, seen.read_bytes))
            .collect()
    }

    #[test]
    fn a_window_tells_nothing_of_a_slot_whose_owner_changed_in_it() {
        assert_eq!(read(&[counted(0, 1, 10)], &[counted(0, 1, 15)]), [(1, 5)]);
        assert_eq!(read(&[counted(0, 1, 10)], &[counted(0, 2, 15)]), []);
    }

    #[test]
    fn a_window_tells_of_all_groups_that_stay_whichever_come_or_go_in_it() {
        let before = [counted(0, 1, 10), counted(1, 2, 20), counted(2, 3, 30)];
        let after = [counted(3, 4, 40), counted(2, 3, 33), counted(0, 1, 11)];
        assert_eq!(read(&before, &after), [(1, 1), (3, 3)]);
    }

    #[test]
    fn windows_come_more_seldom_where_attaching_is_slow() {
        let period_ms = |switching| period_for(Duration::from_millis(switching)).as_millis();
        assert_eq!(
            [0, 8, 20, 90].map(period_ms),
            [5_000, 5_000, 10_000, 15_000]
        );
    }

    #[test]
    fn a_program_that_seems_to_cost_nothing_is_assumed_to_cost_what_is_usual() {
        let ns = Duration::from_nanos;
        assert_eq!(price(ns(900), ns(1_200)), ns(300));
        assert_eq!(price(ns(900), ns(910)), PRICE);
        assert_eq!(price(ns(900), ns(600)), PRICE);
        assert_eq!(price(ns(900), ns(9_000)), MOST_PRICE);
    }
}
