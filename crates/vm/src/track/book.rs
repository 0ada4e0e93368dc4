//! Maps the counters of an image's pages into memory.
//!
//! Each [`Block`] of 256 pages is one record. The summary follows the blocks: one bit for each block, set
//! when the block is used and cleared by [`Book::take_used`]. The BPF programs change words concurrently, so
//! both sides change a word by one atomic operation.

use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use justitia_bpf::Mapping;

use super::types;

use crate::policy::pages::{
    decayed, fresh_bits, mask, Block, Run, PAGES_PER_BLOCK, PAGES_PER_WORD, WORDS,
};

const RECORD: usize = size_of::<types::block>();
/// Blocks that one entry of the summary covers.
const SUMMARY_BLOCKS: u64 = (WORDS * 64) as u64;

const _: () = assert!(RECORD == WORDS * 8 + 16);

/// The counters of one image.
#[derive(Debug)]
pub struct Book {
    words: Mapping,
    blocks: u64,
    entries: u32,
}

impl Book {
    /// Blocks, and entries with the summary, of a map for `pages` pages. `None`: more than a map can have.
    pub(super) fn size(pages: u64) -> Option<(u32, u32)> {
        let blocks = pages.div_ceil(PAGES_PER_BLOCK as u64).max(1);
        let entries = blocks.checked_add(blocks.div_ceil(SUMMARY_BLOCKS))?;
        // The cast is safe: there are fewer blocks than entries.
        Some((blocks as u32, u32::try_from(entries).ok()?))
    }

    pub(super) fn map(fd: BorrowedFd<'_>, blocks: u32, entries: u32) -> io::Result<Book> {
        Ok(Book {
            words: Mapping::new(fd, entries as usize * RECORD, true)?,
            blocks: u64::from(blocks),
            entries,
        })
    }

    /// Copies the counts of another book of the same image, and marks its blocks as used.
    pub(super) fn copy(&self, before: &Book) {
        for block in 0..self.blocks.min(before.blocks) {
            for at in (0..RECORD).step_by(8) {
                let value = before.word(block, at).load(Ordering::Relaxed);
                self.word(block, at).store(value, Ordering::Relaxed);
            }
            self.touch(block);
        }
    }

    pub fn pages(&self) -> u64 {
        self.blocks * PAGES_PER_BLOCK as u64
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes of memory that the counters take.
    pub fn bytes(&self) -> u64 {
        self.words.bytes() as u64
    }

    /// Appends the blocks used since the last call, in ascending order, and clears the summary.
    pub fn take_used(&self, out: &mut Vec<u64>) {
        for entry in 0..u64::from(self.entries) - self.blocks {
            for word in 0..WORDS {
                let of = self.word(self.blocks + entry, word * 8);
                if of.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let mut bits = of.swap(0, Ordering::AcqRel);
                while bits != 0 {
                    let bit = u64::from(bits.trailing_zeros());
                    bits &= bits - 1;
                    out.push(entry * SUMMARY_BLOCKS + word as u64 * 64 + bit);
                }
            }
        }
    }

    pub fn touch(&self, block: u64) {
        let entry = self.blocks + block / SUMMARY_BLOCKS;
        let word = (block % SUMMARY_BLOCKS / 64) as usize;
        self.word(entry, word * 8)
            .fetch_or(1 << (block % 64), Ordering::AcqRel);
    }

    pub fn block(&self, block: u64) -> Block {
        std::array::from_fn(|word| self.word(block, word * 8).load(Ordering::Acquire))
    }

    /// Times when a page of the block was last requested and last dirtied, nanoseconds of the monotonic
    /// clock; 0: never.
    pub fn times(&self, block: u64) -> (u64, u64) {
        let load = |field| self.word(block, field).load(Ordering::Relaxed);
        (
            load(offset_of!(types::block, used_ns)),
            load(offset_of!(types::block, written_ns)),
        )
    }

    /// Clears the fresh bits of a run.
    pub fn clear_fresh(&self, block: u64, run: Run) {
        self.each_word(block, run, |word, set| {
            word.fetch_and(!fresh_bits(set), Ordering::AcqRel);
        });
    }

    /// Takes one request from each page of the run that was requested more than once.
    pub fn decay(&self, block: u64, run: Run) {
        self.each_word(block, run, |word, set| {
            let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |value| {
                Some(decayed(value, set))
            });
        });
    }

    fn each_word(&self, block: u64, run: Run, change: impl Fn(&AtomicU64, u64)) {
        for word in run.from / PAGES_PER_WORD..run.to.div_ceil(PAGES_PER_WORD) {
            let first = word * PAGES_PER_WORD;
            let from = run.from.max(first) - first;
            let to = run.to.min(first + PAGES_PER_WORD) - first;
            change(self.word(block, word * 8), mask(from, to));
        }
    }

    /// The word at byte offset `at` of a record.
    fn word(&self, record: u64, at: usize) -> &AtomicU64 {
        self.words.word(record as usize * RECORD + at)
    }
}
