//! Objectives: for whom the feedback moves shares of page cache. A third one is a variant here.

use serde::{Deserialize, Serialize};

use super::activity::Activity;

/// What the feedback aims at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Weighted proportional fairness: never levels anybody down for nothing.
    #[default]
    Fair,
    /// The lowest proportionality variation, whatever it costs.
    Strict,
}

impl Objective {
    /// Whether a group that is busy in this way is ordered by its share of page cache.
    pub(crate) fn orders(self, activity: &Activity) -> bool {
        match self {
            // Less page cache costs a reader hits, which nobody else gains.
            Objective::Fair => activity.writer(),
            Objective::Strict => true,
        }
    }
}
