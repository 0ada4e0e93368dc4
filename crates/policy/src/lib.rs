//! The policy of Justitia: pure functions from what was seen to what is to be done.
//!
//! Nothing here does I/O, reads a clock or logs. Data flows `snapshot` -> [`step`] -> `plan`.

pub mod color;
pub mod config;
pub mod metrics;
pub mod plan;
pub mod snapshot;
pub mod units;

use std::time::Duration;

pub use config::Config;
pub use plan::Plan;
pub use snapshot::Snapshot;

/// What the policy remembers from one step to the next.
#[derive(Debug, Clone, Default)]
pub struct State {}

/// Decides: from what was remembered and what is seen now to what is remembered next and what is
/// to be done.
pub fn step(
    state: &State,
    _snapshot: &Snapshot,
    _config: &Config,
    _elapsed: Duration,
) -> (State, Plan) {
    (state.clone(), Plan::default())
}
