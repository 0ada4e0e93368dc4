//! Supply: how much memory is free for groups that want more.

use crate::snapshot::Host;
use crate::units::Bytes;

/// Memory is scarce while free memory above the high watermark is less than this part of what could be page
/// cache. With a larger bound, memory that is taken lies unused, because a disk fills memory more slowly than
/// caps free it. With a smaller bound nothing is taken, because kswapd leaves some memory free when it stops.
/// (Eight databases with 120 MB of page cache in a guest of 1.9 GB: 1/32 of all memory is half of that page
/// cache; with 1/32 of the page cache green groups had no cap while others were red.)
const SCARCE_OF_PAGE_CACHE: u64 = 8;
/// The same for memory of any kind, as a part of all memory.
const SCARCE_OF_MEMORY: u64 = 32;
/// Upper limit of both.
const SCARCE_MOST: Bytes = Bytes(1 << 30);
/// Memory is plentiful from this many times the scarce amount.
const PLENTY: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Supply {
    /// Little: a group gets more only from another group.
    Scarce,
    /// Neither, or unknown.
    Between,
    /// Enough: nothing has to be taken.
    Plenty,
}

impl Supply {
    /// Supply of page cache, with `reserve` kept free for others. `Between` if the host could not be read.
    pub(crate) fn of_page_cache(host: &Host, reserve: Bytes) -> Supply {
        let Some((spare, file)) = host.spare().zip(host.file) else {
            return Supply::Between;
        };
        let spare = spare - reserve;
        Supply::of(spare, Bytes((file + spare).0 / SCARCE_OF_PAGE_CACHE))
    }

    /// Supply of memory of any kind. `Between` if the host could not be read.
    pub(crate) fn of_memory(host: &Host) -> Supply {
        match host.spare().zip(host.total) {
            Some((spare, total)) => Supply::of(spare, Bytes(total.0 / SCARCE_OF_MEMORY)),
            None => Supply::Between,
        }
    }

    fn of(spare: Bytes, little: Bytes) -> Supply {
        let little = little.min(SCARCE_MOST);
        if spare < little {
            Supply::Scarce
        } else if spare < little.scale(PLENTY) {
            Supply::Between
        } else {
            Supply::Plenty
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supply_is_scarce_between_or_plenty_by_free_memory() {
        let host = |free| Host {
            total: Some(Bytes::mib(6400)),
            file: Some(Bytes::mib(3200)),
            free: Some(Bytes::mib(free)),
            high_watermark: Some(Bytes::mib(20)),
            ..Host::default()
        };
        let page_cache = |free| Supply::of_page_cache(&host(free), Bytes::ZERO);
        assert_eq!(page_cache(10), Supply::Scarce);
        assert_eq!(page_cache(470), Supply::Scarce);
        assert_eq!(page_cache(480), Supply::Between);
        assert_eq!(page_cache(1100), Supply::Plenty);
        assert_eq!(Supply::of_memory(&host(219)), Supply::Scarce);
        assert_eq!(Supply::of_memory(&host(221)), Supply::Between);
        assert_eq!(Supply::of_memory(&host(421)), Supply::Plenty);
    }

    #[test]
    fn memory_kept_free_for_others_is_no_supply() {
        let host = Host {
            file: Some(Bytes::mib(3200)),
            free: Some(Bytes::mib(1500)),
            high_watermark: Some(Bytes::ZERO),
            ..Host::default()
        };
        assert_eq!(Supply::of_page_cache(&host, Bytes::ZERO), Supply::Plenty);
        assert_eq!(
            Supply::of_page_cache(&host, Bytes::mib(1200)),
            Supply::Scarce
        );
    }
}
