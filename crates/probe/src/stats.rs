//! The cost of the probe itself. Units: CPU seconds of this process (not of commands it starts), resident
//! bytes.

use std::time::{Duration, Instant};

use justitia_report::own::cpu;

/// Measures this process since the start.
#[derive(Debug)]
pub struct Stats {
    since: Instant,
    cpu_at_start: Duration,
}

impl Stats {
    #[must_use]
    pub fn start() -> Stats {
        Stats {
            since: Instant::now(),
            cpu_at_start: cpu(),
        }
    }

    /// One line: CPU per hour, memory.
    pub fn line(&self) -> String {
        let elapsed = self.since.elapsed().as_secs_f64();
        let used = cpu().saturating_sub(self.cpu_at_start).as_secs_f64();
        let per_hour = if elapsed > 0.0 {
            format!("{:.2}", used / elapsed * 3600.0)
        } else {
            "unknown".to_owned()
        };
        let memory = justitia_cgroup::resident_bytes().map_or("unknown".to_owned(), |bytes| {
            format!("{:.1} MB", bytes as f64 / 1e6)
        });
        format!("{elapsed:.0} s: {per_hour} CPU seconds per hour, {memory} resident")
    }
}
