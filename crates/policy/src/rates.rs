//! From cumulative counters to rates over the last period.
//!
//! A counter that is missing, or that went backwards (the group was re-created, a source was
//! exchanged), gives no rate for that period: unknown is never zero. The rate of a counter that stands from an
//! earlier read stands, too; the next read covers the whole time since then.

use serde::{Deserialize, Serialize};

use crate::snapshot::{Ages, CacheCounters, Group, Pressure, Traffic};

/// Rates of one group over the last period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Bytes applications read, per second.
    pub read_per_s: Option<f64>,
    /// Bytes applications wrote, per second.
    pub written_per_s: Option<f64>,
    /// Bytes reads had to fetch from a device, per second.
    pub missed_per_s: Option<f64>,
    /// Share of the period in which some task waited for I/O or memory, whichever is more, 0..1.
    pub stalled: Option<f64>,
    /// The same for CPUs.
    pub cpu_stalled: Option<f64>,
    /// Page-cache rates.
    pub cache: CacheRates,
}

/// Page-cache rates of one group over the last period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheRates {
    /// Fraction of the pages asked for by buffered reads that were hits, 0 to 1. A page that readahead had
    /// just fetched is no hit. `None`: no page was asked for.
    pub hit_ratio: Option<f64>,
    /// Pages asked for per second.
    pub asked_pages_per_s: Option<f64>,
    /// Pages asked for and not there, per second.
    pub missed_pages_per_s: Option<f64>,
    /// Pages asked for that readahead had just fetched, per second.
    pub readahead_pages_per_s: Option<f64>,
    /// Pages brought into the page cache per second.
    pub inserted_pages_per_s: Option<f64>,
    /// Pages that reclaim took per second.
    pub evicted_pages_per_s: Option<f64>,
    /// Pages read again soon after they were evicted, per second (`workingset_refault_file`).
    pub refault_pages_per_s: Option<f64>,
    /// Faults on mapped files per second.
    pub mmap_faults_per_s: Option<f64>,
    /// Faults on mapped files that waited for the disk, per second.
    pub mmap_major_faults_per_s: Option<f64>,
    /// Seconds per second its tasks spent in direct reclaim; more than 1 if several did.
    pub reclaim_s_per_s: Option<f64>,
    /// Seconds per second its tasks slept for being above `memory.high`.
    pub throttled_s_per_s: Option<f64>,
}

impl Rates {
    /// The rates of a period of `elapsed_s`, from these rates of the one before.
    pub(crate) fn after(&self, then: &Counters, now: &Counters, elapsed_s: f64) -> Rates {
        let mut rates = Rates::between(then, now, elapsed_s);
        if now.ages.memory_s.is_some() {
            rates.cache.refault_pages_per_s = self.cache.refault_pages_per_s;
        }
        if now.ages.cpu_s.is_some() {
            rates.cpu_stalled = self.cpu_stalled;
        }
        rates
    }

    /// From the counters then and now; no rates unless `elapsed_s` is positive.
    pub fn between(then: &Counters, now: &Counters, elapsed_s: f64) -> Rates {
        let per_s_since = |age_s: Option<f64>, then: Option<u64>, now: Option<u64>| {
            let delta = now?.checked_sub(then?)?;
            let since_s = elapsed_s + age_s.unwrap_or(0.0);
            (elapsed_s > 0.0).then(|| delta as f64 / since_s)
        };
        let per_s = |then, now| per_s_since(None, then, now);
        let (t0, t1) = (&then.traffic, &now.traffic);
        let (p0, p1) = (&then.pressure, &now.pressure);
        let stalls = [
            per_s(p0.io_some_us, p1.io_some_us),
            per_s(p0.memory_some_us, p1.memory_some_us),
        ];
        let share = |us_per_s: f64| (us_per_s / 1e6).min(1.0);
        Rates {
            read_per_s: per_s(t0.read_bytes, t1.read_bytes),
            written_per_s: per_s(t0.write_bytes, t1.write_bytes),
            missed_per_s: per_s(t0.missed_bytes, t1.missed_bytes),
            stalled: stalls.into_iter().flatten().reduce(f64::max).map(share),
            cpu_stalled: per_s_since(then.ages.cpu_s, p0.cpu_some_us, p1.cpu_some_us).map(share),
            cache: CacheRates {
                refault_pages_per_s: per_s_since(
                    then.ages.memory_s,
                    then.refault_pages,
                    now.refault_pages,
                ),
                ..CacheRates::between(then, now, per_s)
            },
        }
    }

    /// Application-level bandwidth: read and written.
    pub fn bytes_per_s(&self) -> Option<f64> {
        Some(self.read_per_s? + self.written_per_s?)
    }

    /// Bytes per second that the disk has to carry: written and missed. Readahead can fetch more than was
    /// read, so misses count at most as much as reads.
    pub fn transferable_per_s(&self) -> Option<f64> {
        Some(self.written_per_s? + self.missed_per_s?.min(self.read_per_s?))
    }
}

impl CacheRates {
    fn between(
        then: &Counters,
        now: &Counters,
        per_s: impl Fn(Option<u64>, Option<u64>) -> Option<f64>,
    ) -> CacheRates {
        let (c0, c1) = (&then.cache, &now.cache);
        let asked = per_s(c0.asked_pages, c1.asked_pages);
        let missed = per_s(c0.missed_pages, c1.missed_pages);
        let readahead = per_s(c0.readahead_pages, c1.readahead_pages);
        let hit_ratio = match (asked, missed, readahead) {
            (Some(asked), Some(missed), Some(readahead)) if asked > 0.0 => {
                Some((1.0 - (missed + readahead) / asked).max(0.0))
            }
            _ => None,
        };
        let seconds = |us_per_s: f64| us_per_s / 1e6;
        CacheRates {
            hit_ratio,
            asked_pages_per_s: asked,
            missed_pages_per_s: missed,
            readahead_pages_per_s: readahead,
            inserted_pages_per_s: per_s(c0.inserted_pages, c1.inserted_pages),
            evicted_pages_per_s: per_s(c0.evicted_pages, c1.evicted_pages),
            refault_pages_per_s: None,
            mmap_faults_per_s: per_s(c0.mmap_faults, c1.mmap_faults),
            mmap_major_faults_per_s: per_s(c0.mmap_major_faults, c1.mmap_major_faults),
            reclaim_s_per_s: per_s(c0.reclaim_us, c1.reclaim_us).map(seconds),
            throttled_s_per_s: per_s(c0.throttled_us, c1.throttled_us).map(seconds),
        }
    }
}

/// The counters of a group that rates are made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    traffic: Traffic,
    pressure: Pressure,
    cache: CacheCounters,
    refault_pages: Option<u64>,
    #[serde(skip_serializing_if = "Ages::are_new")]
    ages: Ages,
}

impl Counters {
    /// The counters of this group as it was seen.
    pub fn of(group: &Group) -> Counters {
        Counters {
            traffic: group.traffic,
            pressure: group.pressure,
            cache: group.cache,
            refault_pages: group.memory.refault_pages,
            ages: group.ages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(read: u64, stall_us: u64) -> Counters {
        Counters {
            traffic: Traffic {
                read_bytes: Some(read),
                write_bytes: Some(0),
                missed_bytes: Some(2 * read),
            },
            pressure: Pressure {
                io_some_us: Some(stall_us),
                ..Pressure::default()
            },
            ..Counters::default()
        }
    }

    #[test]
    fn a_counter_that_went_backwards_gives_no_rate() {
        let rates = Rates::between(&counters(100, 5), &counters(40, 5), 1.0);
        assert_eq!(rates.read_per_s, None);
        assert_eq!(rates.bytes_per_s(), None);
        assert_eq!(rates.stalled, Some(0.0));
    }

    #[test]
    fn an_unknown_counter_gives_no_rate() {
        let rates = Rates::between(&Counters::default(), &counters(1, 1), 1.0);
        assert_eq!(rates, Rates::default());
    }

    #[test]
    fn a_rate_stands_with_its_counter_and_the_next_read_covers_the_whole_time() {
        let seen = |us: u64, refaults: u64, age_s: Option<f64>| Counters {
            pressure: Pressure {
                cpu_some_us: Some(us),
                ..Pressure::default()
            },
            refault_pages: Some(refaults),
            ages: Ages {
                memory_s: age_s,
                cpu_s: age_s,
            },
            ..Counters::default()
        };
        let told = |rates: &Rates| (rates.cpu_stalled, rates.cache.refault_pages_per_s);
        let (first, read) = (seen(0, 0, None), seen(500_000, 30, None));
        let rates = Rates::default().after(&first, &read, 1.0);
        assert_eq!(told(&rates), (Some(0.5), Some(30.0)));
        let (one, two) = (seen(500_000, 30, Some(1.0)), seen(500_000, 30, Some(2.0)));
        let stand = rates.after(&read, &one, 1.0).after(&one, &two, 1.0);
        assert_eq!(told(&stand), (Some(0.5), Some(30.0)));
        let next = stand.after(&two, &seen(800_000, 90, None), 1.0);
        assert_eq!(told(&next), (Some(0.1), Some(20.0)));
        let unknown = stand.after(&two, &Counters::default(), 1.0);
        assert_eq!(told(&unknown), (None, None));
    }

    #[test]
    fn readahead_does_not_count_as_more_than_was_read() {
        let rates = Rates::between(&counters(0, 0), &counters(100, 500_000), 2.0);
        assert_eq!(rates.transferable_per_s(), Some(50.0));
        assert_eq!(rates.stalled, Some(0.25));
    }
}
