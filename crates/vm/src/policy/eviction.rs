//! Eviction: which pages of an image go when memory is short.
//!
//! Least frequently used with decay: a clock hand goes around the image's blocks. It evicts a page requested
//! at most once; a page requested more often loses a request and stays. After at most
//! [`MOST`](super::pages::MOST) rounds without requests every page is evicted, however often it was requested
//! before. An evicted page keeps its count, so its next request is its second.
//!
//! Least recently used in two classes (LRU-2, as far as counts without times allow): pages requested at most
//! once, from the least recently used block on, then whole blocks in the same order.

use super::pages::{at_least, Mask};

/// Pages requested at most once: those that the hand evicts.
pub fn least(word: u64) -> Mask {
    at_least(word, 0) & !at_least(word, 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pages::{count, decayed, runs, Block, Run, MOST, PAGES_PER_BLOCK};
    use proptest::prelude::*;

    /// One pass of the hand over a block: the pages to evict, and the decayed words.
    fn pass(block: &Block) -> (Vec<Run>, Block) {
        let after = block.map(|word| decayed(word, at_least(word, 0)));
        (runs(block, least), after)
    }

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
}
