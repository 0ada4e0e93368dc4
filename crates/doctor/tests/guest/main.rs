//! Tests the doctor on real kernels: each test builds pitfalls in a guest, one after the other, and repairs
//! each.
//!
//! The tests share one host, so each restores what it changed, and they run one at a time (the lab passes
//! `--test-threads=1`).

mod boots;
mod hog;
mod memory;
mod others;
mod rest;
mod scene;
mod table;
