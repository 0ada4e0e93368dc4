//! One managed image: the blocks that were used, and the pages to drop.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::image::Image;
use crate::policy::admission::{after_first_request, decide, when_quiet, Use, Verdict};
use crate::policy::eviction::least;
use crate::policy::pages::{at_least, fresh, runs, Run, MOST, PAGES_PER_BLOCK};
use crate::policy::Replacement;
use crate::residency::Resident;
use crate::track::Book;

/// Blocks that one search for memory visits at most; the next search continues from there.
const MOST_VISITS: u64 = 50_000;
/// Blocks per residency query, to skip stretches that are not cached.
const STRIDE: u64 = 64;
const PAGES: u64 = PAGES_PER_BLOCK as u64;

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) image: Image,
    /// `None`: requests are not counted.
    pub(super) book: Option<Book>,
    /// Process IDs of the machines that hold it.
    pub(super) users: Vec<u32>,
    pub(super) resident: Option<Resident>,
    pub(super) dropped_pages: u64,
    pub(super) evicted_pages: u64,
    /// Blocks to visit, and the time when each was last found used.
    pub(super) pending: BTreeMap<u64, u64>,
    hand: u64,
}

/// A run of pages to drop, relative to its block.
struct Planned {
    block: u64,
    run: Run,
}

impl Planned {
    /// Its pages in the image.
    fn pages(&self) -> Range<u64> {
        let start = self.block * PAGES;
        start + self.run.from as u64..start + self.run.to as u64
    }
}

impl Kept {
    pub(super) fn new(image: Image, book: Option<Book>) -> Kept {
        let mut kept = Kept {
            image,
            book,
            users: Vec::new(),
            resident: None,
            dropped_pages: 0,
            evicted_pages: 0,
            pending: BTreeMap::new(),
            hand: 0,
        };
        kept.look();
        kept
    }

    /// Reads the image's residency.
    pub(super) fn look(&mut self) {
        self.resident = self.image.resident().ok();
    }

    /// Adds the blocks used since the last call to `pending`. Cheap: it reads one bit for each block.
    pub(super) fn note_used(&mut self, now_ns: u64) {
        if let Some(book) = &self.book {
            let mut used = Vec::new();
            book.take_used(&mut used);
            self.pending
                .extend(used.into_iter().map(|block| (block, now_ns)));
        }
    }

    /// Adds every block that was ever used to `pending`: from now on first requests are not kept.
    pub(super) fn look_at_all(&mut self, now_ns: u64) {
        if let Some(book) = &self.book {
            let used = (0..book.blocks()).filter(|&block| book.block(block) != [0; 16]);
            self.pending.extend(used.map(|block| (block, now_ns)));
        }
    }

    /// Drops pages that were requested once.
    pub(super) fn admit_second(&mut self, now_ns: u64) {
        let Some(book) = &self.book else { return };
        let mut planned = Vec::new();
        let mut verdicts = Vec::new();
        for (&block, &since) in &self.pending {
            let words = book.block(block);
            let (used, written) = book.times(block);
            let ms_since = |at: u64| now_ns.saturating_sub(at) / 1_000_000;
            let verdict = decide(&Use {
                quiet_ms: ms_since(used.max(written).max(since)),
                written_ms: (written > 0).then(|| ms_since(written)),
                dirty_is_known: self.image.dirty_is_known(),
            });
            let goes = match verdict {
                Verdict::Wait => Vec::new(),
                Verdict::DropUsed => after_first_request(&words),
                Verdict::DropQuiet | Verdict::GiveUp => when_quiet(&words),
            };
            planned.extend(goes.into_iter().map(|run| Planned { block, run }));
            for run in runs(&words, |word| fresh(word) & at_least(word, 2)) {
                book.clear_fresh(block, run);
            }
            verdicts.push((block, verdict));
        }
        let (dropped, unclear) = carry_out(&self.image, book, &planned);
        self.dropped_pages += dropped;
        for (block, verdict) in verdicts {
            let done = match verdict {
                Verdict::Wait | Verdict::DropUsed => false,
                Verdict::DropQuiet => !unclear.contains(&block),
                Verdict::GiveUp => true,
            };
            if done {
                self.pending.remove(&block);
            }
        }
    }

    /// Evicts up to `pages` pages; returns how many went.
    pub(super) fn give(&mut self, pages: u64, replacement: Replacement) -> u64 {
        let Some(book) = &self.book else { return 0 };
        let given = match replacement {
            Replacement::Default => 0,
            Replacement::Lru2 => give_oldest(&self.image, book, pages),
            Replacement::Lfu | Replacement::Justitia => {
                give_least(&self.image, book, pages, &mut self.hand)
            }
        };
        self.evicted_pages += given;
        given
    }
}

/// Drops runs, contiguous ones in one call. Returns the number of pages dropped and the blocks in which pages
/// stayed.
fn carry_out(image: &Image, book: &Book, planned: &[Planned]) -> (u64, Vec<u64>) {
    let mut dropped = 0;
    let mut unclear = Vec::new();
    for stretch in planned.chunk_by(|one, next| one.pages().end == next.pages().start) {
        let from = stretch[0].pages().start;
        let to = stretch[stretch.len() - 1].pages().end;
        let went = image.drop_clean(from, to).unwrap_or_default();
        dropped += went.pages;
        for one in stretch {
            let clear = went.clear || {
                let Range { start, end } = one.pages();
                let left = image.resident_in(start, end);
                left.is_ok_and(|left| left.cached == 0)
            };
            if clear {
                book.clear_fresh(one.block, one.run);
            } else {
                unclear.push(one.block);
            }
        }
    }
    (dropped, unclear)
}

/// Least frequently used, with decay: the hand goes around until enough pages have gone.
fn give_least(image: &Image, book: &Book, pages: u64, hand: &mut u64) -> u64 {
    let blocks = book.blocks();
    let mut given = 0;
    let mut visits = 0;
    let most = MOST_VISITS.min(blocks.saturating_mul(u64::from(MOST) + 1));
    while given < pages && visits < most {
        if *hand >= blocks {
            *hand = 0;
        }
        let at = *hand;
        if at % STRIDE == 0 && is_empty(image, at, at + STRIDE) {
            *hand += STRIDE;
            visits += STRIDE;
            continue;
        }
        *hand += 1;
        visits += 1;
        if is_empty(image, at, at + 1) {
            continue;
        }
        let words = book.block(at);
        for run in runs(&words, least) {
            given += drop_run(image, at, run);
        }
        for run in runs(&words, |word| at_least(word, 2)) {
            book.clear_fresh(at, run);
            book.decay(at, run);
        }
    }
    given
}

/// LRU-2: pages requested once, then whole blocks, least recently used first.
fn give_oldest(image: &Image, book: &Book, pages: u64) -> u64 {
    // Time of last use, and the block.
    let mut aged: Vec<(u64, u64)> = Vec::new();
    for from in (0..book.blocks()).step_by(STRIDE as usize) {
        let to = (from + STRIDE).min(book.blocks());
        if is_empty(image, from, to) {
            continue;
        }
        aged.extend((from..to).map(|block| (book.times(block).0, block)));
    }
    aged.sort_unstable();
    let mut given = 0;
    for only_once in [true, false] {
        for &(_, block) in &aged {
            if given >= pages {
                return given;
            }
            let goes = if only_once {
                runs(&book.block(block), least)
            } else {
                vec![Run {
                    from: 0,
                    to: PAGES_PER_BLOCK,
                }]
            };
            for run in goes {
                given += drop_run(image, block, run);
            }
        }
    }
    given
}

/// Drops a run; returns how many pages went.
fn drop_run(image: &Image, block: u64, run: Run) -> u64 {
    let Range { start, end } = Planned { block, run }.pages();
    image.drop_clean(start, end).unwrap_or_default().pages
}

fn is_empty(image: &Image, from: u64, to: u64) -> bool {
    let resident = image.resident_in(from * PAGES, to * PAGES);
    resident.is_ok_and(|resident| resident.cached == 0)
}
