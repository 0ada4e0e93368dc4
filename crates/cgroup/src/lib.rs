//! The only crate that names cgroup, PSI, `/proc` and `/sys` files.
//!
//! Data flows from text to numbers and back. [`parse`] holds the pure parsers. A [`Group`] is a cgroup (its
//! id and an open directory) or a disk's scheduler. It comes from [`RealFs`] or, in tests, from `FakeFs`. Only [`Writer`]
//! writes without blocking the caller. Only [`Events`] waits.
//!
//! Invariants: a value that could not be read is `None` or an error, never zero; a removed group stays
//! [`Why::Gone`], whatever is created later under its path; this crate decides nothing.
//!
//! Left out on purpose: cgroup v1, creating cgroups, moving processes.
#![warn(missing_docs)]

mod disk;
pub mod error;
pub mod events;
#[cfg(any(test, feature = "fake"))]
#[path = "tests/fake/mod.rs"]
pub mod fake;
mod file;
mod fs;
pub mod gate;
mod gauges;
mod group;
pub mod parse;
mod real;
pub mod survey;
pub mod writer;

pub use error::{Error, MountError, Why};
pub use events::{Events, Wake, Waker};
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeFs;
pub use file::{disk_name, Buffer, File};
pub use fs::{CgroupFs, Child, Fs, Owner, Process};
pub use gauges::{is_near, Activity, Gauges, Want};
pub use group::{xattr, Attribute, Directory, Group, Quirks, Watch, WatchKind, Written};
pub use parse::files::FdInfo;
pub use parse::io::Device;
pub use parse::memory::MemoryEvents;
pub use parse::proc::ProcessIo;
pub use parse::unescape;
pub use real::{
    boot_id, has_btf, has_nohz_full, module_has, mount_of, now_boottime, resident_bytes,
    sees_all_processes, Claim, HostMemory, Mount, MountOf, OpenFile, OwnGroup, Processes, RealFs,
};
pub use writer::{Outcome, WriteResult, Writer, WriterConfig};

pub use justitia_policy::snapshot::GroupId;
