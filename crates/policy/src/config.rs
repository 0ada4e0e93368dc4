//! What the operator decides about the policy. Read from TOML by the agent.

use serde::{Deserialize, Serialize};

pub use crate::objective::Objective;
use crate::units::Bytes;

/// How much of the policy is in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Measure, write nothing.
    Observe,
    /// The paper: thresholds by weight, no feedback.
    Justitia,
    /// Thresholds and feedback, and memory from groups that declare themselves well to those that
    /// declare they are not.
    #[default]
    Proportional,
    /// MemOpLight (table II) alone: memory from groups that are well to those that are not,
    /// whatever the weights.
    Memoplight,
}

impl Mode {
    /// Whether something is ordered by weights in it.
    pub fn knows_weights(self) -> bool {
        matches!(self, Mode::Justitia | Mode::Proportional)
    }
}

/// Parameters of the policy. The defaults are what the lab's results were made with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How much of the policy is in force.
    pub mode: Mode,
    /// What the feedback aims at.
    pub objective: Objective,
    /// Feedback and thresholds.
    pub feedback: FeedbackConfig,
    /// How fast memory moves between colors, in both modes that have them.
    pub colors: ColorConfig,
    /// Mode `memoplight`.
    pub memoplight: MemoplightConfig,
    /// Memory that is free before somebody asks for it.
    pub guard: GuardConfig,
}

/// What a mode may do, resolved once a step.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a mode allows"
)]
pub(crate) struct Capabilities {
    /// Thresholds, block weights and the gate go by weight.
    pub weights: bool,
    /// Gains move, and writers are limited at their share.
    pub feedback: bool,
    /// What a group has no use for is lent by worth.
    pub lends: bool,
    /// How memory moves between colors.
    pub colors: Option<ColorRule>,
    /// Nothing is taken below what a group was seen to need.
    pub working_sets: bool,
    /// Memory is kept free.
    pub guard: bool,
}

/// How memory moves between colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColorRule {
    /// Declared colors bound demands, and what is freed goes by weight.
    Unified,
    /// The paper's table II, with inferred colors where none is declared.
    TableII,
}

impl Capabilities {
    pub(crate) fn of(config: &Config) -> Capabilities {
        let feedback = config.mode == Mode::Proportional;
        Capabilities {
            weights: config.mode.knows_weights(),
            feedback,
            lends: feedback && config.objective == Objective::Fair,
            colors: match config.mode {
                Mode::Proportional => Some(ColorRule::Unified),
                Mode::Memoplight => Some(ColorRule::TableII),
                Mode::Justitia | Mode::Observe => None,
            },
            working_sets: feedback || config.memoplight.working_set,
            guard: config.mode != Mode::Observe,
        }
    }
}

/// Parameters of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuardConfig {
    /// Keeps the reserve, and bounds who is not managed. What `justitia reserve` asks for is done
    /// without it too.
    pub enabled: bool,
    /// Memory to be kept free above the zones' high watermarks.
    pub reserve: Amount,
    /// Page cache that the root cgroup and groups that nobody manages may hold while memory is
    /// scarce.
    pub root_share: Amount,
}

impl Default for GuardConfig {
    fn default() -> Self {
        GuardConfig {
            enabled: false,
            reserve: Amount::Percent(2.0),
            root_share: Amount::Percent(10.0),
        }
    }
}

/// An amount of memory, absolute or as a part of all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Bytes.
    Bytes(Bytes),
    /// Percent of all memory.
    Percent(f64),
}

impl Amount {
    /// In bytes, never more than there is.
    pub fn of(self, total: Bytes) -> Bytes {
        match self {
            Amount::Bytes(bytes) => bytes.min(total),
            Amount::Percent(percent) => total.scale(percent / 100.0).min(total),
        }
    }
}

/// How fast memory moves between colors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColorConfig {
    /// Seconds between two takings.
    pub period_s: f64,
    /// What is taken from a group each time, percent of its whole footprint; in mode `proportional` of
    /// no more than five times its page cache, and less where those who are red fill memory more slowly.
    pub percent: f64,
    /// Yellow groups give too: in mode `memoplight` while one is red, in mode `proportional` when no
    /// green one can give more.
    pub yellow: bool,
}

impl Default for ColorConfig {
    /// The paper's.
    fn default() -> Self {
        ColorConfig {
            period_s: 1.0,
            percent: 2.0,
            yellow: true,
        }
    }
}

/// Parameters of mode `memoplight`. The default is the paper's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoplightConfig {
    /// Nothing is taken below the learned working set, which the paper leaves to the future.
    pub working_set: bool,
}

/// Parameters of the feedback loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeedbackConfig {
    /// Time constant of the bandwidth filter, seconds.
    pub smoothing_s: f64,
    /// Integral gain, per second, on the relative error.
    pub integral_per_s: f64,
    /// Proportional gain on the relative error.
    pub proportional: f64,
    /// The gain stays between `1 / gain_limit` and `gain_limit`.
    pub gain_limit: f64,
    /// Relative errors below this are left alone.
    pub dead_band: f64,
    /// A group contends when its tasks stalled on I/O or memory for more than this share of a
    /// period.
    pub stall_share: f64,
}

impl Default for FeedbackConfig {
    fn default() -> Self {
        FeedbackConfig {
            smoothing_s: 5.0,
            integral_per_s: 0.2,
            proportional: 0.2,
            gain_limit: 8.0,
            dead_band: 0.02,
            stall_share: 0.05,
        }
    }
}
