//! Objectives: the groups that the feedback orders by their shares of page cache, lending, and whether decisions
//! may cost traffic. A new objective is a variant of [`Objective`] and touches no other source file.

use serde::{Deserialize, Serialize};

/// The aim of the feedback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Weighted proportional fairness: no group is slowed down unless another group gains.
    #[default]
    Fair,
    /// The lowest proportionality variation, whatever it costs.
    Strict,
}

impl Objective {
    /// The names in configurations and on command lines.
    pub const NAMES: &[&str] = &["fair", "strict"];

    /// True if the feedback orders a busy group by its share of page cache. `writer`: the group is a writer.
    pub(crate) fn orders(self, writer: bool) -> bool {
        match self {
            // Less page cache costs a reader hits, and no other group gains them.
            Objective::Fair => writer,
            Objective::Strict => true,
        }
    }

    /// True if groups that hit without their whole share lend the rest ([`crate::share::lend`]).
    pub(crate) fn lends(self) -> bool {
        match self {
            Objective::Fair => true,
            // A loan moves shares away from the ratio of weights.
            Objective::Strict => false,
        }
    }

    /// True if decisions that cost too much traffic are withdrawn ([`crate::watch`]).
    pub(crate) fn bounds_cost(self) -> bool {
        match self {
            Objective::Fair => true,
            Objective::Strict => false,
        }
    }
}
