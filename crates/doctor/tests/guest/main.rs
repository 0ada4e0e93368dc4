//! The doctor on real kernels: a guest is given one pitfall after the other, for real, and is put
//! right again each time.
//!
//! They share one host, so each puts back what it changed, and they run one after the other (the
//! lab passes `--test-threads=1`).

mod boots;
mod hog;
mod memory;
mod others;
mod rest;
mod scene;
mod table;
