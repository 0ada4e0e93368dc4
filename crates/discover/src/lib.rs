//! Finds the cgroups to manage, and the weight that the owner of each meant it to have.
//!
//! [`Scanner`] walks the cgroup tree and keeps a list of [`Discovered`] groups: those that match the
//! operator's globs. Without globs, it lists the containers, pods and virtual machines that their names or a
//! container runtime's records identify. A weight is read from the place where the owner stated it, because
//! the files in the cgroup may hold a distorted number (see [`oci`]).
//!
//! Only root's word is a weight ([`scanner`] decides whose a cgroup is). A weight stated below a directory
//! that root delegated divides that directory's entitlement.
//!
//! Invariants: discovering changes nothing on the host. A runtime's record that cannot be read or parsed is
//! no record, and a weight out of range is no weight. One bad group or file does not keep others from being
//! found. Nothing that a tenant can make costs more than a bound.

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
pub use discovered::{DiscoverConfig, Discovered, Weighed};
pub use glob::{Glob, GlobError};
pub use kind::Kind;
pub use kubernetes::{KubernetesConfig, Pod, PodNames, Pods};
pub use oci::RuntimeDirs;
pub use scanner::Scanner;
pub use trusted::Author;
pub use weight::Priors;
