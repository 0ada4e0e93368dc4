//! Tests of several modules share these.

pub(crate) mod fixture;
