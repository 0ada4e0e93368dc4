//! Estimates what a group read while no program ran behind its reads. Pure.
//!
//! The kernel's own count of the bytes that read-like calls returned (`rchar`) goes on for free. It includes
//! pipes and sockets, and leaves out `io_uring`. Windows in which reads are counted one by one tell what
//! fraction of it is bytes of files, and in how many pages these bytes lie. Bytes of files that exceed
//! `rchar` by far did not come by system calls; they go on at the rate that the windows saw.
//!
//! Invariants: an estimate is never negative. Nothing is known of a group that no window saw. A group that
//! reads only files, and only by system calls, has exactly its `rchar`.

/// Weight of each window relative to the next one: the ratios are those of about the last three.
const KEPT: f64 = 0.7;
/// The two counts of a window are not taken at one instant, so a fraction above this counts as one.
const WHOLE: f64 = 0.98;
/// For the same reason, bytes of files exceed `rchar` only beyond this factor.
const BESIDE: f64 = 1.2;

/// Reads of a group in a window in which they were counted one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Seen {
    /// Bytes that buffered reads returned.
    pub(crate) read_bytes: u64,
    /// Pages these bytes lie in.
    pub(crate) asked: u64,
    /// Bytes that read-like system calls returned.
    pub(crate) rchar: u64,
    /// Length of the window.
    pub(crate) seconds: f64,
}

/// The ratios of one group, as learned from windows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Estimator {
    read_bytes: f64,
    asked: f64,
    rchar: f64,
    seconds: f64,
}

impl Estimator {
    /// Learns from a window.
    pub(crate) fn learn(&mut self, seen: &Seen) {
        for (sum, seen) in [
            (&mut self.read_bytes, seen.read_bytes as f64),
            (&mut self.asked, seen.asked as f64),
            (&mut self.rchar, seen.rchar as f64),
            (&mut self.seconds, seen.seconds),
        ] {
            *sum = *sum * KEPT + seen;
        }
    }

    /// Bytes read and pages asked for in `seconds` in which read-like calls returned `rchar` bytes. `None`
    /// before the first window.
    pub(crate) fn reads(&self, rchar: u64, seconds: f64) -> Option<(f64, f64)> {
        if self.seconds <= 0.0 {
            return None;
        }
        let by_calls = if self.read_bytes >= self.rchar * WHOLE {
            1.0
        } else {
            self.read_bytes / self.rchar
        };
        let beside = if self.read_bytes > self.rchar * BESIDE {
            (self.read_bytes - self.rchar) / self.seconds
        } else {
            0.0
        };
        let bytes = rchar as f64 * by_calls + beside * seconds;
        let pages_of_a_byte = if self.read_bytes > 0.0 {
            self.asked / self.read_bytes
        } else {
            0.0
        };
        Some((bytes, bytes * pages_of_a_byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(read_bytes: u64, rchar: u64) -> Seen {
        Seen {
            read_bytes,
            asked: read_bytes / 4096,
            rchar,
            seconds: 0.1,
        }
    }

    #[test]
    fn a_group_that_no_window_saw_is_unknown() {
        assert_eq!(Estimator::default().reads(1000, 1.0), None);
    }

    #[test]
    fn a_group_that_was_seen_idle_and_reads_on_is_taken_for_a_reader_of_files() {
        let mut estimator = Estimator::default();
        estimator.learn(&seen(0, 0));
        assert_eq!(estimator.reads(0, 1.0), Some((0.0, 0.0)));
        assert_eq!(estimator.reads(1000, 1.0), Some((1000.0, 0.0)));
    }

    #[test]
    fn reads_outside_of_system_calls_go_on_at_their_rate() {
        let mut estimator = Estimator::default();
        estimator.learn(&seen(40_960_000, 0));
        let (bytes, asked) = estimator.reads(0, 1.0).unwrap();
        assert!((bytes - 409_600_000.0).abs() < 1.0 && (asked - 100_000.0).abs() < 0.1);
    }

    proptest! {
        /// Windows of 100 ms every 5 to 15 s, of a group whose rate and fraction of file bytes are steady but
        /// noisy.
        #[test]
        fn steady_traffic_is_within_three_percent_over_thirty_seconds(
            share in 0.05f64..1.0,
            page_bytes in 100.0f64..4096.0,
            every in 50usize..=150,
            noise in proptest::collection::vec(-0.01f64..0.01, 300),
        ) {
            let mut estimator = Estimator::default();
            let (mut estimate, mut truth, mut pages) = (0.0, 0.0, 0.0);
            for (tenth, noise) in noise.iter().enumerate() {
                let rchar = 1e8 * (1.0 + 20.0 * noise);
                let file = rchar * share * (1.0 + noise);
                if tenth % every == 0 {
                    estimator.learn(&Seen {
                        read_bytes: file as u64,
                        asked: (file / page_bytes) as u64,
                        rchar: rchar as u64,
                        seconds: 0.1,
                    });
                }
                let (bytes, asked) = estimator.reads(rchar as u64, 0.1).unwrap();
                estimate += bytes;
                pages += asked;
                truth += file;
            }
            prop_assert!((estimate / truth - 1.0).abs() <= 0.03, "{estimate} {truth}");
            prop_assert!((pages * page_bytes / truth - 1.0).abs() <= 0.03, "{pages} {truth}");
        }

        #[test]
        fn an_estimate_is_never_negative_nor_more_than_was_returned_where_rchar_is_more(
            windows in proptest::collection::vec((0u64..1 << 40, 0u64..1 << 40), 1..8),
            rchar in 0u64..1 << 40,
        ) {
            let mut estimator = Estimator::default();
            for (read_bytes, more) in &windows {
                estimator.learn(&seen(*read_bytes, read_bytes + more));
            }
            let (bytes, asked) = estimator.reads(rchar, 1.0).unwrap();
            prop_assert!(bytes >= 0.0 && asked >= 0.0);
            prop_assert!(bytes <= rchar as f64 * (1.0 + 1e-9));
        }
    }
}
