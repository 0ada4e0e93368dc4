//! The agent: observe, decide, apply, once an interval; and nothing left changed when it leaves, unless to
//! the next one ([`handover`]).
//!
//! ```text
//! cgroup, observe, discover -> observe -> policy::step -> apply -> cgroup
//!                                                           |
//!                                             journal <-----+-----> restore
//! ```
//!
//! Invariants: [`apply`] and [`restore`] are the only writers to the host, and decide nothing;
//! what a knob held before is on disk before our first write of it; a knob that somebody else
//! changed is theirs; no group waits for another; nobody who asks on the [`socket`] can hold up
//! the loop.

pub mod agent;
pub mod apply;
pub mod colors;
pub mod config;
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
pub mod run;
pub mod socket;
mod source;
mod tracked;

pub use agent::Agent;
pub use config::Settings;
pub(crate) use justitia_report::{error, log, status};
pub use justitia_report::{Error, Exit, Log, Result};
