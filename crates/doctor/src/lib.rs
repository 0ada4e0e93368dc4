//! Finds memory-pressure pitfalls of a host before they cause harm.
//!
//! Three layers: **facts** ([`gather()`] reads the host once, and counters twice), **checks** ([`CHECKS`],
//! pure functions of the facts) and the **report** ([`Report`]). A check has one of three results: it found
//! something, all is well, or it could not tell and says why. A check with unknown facts never reports that
//! all is well.
//!
//! Follows `LinkedIn`'s account of cgroups under memory pressure: a limit reserves nothing; page cache counts
//! against it, and anonymous memory takes its place; workloads outside all limits take memory from everybody.
//! The other checks are for traps of the kernel's knobs that Justitia met.
//!
//! Invariants: nothing is written. Each file is read once; only the counters behind rates are read a second
//! time. Each check has its own section in `docs/doctor.md`.

mod check;
mod checks;
mod facts;
mod gather;
mod remedy;
mod report;
mod silence;
#[cfg(test)]
mod tests;

pub use check::{Check, Finding, Outcome, Severity, Subject};
pub use checks::{find_check, CHECKS};
pub use facts::{Facts, GroupFacts};
pub use gather::{gather, Look};
pub use report::{examine, CheckReport, HostReport, Report, Verdict};
pub use silence::Silence;
