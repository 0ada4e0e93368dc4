//! Virtual machines' disk images and what the host's page cache holds of them.
//!
//! [`discover`] finds QEMU's processes and the images they hold open; [`Image`] is one of these,
//! reopened read-only; [`track`] counts who asks for which page, by BPF programs; [`ImageCache`] brings
//! them together with the pure policy ([`policy`]) and drops what is not to be
//! kept; [`control`] is the socket by which a running image cache is asked and told.
//!
//! Invariants: an image is never written, and nothing about it is changed that outlives us: the
//! one thing done is `posix_fadvise(POSIX_FADV_DONTNEED)` on a descriptor of our own, which takes
//! clean pages out of the page cache. Dirty pages are not touched. Images past the page cache
//! (`cache=none`) are left alone. What could not be read is `None`.

pub mod control;
pub mod discover;
mod error;
mod image;
mod image_cache;
pub mod policy;
pub mod qcow2;
pub mod report;
mod residency;
pub mod track;

pub use error::Error;
pub use image::{Dropped, Identity, Image};
pub use image_cache::{ImageCache, Settings};
pub use residency::{Resident, Sight};
