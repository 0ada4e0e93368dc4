//! Boots stock Debian kernels in QEMU. This crate knows nothing of what runs in them.
//!
//! [`vm::run_guest`] takes a [`vm::VmSpec`] and a job, both from the caller, and returns the report that the
//! guest program wrote. In the order of a boot: [`kernels`] and [`headers`] come from Debian's packages
//! ([`fetch`]), verified, into the [`cache`]; [`image`] makes the root and the disk of programs; [`qemu`]
//! builds the command line; [`console`] follows the guest; the [`job_disk`] carries the job in and the report
//! out. [`host`] measures what else the host does meanwhile.
//!
//! Any user may run it. Nothing is installed and nothing below `/boot` is touched.

pub mod architecture;
pub mod cache;
pub mod console;
pub mod error;
pub mod fetch;
pub mod headers;
pub mod host;
pub mod image;
pub mod job_disk;
pub mod kernels;
pub mod modules;
mod packages;
pub mod qemu;
mod sealed;
pub mod toolchain;
pub mod tools;
pub mod vm;
