//! The cost of the agent's process: memory and CPU time.

use std::time::Duration;

use rustix::time::{clock_gettime, ClockId};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Own {
    /// Resident memory, its binary included.
    pub resident_bytes: Option<u64>,
    /// CPU time of all threads since the process began.
    pub cpu: Duration,
}

impl Own {
    /// Reads the values of the current process.
    pub fn read() -> Own {
        Own {
            resident_bytes: justitia_cgroup::resident_bytes(),
            cpu: cpu(),
        }
    }
}

/// CPU time of all threads of the current process.
pub fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_has_memory_and_has_used_the_cpu() {
        let own = Own::read();
        assert!(own.resident_bytes.unwrap() > 1 << 20);
        assert!(own.cpu > Duration::ZERO);
    }
}
