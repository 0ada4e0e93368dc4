//! The analysis computes figures from recorded series. It is pure, so a record can be analyzed any number of
//! times.
//!
//! [`record`] keeps what a guest measured, [`ideal`] computes the entitlement of each container, [`window`]
//! turns one run into [`figures`], [`aggregate`] turns runs into medians, [`document`] is
//! result.json, and [`notes`] finds reasons to doubt a figure. Rates are in 10^6 bytes per second
//! (`mb_per_s`), sizes in 10^6 bytes (`mb`), times as their names say. Unknown is `None` (null), never zero.

pub mod aggregate;
pub mod document;
pub mod figures;
pub mod gate;
pub mod hostile;
pub mod ideal;
pub mod notes;
pub mod phases;
pub mod record;
pub mod residency;
pub mod responses;
pub mod result;
pub mod run;
pub mod weighted;
pub mod window;
