//! The clock that the driver and the loads share.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{clock_gettime, ClockId};

/// Interval at which a rest checks for a stop.
const REST: Duration = Duration::from_millis(50);

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

/// The time this many seconds after the start.
pub fn after(start: Instant, seconds: u32) -> Instant {
    start + Duration::from_secs(seconds.into())
}

/// Rests until the given time; false when it is stopped before.
pub fn rest_until(then: Instant, stopped: impl Fn() -> bool) -> bool {
    while !stopped() {
        let left = then.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(REST));
    }
    false
}
