//! Decides which pages of virtual machines' disk images the host's page cache keeps (Cacol).
//!
//! A guest caches what it reads, so the host's copy is a duplicate. If the guest requests a page again, it
//! has evicted its own copy, and will do so again. The first request of a page is therefore served and not
//! kept, and the second one keeps the page ([`admission`]). Kept pages are ordered by their number of
//! requests and lose one each time a search for memory passes them ([`eviction`]). Memory is shared fairly
//! ([`fairness`]): half of free memory and page cache belongs to the machines, each machine has a low
//! watermark within that half, and the least recently used machine above its watermark gives first.
//!
//! [`pages`] counts requests: four bits a page, 12.5 MiB for an image of 100 GiB.
//!
//! Source: the paper "Cacol", sections 4.1 and 4.2. Two differences are ours: a write is not a request,
//! because the guest has the data that it writes, and watermarks may follow weights.

pub mod admission;
pub mod eviction;
pub mod fairness;
pub mod pages;

use serde::{Deserialize, Serialize};

/// A policy for the host's cache of images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    /// The kernel decides alone.
    Default,
    /// Everything is kept. Pages requested once are evicted first, then the least recently used.
    Lru2,
    /// Everything is kept. The least frequently requested pages are evicted first.
    Lfu,
    /// Pages are kept from the second request on. The least frequently requested are evicted first.
    #[default]
    Justitia,
}

impl Replacement {
    /// The names in the command line and `--json`.
    pub const NAMES: [&'static str; 4] = ["default", "lru2", "lfu", "justitia"];

    /// True if a page is dropped after its first request.
    pub fn admits_on_second(self) -> bool {
        self == Replacement::Justitia
    }

    /// True if machines above their watermarks give when memory is short.
    pub fn evicts(self) -> bool {
        self != Replacement::Default
    }
}
