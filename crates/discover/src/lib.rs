//! Which cgroups to manage, and what weight their owner meant them to have.
//!
//! [`Scanner`] walks the tree of cgroups and keeps a list of [`Discovered`] groups: those that
//! match the operator's globs, or, without globs, the containers, pods and virtual machines that
//! their names or a container runtime's records give away. Weights are recovered from where the
//! owner wrote them down, because the files in the cgroup may hold a distorted number (see
//! [`oci`]).
//!
//! Only root's word is a weight ([`scanner`] says whose a cgroup is): what is stated below a directory that
//! root delegated divides what that directory is entitled to.
//!
//! Invariants: discovering changes nothing on the host; a runtime's record that cannot be read or
//! understood is no record; a weight out of range is no weight; one bad group or file keeps nobody else from
//! being found, and nothing that a tenant can make costs more than a bound.

mod asked;
mod discovered;
pub mod glob;
pub mod kind;
pub mod kubernetes;
pub mod oci;
mod scanner;
#[cfg(test)]
mod tests;
mod trusted;
mod weight;

pub use asked::Owners;
pub use discovered::{Changes, DiscoverConfig, Discovered, Trouble, Weighed};
pub use glob::{Glob, GlobError};
pub use kind::Kind;
pub use kubernetes::{KubernetesConfig, Pod, PodNames, Pods};
pub use oci::RuntimeDirs;
pub use scanner::Scanner;
pub use trusted::Author;
pub use weight::Priors;
