//! What the hypervisor keeps of its virtual machines' disk images (Cacol).
//!
//! A guest caches what it reads, so the host's copy of it is a duplicate, unless the guest comes
//! back for the page: then it has evicted it, and will again. So on its first request a page is
//! served and not kept, on its second it stays ([`admission`]). What stays is ordered by how often
//! it was asked for, and loses a request each time a search for memory passes it ([`eviction`]).
//! Memory is shared fairly: half of what is free or cache is the machines', each has a low
//! watermark of it, and the least recently used machine above its own gives first ([`fairness`]).
//!
//! [`pages`] is the book of requests: four bits a page, 12.5 MiB for an image of 100 GiB.
//!
//! Source: the paper "Cacol", sections 4.1 and 4.2. Ours: writes are no requests to come back for
//! (the guest has what it writes), and watermarks may go by weight.

pub mod admission;
pub mod eviction;
pub mod fairness;
pub mod pages;

use serde::{Deserialize, Serialize};

/// What is done with the host's cache of images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    /// Nothing: the kernel's own.
    Default,
    /// Everything is kept. What has to give: pages asked for once, then the least recently used.
    Lru2,
    /// Everything is kept. What has to give: pages asked for least often.
    Lfu,
    /// Kept on the second request; what has to give: pages asked for least often.
    #[default]
    Justitia,
}

impl Replacement {
    /// Their names, as the command and `--json` say them.
    pub const NAMES: [&'static str; 4] = ["default", "lru2", "lfu", "justitia"];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Replacement::Default => "default",
            Replacement::Lru2 => "lru2",
            Replacement::Lfu => "lfu",
            Replacement::Justitia => "justitia",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Replacement> {
        use Replacement::{Default, Justitia, Lfu, Lru2};
        let all = [Default, Lru2, Lfu, Justitia];
        all.into_iter().find(|one| one.name() == name)
    }

    /// Whether a page is dropped after its first request.
    pub fn admits_on_second(self) -> bool {
        self == Replacement::Justitia
    }

    /// Whether machines above their watermarks give when memory is short.
    pub fn evicts(self) -> bool {
        self != Replacement::Default
    }
}
