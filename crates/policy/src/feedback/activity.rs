//! Activity: what a group has been doing for some seconds, and how that classifies it.
//!
//! - It *contends* when its tasks stalled on I/O or memory for more than a small share of the time.
//!   Hysteresis keeps a short pause from changing this.
//! - It is a *writer* when it writes about as much as it reads, or more. A smaller page share then slows its
//!   writes down and costs few hits. The feedback moves its limit.
//! - It *mixes* when it mostly reads, but writes so much that dirty throttling decides its throughput. It is
//!   limited at its entitlement. An objective that orders writers only ([`crate::objective`]) never cuts that, and
//!   never limits a group that writes less.
//! - It *claims* when it neither stalls enough to contend nor gets its share, but waits for CPUs. On a busy
//!   host, groups that write above their share hold the CPUs that it needs. A group that waits for nothing
//!   has what it wants, however little, and claims nothing: a trickle of high weight slows no group down. A
//!   claim that has no effect within `PATIENCE_S` is suspended, each time for longer, because the page cache of
//!   others is not what holds the group back.
//!
//! An unknown value changes nothing. Stalls that stay unknown (a group that cannot be read, a kernel without
//! pressure stall information) leave it unknown whether the group contends.

use serde::{Deserialize, Serialize};

use crate::rates::Rates;

/// Seconds over which stalls and the mix of reads and writes are averaged. Contention begins with the first
/// period that stalls enough, and ends when the average is low.
const AVERAGED_S: f64 = 6.0;
/// A group whose smoothed stalls fall below this part of the threshold stops contending.
const LEAVE: f64 = 0.25;
/// Below this many bytes a second a group is idle.
const IDLE_BYTES_PER_S: f64 = 4096.0;
/// A group becomes a writer above this written part of its traffic.
const WRITER: f64 = 0.35;
/// A writer stays one above this written part of its traffic.
const STAY_WRITER: f64 = 0.25;
/// A group begins to mix above this written part of its traffic.
const MIXES: f64 = 0.15;
/// A group that mixes continues to do so above this written part of its traffic.
const STAY_MIXING: f64 = 0.1;
/// A group only writes if it reads less than this part of what it writes.
const ONLY_WRITES: f64 = 1.0 / 16.0;
/// Seconds after which unknown stalls are no longer taken for the last ones.
const UNKNOWN_S: f64 = 10.0;
/// Share of time waiting for CPUs above which a group wants more of them.
const CPU_HUNGRY: f64 = 0.2;
/// A claim needs at least this part of the share; a group further below it does something else.
const CLAIM_FROM: f64 = 0.25;
/// A claim must raise the group's part of its share by this factor within `PATIENCE_S`.
const WORTH_CLAIMING: f64 = 1.1;
/// Seconds after which a claim is judged.
const PATIENCE_S: f64 = 30.0;
/// Seconds of the first suspension, and of the longest: each further claim in turn without effect doubles it.
const SUSPENDED_S: (f64, f64) = (120.0, 3600.0);

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Activity {
    stalled: Option<f64>,
    /// Seconds for which its stalls have been unknown.
    unknown_s: f64,
    cpu_stalled: Option<f64>,
    written_per_s: Option<f64>,
    read_per_s: Option<f64>,
    missed_per_s: Option<f64>,
    of_share: Option<f64>,
    claim: Claim,
    /// Number of claims in turn that had no effect.
    useless_claims: u32,
    contending: bool,
    mix: Mix,
    /// It moved next to nothing in the last period.
    pub idle: bool,
}

/// The part of its traffic that a group writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mix {
    #[default]
    Reads,
    Mixes,
    Writes,
}

impl Mix {
    /// The mix after a period in which this part of the traffic was written.
    fn after(self, written: f64) -> Mix {
        let above = |enter, stay, at_least| written > if self >= at_least { stay } else { enter };
        if above(WRITER, STAY_WRITER, Mix::Writes) {
            Mix::Writes
        } else if above(MIXES, STAY_MIXING, Mix::Mixes) {
            Mix::Mixes
        } else {
            Mix::Reads
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Claim {
    #[default]
    None,
    /// It stands for this many seconds, and began at this part of the share.
    Standing { for_s: f64, from: f64 },
    /// It is suspended for this many more seconds.
    #[serde(rename = "deaf")]
    Suspended { for_s: f64 },
}

impl Activity {
    #[must_use]
    pub(crate) fn after(self, rates: &Rates, stall_share: f64, elapsed_s: f64) -> Activity {
        let unknown_s = rates.stalled.map_or(self.unknown_s + elapsed_s, |_| 0.0);
        let stalled = smooth(self.stalled, rates.stalled, elapsed_s);
        let stalled = stalled.filter(|_| unknown_s <= UNKNOWN_S);
        let written_per_s = smooth(self.written_per_s, rates.written_per_s, elapsed_s);
        let read_per_s = smooth(self.read_per_s, rates.read_per_s, elapsed_s);
        let writes = match (written_per_s, read_per_s) {
            (Some(written), Some(read)) if written + read > 0.0 => written / (written + read),
            _ => 0.0,
        };
        let idle = rates.bytes_per_s().is_some_and(|b| b < IDLE_BYTES_PER_S);
        let begins = rates.stalled.is_some_and(|now| now > stall_share);
        let stays = stalled.is_some_and(|stalled| stalled > stall_share * LEAVE);
        // A group that neither moves bytes nor waits has stopped. A group that pauses between two bursts has
        // not.
        let stopped = idle && rates.stalled.is_some_and(|now| now == 0.0);
        let contending = begins || (self.contending && stays && !stopped);
        Activity {
            stalled,
            unknown_s,
            cpu_stalled: smooth(self.cpu_stalled, rates.cpu_stalled, elapsed_s),
            written_per_s,
            read_per_s,
            missed_per_s: smooth(self.missed_per_s, rates.missed_per_s, elapsed_s),
            contending,
            mix: self.mix.after(writes),
            idle,
            ..self
        }
    }

    /// Updates its claim by the part of its share among the writers that it got in the last period.
    pub(crate) fn judge_claim(&mut self, of_share: f64, elapsed_s: f64) {
        self.of_share = smooth(self.of_share, Some(of_share), elapsed_s);
        let now = self.of_share.unwrap_or(of_share);
        let below = (CLAIM_FROM..1.0).contains(&now);
        let helps = |from: f64| now >= 0.9 || now >= from * WORTH_CLAIMING;
        self.claim = match self.claim {
            Claim::Suspended { for_s } if for_s > elapsed_s => Claim::Suspended {
                for_s: for_s - elapsed_s,
            },
            _ if !below => Claim::None,
            Claim::Standing { for_s, from } if for_s > PATIENCE_S && !helps(from) => {
                let longer = f64::from(1 << self.useless_claims.min(8));
                self.useless_claims += 1;
                Claim::Suspended {
                    for_s: (SUSPENDED_S.0 * longer).min(SUSPENDED_S.1),
                }
            }
            Claim::Standing { for_s, from } => {
                if helps(from) {
                    self.useless_claims = 0;
                }
                Claim::Standing {
                    for_s: for_s + elapsed_s,
                    from,
                }
            }
            Claim::None | Claim::Suspended { .. } => Claim::Standing {
                for_s: 0.0,
                from: now,
            },
        };
    }

    /// Its tasks stall on I/O or memory; `None`: unknown.
    pub(crate) fn contending(&self) -> Option<bool> {
        self.stalled.map(|_| self.contending)
    }

    /// It has moved next to nothing for some time.
    pub(crate) fn rests(&self) -> bool {
        let moved = self.written_per_s.zip(self.read_per_s);
        moved.is_some_and(|(written, read)| written + read < IDLE_BYTES_PER_S)
    }

    /// It writes about as much as it reads, or more.
    pub(crate) fn writer(&self) -> bool {
        self.mix == Mix::Writes
    }

    /// It writes, and reads next to nothing.
    pub(crate) fn only_writes(&self) -> bool {
        let moved = self.written_per_s.zip(self.read_per_s);
        moved.is_some_and(|(written, read)| read < written * ONLY_WRITES)
    }

    /// It mostly reads, but writes so much that dirty throttling decides its throughput.
    pub(crate) fn mixes(&self) -> bool {
        self.mix == Mix::Mixes
    }

    /// The part of the bytes it read that was not in the page cache, 0 to 1, averaged; `None`: unknown.
    pub(crate) fn missed_part(&self) -> Option<f64> {
        let read = self.read_per_s.filter(|&read| read > IDLE_BYTES_PER_S)?;
        Some((self.missed_per_s? / read).min(1.0))
    }

    /// It waits for CPUs and gets less than its share, and its claim is not suspended.
    pub(crate) fn claiming(&self) -> bool {
        self.cpu_stalled.is_some_and(|stalled| stalled > CPU_HUNGRY)
            && matches!(self.claim, Claim::Standing { .. })
    }
}

fn smooth(old: Option<f64>, new: Option<f64>, elapsed_s: f64) -> Option<f64> {
    match (old, new) {
        (Some(old), Some(new)) => Some(old + (1.0 - (-elapsed_s / AVERAGED_S).exp()) * (new - old)),
        (old, new) => new.or(old),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FeedbackConfig;

    fn rates(stalled: f64, cpu_stalled: f64) -> Rates {
        Rates {
            read_per_s: Some(0.0),
            written_per_s: Some(1e6),
            missed_per_s: Some(0.0),
            stalled: Some(stalled),
            cpu_stalled: Some(cpu_stalled),
            ..Rates::default()
        }
    }

    fn settled(rates: &Rates) -> Activity {
        let stall_share = FeedbackConfig::default().stall_share;
        (0..20).fold(Activity::default(), |h, _| h.after(rates, stall_share, 1.0))
    }

    #[test]
    fn a_pause_of_a_moment_does_not_end_contention() {
        let stall_share = FeedbackConfig::default().stall_share;
        let activity = settled(&rates(0.5, 0.0));
        let paused = activity.after(&rates(0.0, 0.0), stall_share, 1.0);
        assert_eq!(paused.contending(), Some(true));
        let rested = (0..60).fold(paused, |h, _| h.after(&rates(0.0, 0.0), stall_share, 1.0));
        assert_eq!(rested.contending(), Some(false));
    }

    #[test]
    fn a_group_that_waits_for_nothing_claims_nothing() {
        let mut activity = settled(&rates(0.0, 0.01));
        activity.judge_claim(0.5, 1.0);
        assert!(!activity.claiming());
    }

    #[test]
    fn a_group_that_waits_for_cpus_below_its_share_claims_until_that_proves_useless() {
        let mut activity = settled(&rates(0.0, 0.8));
        activity.judge_claim(0.5, 1.0);
        assert!(activity.claiming());
        for _ in 0..40 {
            activity.judge_claim(0.5, 1.0);
        }
        assert!(!activity.claiming(), "nothing came of it");
    }

    #[test]
    fn a_claim_that_helps_is_kept() {
        let mut activity = settled(&rates(0.0, 0.8));
        for second in 0..200 {
            activity.judge_claim(if second < 10 { 0.5 } else { 0.7 }, 1.0);
        }
        assert!(activity.claiming());
    }

    #[test]
    fn a_claim_that_never_helps_is_suspended_for_longer_each_time_until_one_helps() {
        let mut activity = settled(&rates(0.0, 0.8));
        activity.judge_claim(0.5, 1.0);
        let suspended_s = |activity: &mut Activity| {
            while activity.claiming() {
                activity.judge_claim(0.5, 1.0);
            }
            let suspended = (1_usize..5000).find(|_| {
                activity.judge_claim(0.5, 1.0);
                activity.claiming()
            });
            suspended.expect("another claim")
        };
        for expected in [120, 240, 480, 960, 1920, 3600, 3600] {
            let seconds = suspended_s(&mut activity);
            assert!(seconds.abs_diff(expected) <= 1, "{seconds} for {expected}");
        }
        // The claim that stands now helps. The group then has all that it wants for so long that the average is new.
        for of_share in [0.7, 1.2, 0.5] {
            activity.judge_claim(of_share, 1000.0);
        }
        let seconds = suspended_s(&mut activity);
        assert!(seconds.abs_diff(120) <= 1, "{seconds}");
    }

    #[test]
    fn a_trickle_far_below_its_share_claims_nothing() {
        let mut activity = settled(&rates(0.0, 0.8));
        activity.judge_claim(0.01, 1.0);
        assert!(!activity.claiming());
    }

    #[test]
    fn unknown_rates_change_nothing() {
        let stall_share = FeedbackConfig::default().stall_share;
        let activity = settled(&rates(0.5, 0.5));
        let blind = activity.after(&Rates::default(), stall_share, 1.0);
        assert_eq!(blind.contending(), Some(true));
        assert!(blind.writer());
        assert_eq!(Activity::default().contending(), None);
    }

    #[test]
    fn a_group_whose_stalls_stay_unknown_stops_contending() {
        let stall_share = FeedbackConfig::default().stall_share;
        let blind = |h: Activity, seconds| {
            (0..seconds).fold(h, |h, _| h.after(&Rates::default(), stall_share, 1.0))
        };
        let short = blind(settled(&rates(0.5, 0.5)), 10);
        assert_eq!(short.contending(), Some(true));
        let long = blind(short, 1);
        assert_eq!(long.contending(), None);
        let again = long.after(&rates(0.0, 0.0), stall_share, 1.0);
        assert_eq!(again.contending(), Some(false));
    }
}
