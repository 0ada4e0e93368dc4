//! No code, only tests: those invariants of `ARCHITECTURE.md` that can be checked by reading the
//! tree. They live in `tests/invariants.rs`.
