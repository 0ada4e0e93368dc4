//! Who is entitled to how much page cache.

pub mod entitlement;
pub mod ownership;
pub mod water;
