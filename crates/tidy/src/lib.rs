//! Tests only: invariants of `ARCHITECTURE.md` that can be checked from the source tree
//! (`tests/invariants.rs`), and checks of the pages (`tests/docs.rs`).
