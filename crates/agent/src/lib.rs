//! The agent: it observes, decides and applies once an interval. When it ends, it restores everything, unless
//! it hands over to the next agent ([`handover`]).
//!
//! ```text
//! cgroup, observe, discover -> observe -> policy::step -> apply -> cgroup
//!                                                           |
//!                                             journal <-----+-----> restore
//! ```
//!
//! Invariants: [`apply`] and [`restore`] are the only writers to the host, and decide nothing; the prior
//! value of a knob is on disk before our first write of it; a knob that another program changed belongs to
//! that program; no group waits for another; no client of the [`socket`] can delay the loop.

pub mod agent;
pub mod apply;
pub mod colors;
pub mod config;
mod devices;
mod disks;
pub mod handover;
pub mod journal;
pub mod lock;
pub mod notify;
pub mod observe;
mod owner;
pub mod pace;
mod pages;
mod record;
pub mod reserve;
pub mod restore;
mod rhythm;
pub mod run;
pub mod socket;
mod source;
mod tracked;
mod watch;

pub use agent::Agent;
pub use config::Settings;
pub(crate) use justitia_report::{error, log, status};
pub use justitia_report::{Error, Exit, Log, Result};
