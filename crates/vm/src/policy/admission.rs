//! A page is kept from its second request on.
//!
//! The kernel has put what a guest read into the cache already; what is not to be kept is dropped
//! soon after. Of a block that was used, [`after_first_request`] are the pages to drop now.
//! Readahead that nobody asked for yet (count 0) is left alone: the guest is on its way to it. When
//! a block has been quiet for [`QUIET_MS`], nobody is, and [`when_quiet`] takes it too.
//!
//! What a guest writes it has: writing is no request, and written pages go once they are clean.
//!
//! Dirty pages are not dropped and not written early: a block is looked at again until the kernel
//! has written them in its own time ([`Verdict::Wait`]). Where what is dirty cannot be asked, a
//! block rests for [`WRITTEN_MS`] after it was last written.

use super::pages::{at_least, fresh, runs, Block, Run};

/// A block that was not used for so long, milliseconds, has no reader on the way.
pub const QUIET_MS: u64 = 3_000;
/// The kernel has written by then what was dirty: `dirty_expire_centisecs` and
/// `dirty_writeback_centisecs` at their defaults, 30 s and 5 s. Milliseconds.
pub const WRITTEN_MS: u64 = 35_000;
/// A page that would not go for so long, milliseconds, is somebody's (mapped, or part of a larger
/// folio that stays).
pub const PATIENCE_MS: u64 = 60_000;

/// Pages that were used since the last look and that nobody came back for.
pub fn after_first_request(block: &Block) -> Vec<Run> {
    runs(block, |word| fresh(word) & !at_least(word, 2))
}

/// Pages that nobody came back for: asked for once, or fetched ahead and never asked for.
pub fn when_quiet(block: &Block) -> Vec<Run> {
    runs(block, |word| at_least(word, 0) & !at_least(word, 2))
}

/// What is known of a block's use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Milliseconds since it was last used, or fetched ahead.
    pub quiet_ms: u64,
    /// Milliseconds since a page of it was last made dirty; `None`: never.
    pub written_ms: Option<u64>,
    /// Whether what is dirty can be asked of the kernel for each run.
    pub dirty_is_known: bool,
}

/// What to do with a block now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Not yet: it may be dirty.
    Wait,
    /// Drop [`after_first_request`], and look again.
    DropUsed,
    /// Drop [`when_quiet`]; when that succeeded there is nothing to look for until it is used.
    DropQuiet,
    /// As [`Verdict::DropQuiet`], and leave it alone after it, whatever came of it.
    GiveUp,
}

/// Decides about a block that was used and is not done with.
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
