//! Manages the host's page cache of virtual machines' disk images.
//!
//! [`discover`] finds QEMU's processes and the images they hold open. [`Image`] is one image, reopened
//! read-only. [`track`] counts requests for its pages by BPF programs. [`ImageCache`] runs the pure policy
//! ([`policy`]) on these counts and drops pages. [`control`] is the socket that queries a running image cache
//! and changes its policy.
//!
//! Invariants: an image is never written. The only operation on it is `posix_fadvise(POSIX_FADV_DONTNEED)` on
//! a descriptor of our own, which drops clean pages from the page cache and leaves nothing to undo. Dirty
//! pages are not touched. Images that bypass the page cache (`cache=none`) are left alone. A value that could
//! not be read is `None`.

pub mod control;
pub mod discover;
mod image;
mod image_cache;
pub mod policy;
pub mod qcow2;
pub mod report;
mod residency;
pub mod track;

pub use image::{Dropped, Identity, Image};
pub use image_cache::{ImageCache, Settings};
pub use justitia_report::Error;
pub use residency::{Resident, Sight};
