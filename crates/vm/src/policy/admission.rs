//! Admission: a page is kept from its second request on.
//!
//! The kernel has already put the page into the cache when the guest's read returns, so a page that is not to
//! be kept is dropped soon after. [`after_first_request`] lists the pages of a used block to drop now. It
//! leaves pages of readahead that were not requested yet (count 0), because the guest may be about to read
//! them. Once a block has been quiet for [`QUIET_MS`], [`when_quiet`] lists these pages too.
//!
//! A write is not a request, because the guest has the data; written pages are dropped once they are clean.
//!
//! Dirty pages are neither dropped nor written early: a block is visited again until the kernel has written
//! them back. Where the kernel does not report dirty pages, a block is left alone for [`WRITTEN_MS`] after
//! its last write ([`Verdict::Wait`]).

use super::pages::{at_least, fresh, runs, Block, Run};

/// A block unused for this long, in milliseconds, has no reader about to reach its readahead.
pub const QUIET_MS: u64 = 3_000;
/// Milliseconds after which the kernel has written back a dirty page: `dirty_expire_centisecs` plus
/// `dirty_writeback_centisecs` at their defaults, 30 s and 5 s.
pub const WRITTEN_MS: u64 = 35_000;
/// A page that cannot be dropped for this long, in milliseconds, is in use: mapped, or part of a larger folio
/// that stays.
pub const PATIENCE_MS: u64 = 60_000;

/// Pages that were used since the last visit and requested at most once.
pub fn after_first_request(block: &Block) -> Vec<Run> {
    runs(block, |word| fresh(word) & !at_least(word, 2))
}

/// Pages requested at most once: also those fetched by readahead and never requested.
pub fn when_quiet(block: &Block) -> Vec<Run> {
    runs(block, |word| at_least(word, 0) & !at_least(word, 2))
}

/// The use of a block so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Milliseconds since a page of it was last requested, written or fetched by readahead.
    pub quiet_ms: u64,
    /// Milliseconds since a page of it was last made dirty; `None`: never.
    pub written_ms: Option<u64>,
    /// True if the kernel reports the dirty pages of each run.
    pub dirty_is_known: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Drop nothing yet: pages may be dirty.
    Wait,
    /// Drop [`after_first_request`], and visit the block again.
    DropUsed,
    /// Drop [`when_quiet`]. If every page went, skip the block until its next use.
    DropQuiet,
    /// As [`Verdict::DropQuiet`], but skip the block until its next use even if pages stayed.
    GiveUp,
}

/// Decides for a block that is pending: used, and not yet finished.
pub fn decide(used: &Use) -> Verdict {
    let resting = used.written_ms.is_some_and(|ms| ms < WRITTEN_MS);
    if resting && !used.dirty_is_known {
        Verdict::Wait
    } else if used.quiet_ms < QUIET_MS {
        Verdict::DropUsed
    } else if used.quiet_ms < PATIENCE_MS || resting {
        Verdict::DropQuiet
    } else {
        Verdict::GiveUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pages::{count, mask, requested, written, PAGES_PER_BLOCK, WORDS};
    use proptest::prelude::*;

    const USED: Use = Use {
        quiet_ms: 0,
        written_ms: None,
        dirty_is_known: true,
    };

    #[test]
    fn the_first_request_is_dropped_the_second_stays_and_readahead_waits() {
        let mut block = [0; WORDS];
        block[0] = requested(block[0], mask(0, 8));
        assert_eq!(after_first_request(&block), [Run { from: 0, to: 8 }]);
        block[0] = requested(block[0], mask(2, 4));
        let left = [Run { from: 0, to: 2 }, Run { from: 4, to: 8 }];
        assert_eq!(after_first_request(&block), left);
        let quiet = [
            Run { from: 0, to: 2 },
            Run {
                from: 4,
                to: PAGES_PER_BLOCK,
            },
        ];
        assert_eq!(when_quiet(&block), quiet);
    }

    #[test]
    fn writing_is_no_request() {
        let page = mask(0, 1);
        let goes = |word: u64| {
            let mut block = [0; WORDS];
            block[0] = word;
            after_first_request(&block)
        };
        let written = written(written(0, page), page);
        assert_eq!(goes(written), [Run { from: 0, to: 1 }]);
        assert_eq!(goes(requested(written, page)), [Run { from: 0, to: 1 }]);
        assert_eq!(goes(requested(requested(written, page), page)), []);
    }

    #[test]
    fn a_block_that_may_be_dirty_is_never_given_up_and_waits_if_that_is_unknown() {
        let mut used = Use {
            written_ms: Some(WRITTEN_MS - 1),
            dirty_is_known: false,
            ..USED
        };
        assert_eq!(decide(&used), Verdict::Wait);
        used.quiet_ms = 10 * PATIENCE_MS;
        assert_eq!(decide(&used), Verdict::Wait);
        used.dirty_is_known = true;
        assert_eq!(decide(&used), Verdict::DropQuiet);
        used.written_ms = Some(WRITTEN_MS);
        assert_eq!(decide(&used), Verdict::GiveUp);
    }

    proptest! {
        #[test]
        fn a_page_that_was_requested_again_is_never_dropped(block: Block) {
            for run in after_first_request(&block).into_iter().chain(when_quiet(&block)) {
                for page in run.from..run.to {
                    prop_assert!(count(&block, page) < 2);
                }
            }
        }
    }
}
