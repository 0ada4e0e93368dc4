//! A set of files that threads create, read and delete without interfering with each other.
//!
//! Follows filebench's fileset: a fixed number of entries, each either existing or absent. An operation picks
//! a random entry among those in the state it needs, and no other pick can take the entry until it is put
//! back (filebench's busy flag). So a file is never deleted while another thread reads it, and never created
//! twice. One difference: filebench lets several threads open one file, but here a file has one user at a
//! time; with a thousand files and a handful of threads that is rarely visible.
//!
//! Each entry has its own size, drawn once (as in filebench), and is in a directory tree of width
//! [`DIR_WIDTH`].

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::random::Rng;

/// Entries per directory, files or subdirectories (filebench's `meandirwidth` is 20).
pub const DIR_WIDTH: u32 = 20;

#[derive(Debug, Clone, Copy)]
pub enum State {
    Existing,
    Absent,
}

/// The files that no thread holds.
#[derive(Debug)]
struct Idle {
    existing: Vec<u32>,
    absent: Vec<u32>,
}

impl Idle {
    fn in_state(&mut self, state: State) -> &mut Vec<u32> {
        match state {
            State::Existing => &mut self.existing,
            State::Absent => &mut self.absent,
        }
    }
}

#[derive(Debug)]
pub struct FileSet {
    sizes: Vec<u64>,
    idle: Mutex<Idle>,
}

impl FileSet {
    /// A set of `files` files of gamma-distributed size (shape 1.5, at most 16 times the mean, at least one
    /// byte), rounded up to a multiple of `align`. The first `existing` in a random order count as existing;
    /// the caller writes them.
    pub fn new(files: u32, mean_bytes: u64, align: u64, existing: u32, rng: &mut Rng) -> Self {
        let sizes = (0..files)
            .map(|_| {
                let size = rng
                    .gamma(1.5, mean_bytes as f64)
                    .min(16.0 * mean_bytes as f64) as u64;
                size.max(1).next_multiple_of(align)
            })
            .collect();
        let mut order: Vec<u32> = (0..files).collect();
        rng.shuffle(&mut order);
        let absent = order.split_off(existing.min(files) as usize);
        Self {
            sizes,
            idle: Mutex::new(Idle {
                existing: order,
                absent,
            }),
        }
    }

    /// The size an entry is created with, bytes.
    pub fn size(&self, file: u32) -> u64 {
        self.sizes[file as usize]
    }

    /// The entries that exist and that no thread holds.
    pub fn existing(&self) -> Vec<u32> {
        self.idle().existing.clone()
    }

    /// Takes a random entry in this state; `None` if there is none.
    pub fn take(&self, state: State, rng: &mut Rng) -> Option<u32> {
        let mut idle = self.idle();
        let files = idle.in_state(state);
        if files.is_empty() {
            return None;
        }
        let at = rng.below(files.len() as u64) as usize;
        Some(files.swap_remove(at))
    }

    /// Puts an entry back, in this state.
    pub fn put(&self, state: State, file: u32) {
        self.idle().in_state(state).push(file);
    }

    /// Every directory of the set, parents first.
    pub fn directories(&self) -> Vec<PathBuf> {
        let leaves = (self.sizes.len() as u32).div_ceil(DIR_WIDTH);
        let mut all = Vec::new();
        for top in 0..leaves.div_ceil(DIR_WIDTH) {
            all.push(PathBuf::from(format!("{top}")));
            for leaf in top * DIR_WIDTH..((top + 1) * DIR_WIDTH).min(leaves) {
                all.push(PathBuf::from(format!("{top}/{}", leaf % DIR_WIDTH)));
            }
        }
        all
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        // The vectors stay valid even if a holder panicked.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Path of a file below the root of its set.
pub fn path_of(file: u32) -> String {
    let leaf = file / DIR_WIDTH;
    format!(
        "{}/{}/{}",
        leaf / DIR_WIDTH,
        leaf % DIR_WIDTH,
        file % DIR_WIDTH
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn set() -> (FileSet, Rng) {
        let mut rng = Rng::new(1, 0);
        (FileSet::new(1000, 128 << 10, 1, 800, &mut rng), rng)
    }

    #[test]
    fn prealloc_share_exists() {
        let (set, _) = set();
        assert_eq!(set.existing().len(), 800);
        let mean = set.sizes.iter().sum::<u64>() / 1000;
        assert!((120_000..145_000).contains(&mean), "{mean}");
    }

    #[test]
    fn no_file_is_held_twice() {
        let (set, mut rng) = set();
        let held: BTreeSet<u32> = (0..800)
            .map(|_| set.take(State::Existing, &mut rng).unwrap())
            .collect();
        assert_eq!(held.len(), 800);
        assert_eq!(set.take(State::Existing, &mut rng), None);
        let absent: BTreeSet<u32> = (0..200)
            .map(|_| set.take(State::Absent, &mut rng).unwrap())
            .collect();
        assert!(absent.is_disjoint(&held));
        set.put(State::Existing, 5);
        assert_eq!(set.take(State::Existing, &mut rng), Some(5));
    }

    #[test]
    fn every_file_has_its_own_path_in_a_known_directory() {
        let (set, _) = set();
        let dirs: BTreeSet<PathBuf> = set.directories().into_iter().collect();
        let paths: BTreeSet<String> = (0..1000).map(path_of).collect();
        assert_eq!(paths.len(), 1000);
        assert!(paths
            .iter()
            .all(|p| dirs.contains(std::path::Path::new(p).parent().unwrap())));
    }

    #[test]
    fn sizes_are_aligned_for_direct_io() {
        let set = FileSet::new(100, 10_000, 4096, 0, &mut Rng::new(2, 0));
        assert!((0..100).all(|f| set.size(f) % 4096 == 0 && set.size(f) > 0));
    }
}
