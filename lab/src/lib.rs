//! The lab.
pub mod protocol;
