//! Files that two groups use. As in the kernel, a page is charged to the group that touched it first, and
//! stays charged to it whichever group uses it.

use std::ops::Range;

use justitia_policy::snapshot::{GroupId, SharedFile};
use justitia_policy::units::Bytes;

use super::{Load, Page, PageCacheHost, CHUNK};

/// Page numbers from here on are those of the shared file; smaller ones are a group's own.
pub(crate) const SHARED: u64 = 1 << 40;

impl PageCacheHost {
    /// Charges clean pages to a group, as if it had read them once.
    pub(crate) fn fill(&mut self, id: u64, pages: Range<u64>) {
        let i = self.place(id);
        for page in pages {
            if self.charge(i) {
                let cell = &mut self.cells[i];
                cell.resident.insert(page, (Page::Clean, false));
                cell.inactive.push_front(page);
            }
        }
    }

    /// Number of these chunks that some group holds.
    pub(crate) fn resident(&self, pages: Range<u64>) -> u64 {
        let held = |page: &u64| self.cells.iter().any(|c| c.resident.contains_key(page));
        pages.filter(held).count() as u64
    }

    /// Chunks of the shared file that are charged to a group.
    pub(crate) fn held_of_shared(&self, id: u64) -> u64 {
        let pages = self.cells[self.place(id)].resident.keys();
        pages.filter(|&&page| page >= SHARED).count() as u64
    }

    /// Bytes of a group's reads that the disk had to deliver.
    pub(crate) fn missed(&self, id: u64) -> Bytes {
        Bytes(self.cells[self.place(id)].missed_bytes)
    }

    /// Group `i` reads a chunk of the file that `payer` touched first.
    pub(super) fn use_shared(&mut self, i: usize, payer: u64, chunks: u64) -> bool {
        let page = SHARED + self.random() % chunks;
        let payer = self.place(payer);
        if self.cells[payer].resident.contains_key(&page) {
            let before = self.cells[payer].read_bytes;
            self.read(payer, page);
            // The payer is charged for the page, and group `i` reads it.
            self.cells[payer].read_bytes = before;
            self.cells[i].read_bytes += CHUNK;
            return true;
        }
        self.read(i, page)
    }

    /// The shared files as an observer would report them.
    pub(super) fn shared(&self) -> Vec<SharedFile> {
        let files = self.cells.iter().filter_map(|cell| {
            let Load::UseShared { payer, .. } = cell.load else {
                return None;
            };
            Some(SharedFile {
                users: vec![GroupId(payer), GroupId(cell.id)],
                held: self
                    .cells
                    .iter()
                    .map(|c| (GroupId(c.id), Bytes(self.held_of_shared(c.id) * CHUNK)))
                    .collect(),
            })
        });
        files.collect()
    }

    fn place(&self, id: u64) -> usize {
        self.cells
            .iter()
            .position(|c| c.id == id)
            .expect("a group of the model")
    }
}
