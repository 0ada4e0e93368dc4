//! Which cgroups to manage, and what weight their owner meant them to have.
//!
//! [`Scanner`] walks the tree of cgroups and keeps a list of [`Discovered`] groups: those that
//! match the operator's globs, or, without globs, the containers, pods and virtual machines that
//! their names or a container runtime's records give away. Weights are recovered from where the
//! owner wrote them down, because the files in the cgroup may hold a distorted number (see
//! [`oci`]).
//!
//! Invariants: discovering changes nothing on the host; a runtime's record that cannot be read or
//! understood is no record; a weight out of range is no weight.

mod asked;
pub mod glob;
pub mod kind;
pub mod oci;
mod scanner;
#[cfg(test)]
mod tests;
mod weight;

pub use asked::Owners;
pub use glob::{Glob, GlobError};
pub use kind::Kind;
pub use oci::RuntimeDirs;
pub use scanner::{Changes, DiscoverConfig, Discovered, Scanner};
pub use weight::Priors;
