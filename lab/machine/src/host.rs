//! Measures how much CPU the host had to offer while a guest ran.
//!
//! An emulated guest is bound by the host's CPUs. When something else takes them, a policy looks slower or
//! faster than another without cause. Each run therefore records what others took, and the notes on a result
//! say when that was too much. The source is ticks of `/proc/stat` and `/proc/self/stat`; only their ratio is
//! used, so the length of a tick does not matter.
//!
//! A virtual host that shares cores with neighbors does not see them: its CPUs are not stolen, they are
//! slower. A thread therefore does a fixed piece of work at intervals and measures its CPU time. The speed
//! has no meaning beyond this host; the ratio between two runs does.

use std::fs;
use std::hint::black_box;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::time::{clock_gettime, ClockId};

/// Interval of speed measurements. A piece of work of some tenths of a millisecond then takes about a
/// thousandth of a CPU.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const STEPS: u32 = 200_000;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HostSeen {
    /// Fraction of its CPU time that others took, 0 to 1; `None`: unknown.
    pub busy_with_others: Option<f64>,
    /// Median speed of its CPUs: millions of steps per second of CPU time; `None`: unknown.
    pub speed: Option<f64>,
}

/// Watches the host from its start to its end.
#[derive(Debug)]
pub struct Watch {
    before: Option<CpuTime>,
    looks: JoinHandle<Vec<f64>>,
    stop: Sender<()>,
}

impl Watch {
    pub fn start() -> Self {
        let (stop, stopped) = mpsc::channel();
        let looks = thread::spawn(move || {
            let mut speeds = Vec::new();
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                speeds.push(speed_now());
            }
            speeds
        });
        Self {
            before: CpuTime::read(),
            looks,
            stop,
        }
    }

    /// Stops watching and returns what was seen.
    pub fn end(self) -> HostSeen {
        let after = CpuTime::read();
        drop(self.stop);
        let mut speeds = self.looks.join().unwrap_or_default();
        speeds.sort_by(f64::total_cmp);
        HostSeen {
            busy_with_others: after
                .zip(self.before)
                .and_then(|(after, before)| after.others_since(&before)),
            speed: speeds.get(speeds.len() / 2).copied(),
        }
    }
}

/// Millions of steps per second of CPU time, for one piece of work.
fn speed_now() -> f64 {
    let before = thread_s();
    let mut x = 1_u32;
    for _ in 0..STEPS {
        // Each step depends on the previous one, so nothing can be computed in advance.
        x = black_box(x ^ (x << 13));
        x ^= x >> 17;
        x ^= x << 5;
    }
    black_box(x);
    f64::from(STEPS) / 1e6 / (thread_s() - before).max(1e-9)
}

/// CPU time of this thread, seconds.
fn thread_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// CPU time so far, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTime {
    /// All CPUs, idle or not.
    all: u64,
    /// All CPUs, not idle.
    busy: u64,
    /// This process and its children that have ended.
    own: u64,
}

impl CpuTime {
    /// Reads the clocks; `None` where the kernel does not show them.
    pub fn read() -> Option<Self> {
        let (all, busy) = parse_stat(&fs::read_to_string("/proc/stat").ok()?)?;
        let own = parse_self(&fs::read_to_string("/proc/self/stat").ok()?)?;
        Some(Self { all, busy, own })
    }

    /// Fraction of all CPU time since `earlier` that was not idle, 0 to 1.
    pub fn busy_since(&self, earlier: &Self) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        Some((self.busy.saturating_sub(earlier.busy) as f64 / all as f64).min(1.0))
    }

    /// Fraction of the host's CPU time since `earlier` that others took, 0 to 1.
    pub fn others_since(&self, earlier: &Self) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        let busy = self.busy.saturating_sub(earlier.busy);
        let own = self.own.saturating_sub(earlier.own);
        Some((busy.saturating_sub(own) as f64 / all as f64).min(1.0))
    }
}

/// All and busy ticks of the first line: user nice system idle iowait irq softirq steal. Guest time is part
/// of user. Stolen time counts as busy, because this host did not have it.
fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.lines().next()?.split_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let ticks: Vec<u64> = words
        .take(8)
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    let idle = ticks.get(3)? + ticks.get(4)?;
    let all: u64 = ticks.iter().sum();
    Some((all, all - idle))
}

/// utime + stime + cutime + cstime. The command's name may hold blanks and brackets.
fn parse_self(text: &str) -> Option<u64> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    fields
        .get(11..15)?
        .iter()
        .map(|field| field.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_neither_idle_nor_ours_went_to_others() {
        let earlier = CpuTime {
            all: 1000,
            busy: 100,
            own: 50,
        };
        let later = CpuTime {
            all: 2000,
            busy: 900,
            own: 650,
        };
        assert_eq!(later.others_since(&earlier), Some(0.2));
        assert_eq!(later.busy_since(&earlier), Some(0.8));
        assert_eq!(earlier.others_since(&earlier), None);
    }

    #[test]
    fn the_kernels_lines_are_understood() {
        let stat = "cpu  10 1 5 100 20 2 3 4 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse_stat(stat), Some((145, 25)));
        assert_eq!(parse_stat("intr 5\n"), None);
        let own = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 2 3 4 30 12 500 60 20 0 1 0 9 9 9";
        assert_eq!(parse_self(own), Some(602));
        assert_eq!(parse_self("7 (x) S 1"), None);
    }

    #[test]
    fn a_watch_that_ends_at_once_saw_no_speed() {
        assert_eq!(Watch::start().end().speed, None);
    }
}
