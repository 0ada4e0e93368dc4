//! The plan: a list of knob writes, each with its reason.
//!
//! A plan is data: it can be printed (`justitia plan`), compared and replayed. The agent applies it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::color::{Color, ColorSource};
use crate::rates::CacheRates;
use crate::snapshot::{GroupId, Pressure};
use crate::units::Bytes;

pub use crate::knob::{Knob, Value};

/// Reason for a write to a knob.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum Reason {
    /// Protection at the group's threshold (paper, equation 1).
    Threshold {
        /// The page-cache threshold.
        file: Bytes,
        /// Anonymous and kernel memory added to it.
        non_file: Bytes,
    },
    /// An ancestor protects exactly what its children claim.
    ChildrenSum,
    /// The group takes more than its share while others wait.
    AboveShare {
        /// Its bandwidth over its weighted share of the contenders' bandwidth.
        of_ideal: f64,
        /// The feedback's gain on its share.
        gain: f64,
    },
    /// The group mixes reads with writes while others wait. It is limited at its entitlement, with some
    /// overcommitment.
    AtEntitlement,
    /// Nobody contends, or the group no longer does: the limit is lifted.
    NoContention,
    /// Non-file memory grew towards the limit: the limit makes room at once.
    MakeRoom,
    /// The block layer's weight follows the gain.
    BlockShare {
        /// The feedback's gain on its share.
        gain: f64,
    },
    /// The group gives memory to others by its color, or no longer has to.
    Rebalance,
    /// Groups contend, and the scheduler would not serve them by their weights.
    WeightsMustHold,
    /// Groups contend: io.cost serves the disk by weight, alone or beside BFQ.
    ServeByWeight {
        /// The larger bandwidth of large requests in the disk's model.
        bytes_per_s: u64,
    },
    /// The group holds more page cache than its share, and the reserve of free memory is not kept.
    KeepFree {
        /// Memory to keep free above the watermarks.
        reserve: Bytes,
        /// Page cache it holds above its share.
        over: Bytes,
    },
    /// Unmanaged groups, above all the root cgroup, hold more page cache than their share.
    RootShare {
        /// Page cache that they hold above their share.
        over: Bytes,
    },
    /// Memory is reserved for another group, and this group is limited at its share meanwhile.
    Reserved,
    /// The group may take its share of all memory, and what others do not demand.
    ShareOfMemory,
    /// The watch has suspended or withdrawn this kind of decision.
    Suspended,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Threshold { file, non_file } => {
                write!(
                    f,
                    "threshold {file} of page cache + {non_file} other memory"
                )
            }
            Reason::ChildrenSum => f.write_str("the sum of what its children claim"),
            Reason::AboveShare { of_ideal, gain } => {
                write!(
                    f,
                    "at {of_ideal:.2} of its share under contention, gain {gain:.2}"
                )
            }
            Reason::AtEntitlement => {
                f.write_str("what it is entitled to, for it writes while others wait")
            }
            Reason::NoContention => f.write_str("no contention"),
            Reason::MakeRoom => f.write_str("its other memory grew"),
            Reason::BlockShare { gain } => write!(f, "block share follows gain {gain:.2}"),
            Reason::Rebalance => f.write_str("rebalancing between colors"),
            Reason::WeightsMustHold => f.write_str("BFQ's low_latency overrides weights"),
            Reason::ServeByWeight { bytes_per_s } => write!(
                f,
                "io.cost serves it by weight, as a disk of {:.0} MB/s",
                *bytes_per_s as f64 / 1e6
            ),
            Reason::KeepFree { reserve, over } => write!(
                f,
                "{over} of page cache above its share, and {reserve} are to be free"
            ),
            Reason::RootShare { over } => {
                write!(f, "unmanaged page cache is {over} above its share")
            }
            Reason::Reserved => f.write_str("held at its share: memory is reserved for another"),
            Reason::ShareOfMemory => f.write_str("its share of all memory: the rest is others'"),
            Reason::Suspended => f.write_str("suspended: the watch measures what the limit costs"),
        }
    }
}

/// One knob write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// The group, or the disk.
    pub group: GroupId,
    /// Its file.
    pub knob: Knob,
    /// The value to write.
    pub value: Value,
    /// Its reason.
    pub reason: Reason,
}

/// The policy's view of one group, for `status`, `explain` and metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The group.
    pub group: GroupId,
    /// Its share of the managed groups' weight, 0 to 1, down the hierarchy.
    pub proportion: f64,
    /// Page cache it is entitled to (water-filling), bytes.
    pub entitlement: Bytes,
    /// The page-cache threshold in force (paper, equation 1).
    pub threshold: Bytes,
    /// Application-level bandwidth since the last step, bytes per second.
    pub bytes_per_s: Option<f64>,
    /// The part of it that the disk has to carry: bytes written and missed.
    pub transferable_bytes_per_s: Option<f64>,
    /// Smoothed bandwidth over the weighted share of the contenders' bandwidth; 1 is ideal.
    pub of_ideal: Option<f64>,
    /// It stalls, so it takes part in the competition.
    pub contending: bool,
    /// Its color, declared or inferred from stalls and share.
    pub color: Color,
    /// The feedback's gain on its share.
    pub gain: f64,
    /// Share of the last period in which some task waited for memory or I/O, 0 to 1.
    pub stalled: Option<f64>,
    /// Rates of its page-cache events since the last step.
    #[serde(default)]
    pub cache: CacheRates,
    /// Page cache charged to it that belongs to higher-weighted users of the same files, as far as the
    /// snapshot shows. It is added to the threshold.
    #[serde(default)]
    pub held_for_others: Bytes,
    /// Page cache of its own that is charged to others, as far as the snapshot shows. It is taken off the
    /// threshold.
    #[serde(default)]
    pub held_by_others: Bytes,
    /// Source of the color.
    #[serde(default)]
    pub color_source: ColorSource,
    /// Page cache it may hold while it gives memory to others by its color; `None`: it does not.
    #[serde(default)]
    pub cap: Option<Bytes>,
    /// All memory that it needs to stay satisfied, learned while it gave memory.
    #[serde(default)]
    pub working_set: Option<Bytes>,
    /// Page cache that it needs, lends and borrows; `None` if its reads do not show what memory is worth to
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stake: Option<Stake>,
}

/// A group with a known curve, and its use of its plain share (the division by weight among all).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stake {
    /// Page cache with which its reads hit as often as with all of that share.
    pub needs: Bytes,
    /// The part of that share that it leaves to others.
    pub lends: Bytes,
    /// Page cache that it may use beyond that share.
    pub borrows: Bytes,
}

/// Waits of the host over the last period: shares of that period, 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct HostRates {
    /// Some task waited for memory.
    pub memory_some: Option<f64>,
    /// All tasks that were not idle waited for memory.
    pub memory_full: Option<f64>,
    /// Some task waited for I/O.
    pub io_some: Option<f64>,
    /// All tasks that were not idle waited for I/O.
    pub io_full: Option<f64>,
}

impl HostRates {
    /// From the totals then and now. A total that is missing or went backwards gives no rate.
    pub fn between(then: &Pressure, now: &Pressure, elapsed_s: f64) -> HostRates {
        let share = |then: Option<u64>, now: Option<u64>| {
            let waited_us = now?.checked_sub(then?)?;
            (elapsed_s > 0.0).then(|| (waited_us as f64 / 1e6 / elapsed_s).min(1.0))
        };
        HostRates {
            memory_some: share(then.memory_some_us, now.memory_some_us),
            memory_full: share(then.memory_full_us, now.memory_full_us),
            io_some: share(then.io_some_us, now.io_some_us),
            io_full: share(then.io_full_us, now.io_full_us),
        }
    }
}

/// The writes of a step, and the reasoning behind them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Knob writes, at most one for each knob, in the order in which they must happen: disks first; an
    /// ancestor's protection is raised before its children's, and lowered after.
    pub writes: Vec<Write>,
    /// One verdict for each managed group, in the snapshot's order.
    pub verdicts: Vec<Verdict>,
    /// Proportionality variation of the contending groups since the last step.
    pub pv: Option<f64>,
    /// Share error of the contending groups since the last step.
    pub share_error: Option<f64>,
    /// Waits of the host since the last step.
    #[serde(default)]
    pub host: HostRates,
    /// The guard's view; `None`: it has nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guarded>,
    /// Weights for the kernel module's gate; empty without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gate: Vec<Feed>,
    /// The watch's findings, one for each kind of decision; empty: the watch is off, or no decision was made yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watch: Vec<Finding>,
}

/// A kind of decision whose cost the watch measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watched {
    /// `memory.high` at the weighted share, of groups that write.
    Limits,
    /// The feedback's gains in block weights. The weights themselves are always in force.
    Gains,
    /// io.cost on disks.
    IoCost,
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Watched::Limits => "limits by weight",
            Watched::Gains => "gains in block weights",
            Watched::IoCost => "io.cost",
        })
    }
}

/// State of a kind of decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The last step made no such decision.
    Idle,
    /// In force.
    InForce,
    /// Out of force for some seconds, to compare the traffic.
    Suspended,
    /// Out of force for a while, because it cost too much, or because no disk serves writers by weight (no comparison
    /// was made then).
    Withdrawn,
}

/// The watch's finding about one kind of decision.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The kind.
    pub decision: Watched,
    /// Its state.
    pub phase: Phase,
    /// Seconds until the withdrawal ends; `None`: not withdrawn.
    pub withdrawn_s: Option<f64>,
    /// Completed comparisons.
    pub comparisons: u64,
    /// Cost to all groups together; `None`: fewer than two comparisons.
    pub loss: Option<Loss>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.decision)?;
        match (self.phase, self.withdrawn_s) {
            (Phase::Withdrawn, Some(left_s)) => write!(f, "withdrawn for {left_s:.0} s")?,
            (Phase::Withdrawn, None) => f.write_str("withdrawn")?,
            (Phase::Suspended, _) => f.write_str("suspended, to measure the cost")?,
            (Phase::InForce, _) => f.write_str("in force")?,
            (Phase::Idle, _) => f.write_str("no decision now")?,
        }
        if self.phase == Phase::Withdrawn && self.comparisons == 0 {
            f.write_str(", because no disk serves writers by weight")?;
        }
        let Some(loss) = self.loss else {
            return Ok(());
        };
        let percent = |part: f64| (part * 100.0).round() + 0.0;
        let (least, mean, most) = (percent(loss.least), percent(loss.mean), percent(loss.most));
        write!(
            f,
            "; cost {mean} % of all traffic (95 % interval: {least} to {most} %)"
        )
    }
}

/// The part of their traffic that all groups together lose by a kind of decision; below 0 they gain. Mean and
/// confidence interval of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// The lower bound.
    pub least: f64,
    /// The mean.
    pub mean: f64,
    /// The upper bound.
    pub most: f64,
}

/// A weight for the kernel module's gate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Feed {
    /// The group.
    pub group: GroupId,
    /// Its weight in the gate, 1 to 10000; `None`: it is no longer managed, and is removed.
    pub weight: Option<u32>,
    /// The feedback's gain that the weight includes.
    pub gain: f64,
}

/// The guard's view, in bytes. Free memory is counted above the zones' high watermarks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded {
    /// Memory to keep free: the standing reserve, and reserved memory that is not taken up yet.
    pub reserve: Bytes,
    /// The reserved part of it.
    pub reserved: Bytes,
    /// Free memory.
    pub spare: Option<Bytes>,
    /// Memory that has to be taken from groups.
    pub missing: Bytes,
    /// Page cache of the root cgroup and of unmanaged groups.
    pub unmanaged: Option<Bytes>,
    /// Their share; `None`: nothing bounds them here.
    pub unmanaged_share: Option<Bytes>,
    /// Sum of what this step asks for.
    pub asked: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_waits_for_a_share_of_the_period_and_unknown_rates_stay_unknown() {
        let then = Pressure {
            memory_some_us: Some(100),
            io_some_us: Some(7),
            ..Pressure::default()
        };
        let now = Pressure {
            memory_some_us: Some(500_100),
            memory_full_us: Some(1),
            io_some_us: Some(6),
            ..Pressure::default()
        };
        let rates = HostRates::between(&then, &now, 2.0);
        let expected = HostRates {
            memory_some: Some(0.25),
            ..HostRates::default()
        };
        assert_eq!(rates, expected);
        assert_eq!(HostRates::between(&then, &now, 0.0), HostRates::default());
    }
}
