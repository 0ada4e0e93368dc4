//! The clock that the driver and the loads share.

use std::thread;
use std::time::Duration;

use rustix::time::{clock_gettime, ClockId};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Seconds since a time of this clock.
pub fn since_s(start_ns: u64) -> f64 {
    monotonic_ns().saturating_sub(start_ns) as f64 / 1e9
}

/// Sleeps until a time of this clock.
pub fn sleep_until(at_ns: u64) {
    thread::sleep(Duration::from_nanos(at_ns.saturating_sub(monotonic_ns())));
}
