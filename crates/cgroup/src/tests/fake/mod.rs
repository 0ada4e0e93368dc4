//! A host in memory: a tree of cgroups whose files behave like the kernel's, with faults on order.
//!
//! The fake keeps these rules: texts are in the kernel's formats, so that the same parsers read them; limits
//! are rounded down to pages; lowering `memory.high` or `memory.max`, and `memory.reclaim`, take clean
//! unmapped page cache and nothing else; a removed group returns `ENODEV` for ever, and a new group under its
//! path has another id; the I/O of a child is added to its parent's when the parent waits for it.
//!
//! The fake leaves out hierarchical accounting (set an ancestor's gauges yourself), charging and time. It is
//! deterministic: only what a test orders happens.

mod directory;
mod fault;
mod files;
mod gate_device;
mod group;
mod host;
mod process;
#[cfg(test)]
mod tests;

pub use fault::{Fault, Gate};
pub use files::FakeHost;
pub use gate_device::FakeGate;
pub use group::FakeGroup;
pub use host::FakeFs;
