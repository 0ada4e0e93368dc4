//! A host in memory: a tree of cgroups whose files behave like the kernel's, with faults on order.
//!
//! What it keeps to: texts in the kernel's formats, so that the same parsers read them; limits are
//! rounded down to pages; lowering `memory.high` or `memory.max`, and `memory.reclaim`, take clean
//! unmapped page cache and no more; a removed group answers `ENODEV` for ever, and one made again
//! under its path has another id; a child that its parent waits for adds its I/O to the parent's.
//!
//! What it leaves out: hierarchical accounting (set an ancestor's gauges yourself), charging,
//! time. Deterministic: nothing happens but what a test orders.

mod directory;
mod fault;
mod gate_device;
mod group;
mod host;
mod process;
#[cfg(test)]
mod tests;

pub use fault::{Fault, Gate};
pub use gate_device::FakeGate;
pub use group::FakeGroup;
pub use host::FakeFs;
