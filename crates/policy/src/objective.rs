//! Objectives: for whom the feedback moves shares of page cache. A third one is a variant here.

use serde::{Deserialize, Serialize};

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
    /// Whether a busy group, a writer or not, is ordered by its share of page cache.
    pub(crate) fn orders(self, writer: bool) -> bool {
        match self {
            // Less page cache costs a reader hits, which nobody else gains.
            Objective::Fair => writer,
            Objective::Strict => true,
        }
    }
}
