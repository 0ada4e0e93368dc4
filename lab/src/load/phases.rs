//! Phases of a load with their latencies, in the page that the load shares with the driver.
//!
//! Latencies are counted in buckets, eight per power of two. A percentile is the upper edge of its bucket, at
//! most an eighth too long. Times are of `CLOCK_MONOTONIC`; `_us` is microseconds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::monotonic_ns;

/// The phases, in order of time.
pub const NAMES: [&str; 2] = ["quiet", "pressed"];

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// `quiet` or `pressed`.
    pub name: String,
    /// `None`: it never began.
    pub seconds: Option<f64>,
    /// Bytes read or touched.
    pub bytes: u64,
    pub ops: u64,
    /// Percentiles and maximum of the latency; `None`: no operations.
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
    pub max_us: Option<u64>,
}

pub const QUIET: usize = 0;
pub const PRESSED: usize = 1;

/// Buckets per power of two.
const EIGHTHS: u64 = 8;
const BUCKETS: usize = 256;

#[derive(Debug)]
#[repr(C)]
pub struct Phase {
    began_ns: AtomicU64,
    ended_ns: AtomicU64,
    bytes: AtomicU64,
    max_us: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Phase {
    fn default() -> Self {
        Self {
            began_ns: AtomicU64::default(),
            ended_ns: AtomicU64::default(),
            bytes: AtomicU64::default(),
            max_us: AtomicU64::default(),
            buckets: std::array::from_fn(|_| AtomicU64::default()),
        }
    }
}

fn bucket(us: u64) -> usize {
    if us < EIGHTHS {
        return us as usize;
    }
    let power = u64::from(us.ilog2());
    let eighth = (us >> (power - 3)) & (EIGHTHS - 1);
    (((power - 2) * EIGHTHS + eighth) as usize).min(BUCKETS - 1)
}

/// The longest latency in a bucket.
fn upper_us(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EIGHTHS {
        return bucket;
    }
    let power = bucket / EIGHTHS + 2;
    let eighth = bucket % EIGHTHS;
    ((EIGHTHS + eighth + 1) << (power - 3)) - 1
}

impl Phase {
    pub fn begin(&self) {
        self.began_ns.store(monotonic_ns(), Relaxed);
    }

    /// Ends the phase, or extends it: the last call counts.
    pub fn end(&self) {
        self.ended_ns.store(monotonic_ns(), Relaxed);
    }

    /// Marks activity: the phase begins with the first operation and ends with the last.
    pub fn go_on(&self) {
        let now = monotonic_ns();
        let _ = self.began_ns.compare_exchange(0, now, Relaxed, Relaxed);
        self.ended_ns.store(now, Relaxed);
    }

    pub fn add(&self, bytes: u64, latency: Duration) {
        let us = latency.as_micros() as u64;
        self.bytes.fetch_add(bytes, Relaxed);
        self.max_us.fetch_max(us, Relaxed);
        self.buckets[bucket(us)].fetch_add(1, Relaxed);
    }

    pub fn report(&self, name: &str) -> PhaseReport {
        let counts: Vec<u64> = self
            .buckets
            .iter()
            .map(|count| count.load(Relaxed))
            .collect();
        let ops: u64 = counts.iter().sum();
        let max_us = self.max_us.load(Relaxed);
        let percentile = |percent: u64| {
            let wanted = (ops * percent).div_ceil(100).max(1);
            let mut seen = 0;
            let found = counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            found.map(|bucket| upper_us(bucket).min(max_us))
        };
        let (began, ended) = (self.began_ns.load(Relaxed), self.ended_ns.load(Relaxed));
        PhaseReport {
            name: name.to_owned(),
            seconds: (began > 0 && ended > began).then(|| (ended - began) as f64 / 1e9),
            bytes: self.bytes.load(Relaxed),
            ops,
            p50_us: percentile(50),
            p99_us: percentile(99),
            max_us: (ops > 0).then_some(max_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say_and_are_an_eighth_wide_at_most() {
        let mut before = None;
        for us in (0..100_000).chain([1 << 20, (1 << 31) + 5]) {
            let at = bucket(us);
            assert!(us <= upper_us(at), "{us}");
            assert!(
                upper_us(at) as f64 <= us as f64 * 1.125 + 1.0,
                "{us} {}",
                upper_us(at)
            );
            assert!(before.is_none_or(|before| before <= at));
            before = Some(at);
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn percentiles_are_those_of_the_operations() {
        let phase = Phase::default();
        assert_eq!(phase.report("quiet").p99_us, None);
        phase.begin();
        for _ in 0..99 {
            phase.add(10, Duration::from_micros(100));
        }
        phase.add(10, Duration::from_millis(50));
        phase.end();
        let report = phase.report("quiet");
        assert_eq!(
            (report.ops, report.bytes, report.max_us),
            (100, 1000, Some(50_000))
        );
        assert!(report.p50_us < Some(113) && report.p99_us < Some(113));
        phase.add(10, Duration::from_millis(50));
        assert_eq!(phase.report("quiet").p99_us, Some(50_000));
    }
}
