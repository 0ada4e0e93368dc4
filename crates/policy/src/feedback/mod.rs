//! Feedback: what the policy learns about a group from its behavior.
//!
//! - [`activity`]: whether it contends, writes or claims;
//! - [`controller`]: the gain on its share;
//! - [`working_set`]: how much memory it needs to stay satisfied;
//! - [`backoff`]: how much may be taken from it;
//! - [`limits`]: what `memory.high` may do to it.
//!
//! Each knows one group, and nothing of a step.

pub(crate) mod activity;
pub(crate) mod backoff;
pub(crate) mod controller;
pub(crate) mod limits;
pub(crate) mod working_set;
