//! Memory-pressure pitfalls of a host, found before they hurt.
//!
//! Three layers: **facts** ([`gather()`] looks at the host once, at what moves twice), **checks**
//! ([`CHECKS`], pure functions of the facts) and the **report** ([`Report`]). A check ends in one
//! of three ways: it found something, all is well, or it could not tell and says why. What is
//! unknown is never well.
//!
//! Follows `LinkedIn`'s account of cgroups under memory pressure: a limit reserves nothing, page
//! cache counts against it and anonymous memory takes its place, and what is outside all limits
//! takes from everybody. The rest are traps of the kernel's knobs that Justitia met on its way.
//!
//! Invariants: nothing is written; each file is read once, and only the counters of which rates are
//! made a second time; each check has a section of its own in `docs/doctor.md`.

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
pub use facts::{Facts, GroupFacts, Knobs};
pub use gather::{gather, Look};
pub use report::{examine, CheckReport, FindingReport, HostReport, Report, Verdict};
pub use silence::Silence;
