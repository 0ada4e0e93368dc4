//! Counts the requests of pages, four bits a page.
//!
//! A word of 64 bits holds 16 pages, and a [`Block`] 256: 1 MiB of an image where a page is 4 KiB. Three of a
//! page's four bits count requests, from 0 (never requested) to [`MOST`] (that many or more). The highest
//! bit, *fresh*, is set by each use and cleared by the reader.
//!
//! The BPF programs do the same arithmetic (`crates/vm/bpf`). It works on all 16 pages of a word at once, so
//! a request of 64 KiB is one atomic operation.

pub const PAGES_PER_WORD: usize = 16;
/// Words in a block.
pub const WORDS: usize = 16;
pub const PAGES_PER_BLOCK: usize = PAGES_PER_WORD * WORDS;
/// The highest count; it saturates there.
pub const MOST: u8 = 7;

/// The lowest bit of each page.
const ONES: u64 = 0x1111_1111_1111_1111;
/// The fresh bit of each page.
const FRESH: u64 = ONES << 3;

pub type Block = [u64; WORDS];

/// A set of pages of a word: bit `4 * n` stands for page `n`.
pub type Mask = u64;

/// Pages `from..to` of a word; pages beyond its 16 are ignored.
pub fn mask(from: usize, to: usize) -> Mask {
    let below = |page: usize| match page {
        0 => 0,
        1..PAGES_PER_WORD => u64::MAX >> (64 - 4 * page),
        _ => u64::MAX,
    };
    below(to) & !below(from.min(to)) & ONES
}

/// Records a request of each page of the set: its count rises by one, up to [`MOST`], and it becomes fresh.
#[must_use]
pub fn requested(word: u64, set: Mask) -> u64 {
    let full = word & (word >> 1) & (word >> 2) & ONES;
    (word + (set & !full)) | set << 3
}

/// Records a write of each page of the set: it becomes fresh. Its count stays, because the guest has the
/// data.
#[must_use]
pub fn written(word: u64, set: Mask) -> u64 {
    word | set << 3
}

/// Pages requested at least `count` times.
pub fn at_least(word: u64, count: u8) -> Mask {
    let (low, middle, high) = (word & ONES, word >> 1 & ONES, word >> 2 & ONES);
    match count {
        0 => ONES,
        1 => low | middle | high,
        2 => middle | high,
        3 => (low & middle) | high,
        4 => high,
        5 => high & (low | middle),
        6 => high & middle,
        MOST => high & middle & low,
        _ => 0,
    }
}

/// Pages used since their fresh bits were last cleared.
pub fn fresh(word: u64) -> Mask {
    word >> 3 & ONES
}

/// The fresh bits of a set, for the reader to clear.
pub fn fresh_bits(set: Mask) -> u64 {
    (set & ONES) << 3 & FRESH
}

/// Takes one request from each page of the set that was requested more than once.
#[must_use]
pub fn decayed(word: u64, set: Mask) -> u64 {
    // Each count is at least 2, so the subtraction does not borrow from a neighboring page.
    word - (set & at_least(word, 2))
}

/// Number of requests of a page of a block, at most 7.
pub fn count(block: &Block, page: usize) -> u8 {
    (block[page / PAGES_PER_WORD] >> (4 * (page % PAGES_PER_WORD)) & 7) as u8
}

/// Contiguous pages `from..to` of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub from: usize,
    pub to: usize,
}

/// The pages that `choose` selects from each word, as runs in ascending order.
pub fn runs(block: &Block, choose: impl Fn(u64) -> Mask) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, &word) in block.iter().enumerate() {
        let set = choose(word);
        if set == 0 {
            continue;
        }
        for page in 0..PAGES_PER_WORD {
            if set >> (4 * page) & 1 == 0 {
                continue;
            }
            let page = at * PAGES_PER_WORD + page;
            match runs.last_mut() {
                Some(run) if run.to == page => run.to += 1,
                _ => runs.push(Run {
                    from: page,
                    to: page + 1,
                }),
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A word after an operation, the operation's effect on a count, and whether it sets the fresh bit.
    type Operation = (u64, fn(u8) -> u8, bool);

    fn nibble(word: u64, page: usize) -> (u8, bool) {
        let bits = (word >> (4 * page)) & 15;
        ((bits & 7) as u8, bits & 8 != 0)
    }

    proptest! {
        #[test]
        fn sixteen_pages_at_once_are_sixteen_pages_one_by_one(
            word: u64, from in 0usize..17, to in 0usize..17
        ) {
            let set = mask(from, to);
            let operations: [Operation; 3] = [
                (requested(word, set), |count| (count + 1).min(MOST), true),
                (written(word, set), |count| count, true),
                (decayed(word, set), |count| if count > 1 { count - 1 } else { count }, false),
            ];
            for (after, expected, freshens) in operations {
                for page in 0..PAGES_PER_WORD {
                    let (count, was_fresh) = nibble(word, page);
                    let inside = (from..to).contains(&page);
                    let wanted = if inside { expected(count) } else { count };
                    let fresh = was_fresh || (inside && freshens);
                    prop_assert_eq!(nibble(after, page), (wanted, fresh), "page {}", page);
                }
            }
        }

        #[test]
        fn sets_by_count_are_what_the_counts_say(word: u64, least in 0u8..9) {
            for page in 0..PAGES_PER_WORD {
                let bit = at_least(word, least) >> (4 * page) & 1 == 1;
                prop_assert_eq!(bit, nibble(word, page).0 >= least);
                prop_assert_eq!(fresh(word) >> (4 * page) & 1 == 1, nibble(word, page).1);
            }
        }

        #[test]
        fn runs_are_apart_in_order_and_just_the_chosen_pages(block: Block) {
            let found = runs(&block, |word| at_least(word, 4));
            for pair in found.windows(2) {
                prop_assert!(pair[0].to < pair[1].from);
            }
            for page in 0..PAGES_PER_BLOCK {
                let inside = found.iter().any(|run| (run.from..run.to).contains(&page));
                prop_assert_eq!(inside, count(&block, page) >= 4);
            }
        }
    }

    #[test]
    fn an_image_of_a_hundred_gibibytes_takes_fourteen_mebibytes() {
        let pages = (100u64 << 30) / 4096;
        assert_eq!(pages / 2, 12_800 << 10, "four bits a page: 12.5 MiB");
        let with_times = pages.div_ceil(PAGES_PER_BLOCK as u64) * (8 * WORDS as u64 + 16);
        assert!(with_times <= 15 << 20);
    }
}
