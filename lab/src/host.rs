//! How much of the host's CPU time went to others while a guest ran.
//!
//! An emulated guest is bound by the host's CPUs. When something else takes them, a policy looks
//! slower or faster than another for no reason of its own, so each run records what others took
//! and the notes on a result say when that was too much. Ticks of `/proc/stat` and
//! `/proc/self/stat`; only their ratio is used, so the length of a tick does not matter.

use std::fs;

/// CPU time so far, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTime {
    /// Of all CPUs, idle or not.
    all: u64,
    /// Of all CPUs, not idle.
    busy: u64,
    /// Of this process and its children that have ended.
    own: u64,
}

impl CpuTime {
    /// Reads the clocks; `None` where the kernel does not show them.
    pub fn read() -> Option<Self> {
        let (all, busy) = parse_stat(&fs::read_to_string("/proc/stat").ok()?)?;
        let own = parse_self(&fs::read_to_string("/proc/self/stat").ok()?)?;
        Some(Self { all, busy, own })
    }

    /// Part of the host's CPU time since `earlier` that others took, 0 to 1.
    pub fn others_since(&self, earlier: &Self) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        let busy = self.busy.saturating_sub(earlier.busy);
        let own = self.own.saturating_sub(earlier.own);
        Some((busy.saturating_sub(own) as f64 / all as f64).min(1.0))
    }
}

/// All and busy ticks of the first line: user nice system idle iowait irq softirq steal. Guest
/// time is part of user. Stolen time counts as busy: it was not ours.
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
    fn what_is_neither_idle_nor_ours_went_to_others() {
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
    fn this_host_shows_its_clocks() {
        assert!(CpuTime::read().is_some());
    }
}
