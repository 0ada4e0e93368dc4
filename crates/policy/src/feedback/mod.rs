//! What is learned of a group from what it does: whether it contends ([`activity`]), the gain on its
//! share ([`controller`]), what it needs to stay well ([`working_set`]), how hard it may be taken from
//! ([`backoff`]); and what a limit may do to it ([`limits`]). Each knows one group, and nothing of
//! a step.

pub(crate) mod activity;
pub(crate) mod backoff;
pub(crate) mod controller;
pub(crate) mod limits;
pub(crate) mod working_set;
