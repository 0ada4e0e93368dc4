//! Which pages of a machine give when memory is short.
//!
//! Least frequently used with decay: a search goes around the machine's blocks like the hand of a
//! clock. A page asked for once goes; one asked for more often loses a request and stays. So after
//! at most [`MOST`](super::pages::MOST) rounds every page that nobody asks for has gone, however
//! often it was asked for once. A page that went keeps its count: the next request for it is its
//! second.
//!
//! Least recently used, in two classes (LRU-2, as far as counts without times allow): pages asked
//! for once, the block used longest ago first, then whole blocks in the same order.

use super::pages::{at_least, decayed, runs, Block, Mask, Run};

/// What the hand finds in a block: the pages that go, and the words as they are then.
pub fn pass(block: &Block) -> (Vec<Run>, Block) {
    let goes = runs(block, least);
    let after = block.map(|word| decayed(word, at_least(word, 0)));
    (goes, after)
}

/// Pages asked for at most once.
pub fn least(word: u64) -> Mask {
    at_least(word, 0) & !at_least(word, 2)
}

/// A block as LRU-2 sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aged {
    /// Which block.
    pub block: u64,
    /// When it was last used, on any clock that goes forward.
    pub used_at: u64,
}

/// The order in which blocks give: the one used longest ago first.
pub fn by_age(blocks: &mut [Aged]) {
    blocks.sort_unstable_by_key(|aged| (aged.used_at, aged.block));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pages::{count, MOST, PAGES_PER_BLOCK};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_page_too_frequent_to_go_loses_one_and_stays(block: Block) {
            let (goes, after) = pass(&block);
            for page in 0..PAGES_PER_BLOCK {
                let gone = goes.iter().any(|run| (run.from..run.to).contains(&page));
                let before = count(&block, page);
                prop_assert_eq!(gone, before < 2);
                prop_assert_eq!(count(&after, page), if gone { before } else { before - 1 });
            }
        }

        #[test]
        fn a_page_without_requests_is_gone_after_as_many_rounds_as_a_count_can_be(block: Block) {
            let mut block = block;
            for _ in 0..MOST - 1 {
                block = pass(&block).1;
            }
            prop_assert_eq!(pass(&block).0, [Run { from: 0, to: PAGES_PER_BLOCK }]);
        }
    }

    #[test]
    fn the_block_used_longest_ago_is_first() {
        let mut blocks =
            [(1, 30), (2, 10), (3, 20)].map(|(block, used_at)| Aged { block, used_at });
        by_age(&mut blocks);
        assert_eq!(blocks.map(|aged| aged.block), [2, 3, 1]);
    }
}
