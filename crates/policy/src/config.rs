//! The operator's settings of the policy. The agent reads them from TOML.

use serde::{Deserialize, Serialize};

pub use crate::objective::Objective;
use crate::units::Bytes;

/// The part of the policy that is in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Measure, write nothing.
    Observe,
    /// The paper: thresholds by weight, no feedback.
    Justitia,
    /// Thresholds and feedback. Memory also moves from groups that declare themselves satisfied to groups
    /// that declare that they are not.
    #[default]
    Proportional,
    /// MemOpLight (table II) alone: memory moves from satisfied groups to unsatisfied ones, whatever the
    /// weights.
    Memoplight,
}

impl Mode {
    /// The names in configurations and on command lines.
    pub const NAMES: &[&str] = &["observe", "justitia", "proportional", "memoplight"];

    /// True if the mode uses weights.
    pub fn knows_weights(self) -> bool {
        matches!(self, Mode::Justitia | Mode::Proportional)
    }
}

/// Parameters of the policy. The lab's results were made with the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The part of the policy that is in force.
    pub mode: Mode,
    /// Objective of the feedback.
    pub objective: Objective,
    /// Feedback and thresholds.
    pub feedback: FeedbackConfig,
    /// Speed at which memory moves between colors, in modes `proportional` and `memoplight`.
    pub colors: ColorConfig,
    /// Mode `memoplight`.
    pub memoplight: MemoplightConfig,
    /// Memory that the guard keeps free.
    pub guard: GuardConfig,
    /// Largest cost of a kind of decision to all groups together before the watch ([`crate::watch`]) withdraws it,
    /// percent of their traffic; 0: the watch is off, as in records without this key.
    #[serde(default)]
    pub max_loss: f64,
}

impl Config {
    /// The defaults in another mode.
    pub fn in_mode(mode: Mode) -> Config {
        Config {
            mode,
            ..Config::default()
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mode: Mode::default(),
            objective: Objective::default(),
            feedback: FeedbackConfig::default(),
            colors: ColorConfig::default(),
            memoplight: MemoplightConfig::default(),
            guard: GuardConfig::default(),
            max_loss: 3.0,
        }
    }
}

/// Capabilities of a mode, resolved once per step.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a mode allows"
)]
pub(crate) struct Capabilities {
    /// Thresholds, block weights and the gate follow weights.
    pub weights: bool,
    /// Gains move, and writers are limited at their share.
    pub feedback: bool,
    /// Memory that a group has no use for is lent by worth.
    pub lends: bool,
    /// The rule by which memory moves between colors; `None`: colors move nothing.
    pub colors: Option<ColorRule>,
    /// Memory is not taken below a group's learned working set.
    pub working_sets: bool,
    /// Memory is kept free.
    pub guard: bool,
    /// The watch measures the cost of decisions, unless the objective accepts any cost.
    pub watch: bool,
}

/// The rule by which memory moves between colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColorRule {
    /// Declared colors bound demands, and freed memory is divided by weight.
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
            lends: feedback && config.objective.lends(),
            colors: match config.mode {
                Mode::Proportional => Some(ColorRule::Unified),
                Mode::Memoplight => Some(ColorRule::TableII),
                Mode::Justitia | Mode::Observe => None,
            },
            working_sets: feedback || config.memoplight.working_set,
            guard: config.mode != Mode::Observe,
            watch: feedback && config.objective.bounds_cost() && config.max_loss > 0.0,
        }
    }
}

/// Parameters of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuardConfig {
    /// Keeps the reserve and bounds unmanaged page cache. Reservations of `justitia reserve` work without it.
    pub enabled: bool,
    /// Memory to keep free above the zones' high watermarks.
    pub reserve: Amount,
    /// Page cache that the root cgroup and unmanaged groups may hold while memory is scarce.
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

/// An amount of memory: absolute, or a percentage of all memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Bytes.
    Bytes(Bytes),
    /// Percent of all memory.
    Percent(f64),
}

impl Amount {
    /// In bytes, at most `total`.
    pub fn of(self, total: Bytes) -> Bytes {
        match self {
            Amount::Bytes(bytes) => bytes.min(total),
            Amount::Percent(percent) => total.scale(percent / 100.0).min(total),
        }
    }
}

/// Speed at which memory moves between colors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColorConfig {
    /// Period of rebalancing, seconds.
    pub period_s: f64,
    /// Percentage of a group's footprint that is taken in each period. In mode `proportional` the footprint
    /// counts up to five times the group's page cache, and less is taken while red groups fill memory more
    /// slowly.
    pub percent: f64,
    /// Yellow groups give too: in mode `memoplight` while a group is red, in mode `proportional` when no
    /// green group can give more.
    pub yellow: bool,
}

impl Default for ColorConfig {
    /// The paper's values.
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
    /// Memory is not taken below the learned working set, which the paper leaves to future work.
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
    /// The integral does not move while the filtered relative error is this small.
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
