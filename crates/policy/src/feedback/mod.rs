//! How bandwidth is kept in the ratio of the weights.

pub mod activity;
pub mod controller;
pub mod limits;
