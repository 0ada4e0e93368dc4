//! Tests of several modules share these.

pub(crate) mod testing;
