//! Determines the reason for a wait from its stack. Pure.
//!
//! A stack is read from its innermost function outward, and the first function that a [`Rule`] names decides.
//! Functions that only wait (the scheduler, locks, wait queues) are in no rule, so their callers decide. If a
//! function can wait for several things, its rule also requires one of certain functions further inside. For
//! a spinlock only the function that takes it counts: further out there may be anything, in an interrupt even
//! the code that it interrupted.
//!
//! Names are those of Linux 6.1 to 7.2 with ext4. If a name no longer exists, the wait becomes *everything
//! else*, whose functions the table names; it is never attributed to a wrong reason.

use serde::{Deserialize, Serialize};

use crate::protocol::{Doing, Place};

/// Reason why a task makes no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    RunQueue,
    /// Dirty throttling.
    BalanceDirtyPages,
    /// The mutex of ext4's list of orphans: every delete takes it.
    OrphanMutex,
    /// The journal: space in it, a committing transaction, a buffer of a transaction.
    Journal,
    /// The rwsem of an inode or a directory.
    InodeRwsem,
    /// A folio that is being read.
    FolioRead,
    /// A folio or an inode that is being written.
    Writeback,
    /// A block that is read because a write covers only a part of it.
    WriteBeginRead,
    /// A metadata block that is being read.
    MetadataRead,
    BlockRequest,
    LruLock,
    /// The lock of a zone's free pages.
    ZoneLock,
    /// The lock of a file's page tree (xarray).
    PagesLock,
    OtherSpinlock,
    Else,
}

impl Reason {
    /// Names, in the order of the table.
    const NAMES: [(Self, &'static str); 15] = [
        (Self::RunQueue, "run queue"),
        (Self::BalanceDirtyPages, "balance_dirty_pages"),
        (Self::OrphanMutex, "ext4 orphan mutex"),
        (Self::Journal, "jbd2 (transactions)"),
        (Self::InodeRwsem, "inode and directory rwsem"),
        (Self::FolioRead, "folio wait (reads)"),
        (Self::Writeback, "folio or inode writeback"),
        (Self::WriteBeginRead, "buffer read in write_begin"),
        (Self::MetadataRead, "metadata read"),
        (Self::BlockRequest, "no free block request"),
        (Self::LruLock, "spinning: lruvec lru_lock"),
        (Self::ZoneLock, "spinning: zone->lock"),
        (Self::PagesLock, "spinning: i_pages (xa_lock)"),
        (Self::OtherSpinlock, "spinning: other"),
        (Self::Else, "everything else"),
    ];

    /// In the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::NAMES.into_iter().map(|(reason, _)| reason)
    }

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// True if the wait takes a CPU.
    pub fn is_spinning(self) -> bool {
        matches!(
            self,
            Self::LruLock | Self::ZoneLock | Self::PagesLock | Self::OtherSpinlock
        )
    }
}

/// The kind of work or wait that a task spent its time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// On a CPU, spinning included.
    Work,
    /// Voluntary sleep of the program: a timer, or another of its threads.
    Rest,
    Wait(Reason),
}

struct Rule {
    /// Names, or prefixes of several names followed by a star.
    functions: &'static str,
    /// Prefixes of functions further inside, one of which must be on the stack; empty: any wait.
    through: &'static str,
    class: Class,
}

const fn rule(reason: Reason, through: &'static str, functions: &'static str) -> Rule {
    Rule {
        functions,
        through,
        class: Class::Wait(reason),
    }
}

const RWSEM: &str = "rwsem_down_";
const MUTEX: &str = "__mutex_lock mutex_lock";
const FOLIO: &str = "folio_wait_ __folio_lock";
const BUFFER: &str = "__wait_on_buffer bit_wait_io __lock_buffer";

const BLOCKED: &[Rule] = &[
    rule(Reason::BalanceDirtyPages, "", "balance_dirty_pages*"),
    rule(Reason::OrphanMutex, MUTEX, "ext4_orphan_add ext4_orphan_del"),
    rule(
        Reason::Journal,
        "",
        "jbd2_* __jbd2_* start_this_handle add_transaction_credits wait_transaction_* do_get_write_access",
    ),
    rule(
        Reason::InodeRwsem,
        RWSEM,
        "path_openat open_last_lookups lookup_slow walk_component do_unlinkat vfs_unlink filename_create \
         do_truncate iterate_dir ext4_buffered_write_iter ext4_file_write_iter",
    ),
    rule(
        Reason::Writeback,
        "",
        "folio_wait_writeback inode_wait_for_writeback folio_wait_stable",
    ),
    rule(Reason::BlockRequest, "", "blk_mq_get_tag"),
    rule(
        Reason::WriteBeginRead,
        BUFFER,
        "ext4_block_write_begin __block_write_begin* block_write_begin ext4_write_begin ext4_da_write_begin",
    ),
    rule(Reason::MetadataRead, BUFFER, "ext4_* __ext4_*"),
    rule(
        Reason::FolioRead,
        FOLIO,
        "filemap_get_pages filemap_update_page filemap_read filemap_fault",
    ),
    Rule {
        functions: "futex_* do_nanosleep hrtimer_nanosleep do_exit",
        through: "",
        class: Class::Rest,
    },
];

const SPINNING: &[Rule] = &[
    rule(
        Reason::LruLock,
        "",
        "folio_lruvec_lock* folio_batch_move_lru lru_add_drain* lru_note_cost* shrink_inactive_list \
         shrink_active_list move_folios_to_lru evict_folios __page_cache_release release_pages folios_put_refs",
    ),
    rule(
        Reason::ZoneLock,
        "",
        "rmqueue* __rmqueue* free_pcppages_bulk free_one_page free_unref_* __free_pages_ok \
         get_page_from_freelist",
    ),
    rule(
        Reason::PagesLock,
        "",
        "__filemap_add_folio filemap_add_folio filemap_remove_folio delete_from_page_cache_batch \
         truncate_inode_pages_range __remove_mapping __folio_mark_dirty __folio_start_writeback \
         __folio_end_writeback tag_pages_for_writeback",
    ),
];

/// Functions that wait on behalf of their callers and are not worth naming in the table.
const MACHINERY: &str = "bpf_ __traceiter_ __bpf_ __schedule schedule preempt_schedule \
    io_schedule __cond_resched __mutex_lock mutex_lock rwsem_down_ down_read down_write __down_ \
    folio_wait_bit __folio_lock __wait_on_bit out_of_line_wait_on_bit bit_wait __wait_on_buffer \
    __lock_buffer wait_for_completion __wait_for_common __wait_rcu_gp unknown";

/// Functions that spin on behalf of their callers.
const LOCKS: &str = "bpf_ native_queued_spin_lock_slowpath _raw_spin_ __raw_spin_";

/// Classifies the time at a place.
pub fn classify(place: &Place) -> Class {
    match place.doing {
        Doing::Running => Class::Work,
        Doing::Runnable => Class::Wait(Reason::RunQueue),
        Doing::Blocked => decide(&place.frames, BLOCKED).unwrap_or(Class::Wait(Reason::Else)),
        Doing::Spinning => {
            let taken_by = [known_by(place).to_owned()];
            decide(&taken_by, SPINNING).unwrap_or(Class::Wait(Reason::OtherSpinlock))
        }
    }
}

/// The function that identifies a wait: the innermost one that does more than wait.
pub fn known_by(place: &Place) -> &str {
    let machinery = match place.doing {
        Doing::Spinning => LOCKS,
        _ => MACHINERY,
    };
    let only_waits = |frame: &str| machinery.split(' ').any(|begin| frame.starts_with(begin));
    place
        .frames
        .iter()
        .map(String::as_str)
        .find(|frame| !only_waits(frame))
        .unwrap_or("no stack")
}

fn decide(frames: &[String], rules: &[Rule]) -> Option<Class> {
    frames.iter().enumerate().find_map(|(depth, frame)| {
        rules
            .iter()
            .find(|rule| rule.names(frame) && rule.is_reached_through(&frames[..depth]))
            .map(|rule| rule.class)
    })
}

impl Rule {
    fn names(&self, function: &str) -> bool {
        let named = |name: &str| match name.strip_suffix('*') {
            Some(beginning) => function.starts_with(beginning),
            None => function == name,
        };
        self.functions.split(' ').any(named)
    }

    fn is_reached_through(&self, inside: &[String]) -> bool {
        let begins = |frame: &String| {
            self.through
                .split(' ')
                .any(|begin| frame.starts_with(begin))
        };
        self.through.is_empty() || inside.iter().any(begins)
    }
}

#[cfg(test)]
mod tests;
