//! The policy of Justitia: a pure function from a snapshot of the host to a plan of knob writes.
//!
//! Nothing here does I/O, reads a clock or logs. [`step()`] is the entry point. No module imports a module
//! that imports it back:
//!
//! ```text
//! units, worth, cost, knob, color, snapshot, rates, plan, config   inputs and outputs
//! feedback                                                         what is learned about a group
//! decision                                                         one group in one step
//! share, caps, order, guard, writes, gate, disk                    stages of a step
//! watch                                                            suspends decisions that cost too much
//! step
//! ```
//!
//! Every quantity names its unit. A value that could not be read is `None`, and each module says what it
//! does then.
#![warn(missing_docs)]

mod block;
mod bound;
mod caps;
pub mod color;
pub mod config;
pub mod cost;
mod decision;
mod disk;
mod feedback;
mod gate;
mod guard;
pub mod knob;
pub mod metrics;
mod objective;
mod order;
pub mod plan;
pub mod rates;
mod share;
pub mod snapshot;
mod step;
#[cfg(test)]
mod tests;
pub mod units;
mod watch;
pub mod worth;
mod writes;

pub use color::Color;
pub use config::Config;
pub use plan::Plan;
pub use snapshot::Snapshot;
pub use step::{step, State, STATE_VERSION};
