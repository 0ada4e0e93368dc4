//! The guard: memory that is free before somebody asks for it.
//!
//! A task that allocates waits for reclaim when free memory is down at the watermarks, and for the
//! disk when what reclaim finds is dirty. The guard keeps a *reserve* free above the zones' high
//! watermarks: a standing one, if the operator wants it, and what was reserved for groups that are
//! about to start ([`Reservation`]). What is missing is taken from the page cache of those that
//! hold more than their share, through `memory.reclaim`, before kswapd would: kswapd begins only
//! below the low watermark, and takes from everybody alike.
//!
//! Shares are those of [`crate::share::entitlement`], of a capacity that is less by the reserve: otherwise
//! `memory.low` would protect the very pages that are to be free. What nobody manages, the root
//! cgroup first of all, has no `memory.high`; its share is a part of all memory, and above it the
//! guard writes the root's own `memory.reclaim`, which respects the protection of all groups below
//! (`mm/vmscan.c`, `shrink_node_memcgs`), so it takes from the root, from other groups that nobody
//! manages, and from whoever holds more than is protected. Under the multi-generational LRU it takes
//! from protected groups too (`shrink_one`), so there the root is not asked.
//!
//! While something is reserved, groups that hold their share of page cache are limited at it
//! (`memory.high`): reclaim cannot take dirty pages, and the limit makes the kernel write them out,
//! because a cgroup's dirty limits follow it (`mm/page-writeback.c`, `mdtc_calc_avail`).
//!
//! Properties, each held by a test:
//! - *nothing without need*: while the reserve is kept, nothing is taken for it;
//! - *floors*: never below a group's share, its mapped page cache, or the protection that the
//!   operator set; never dirty pages;
//! - *conservation*: together no more than is missing, and all of it if the sources have it;
//! - *order*: who is above its share by more gives more, in proportion;
//! - *backing off*: who reads back what was taken gives less;
//! - *unknown moves nothing*.
//!
//! Units: bytes, seconds. The page cache of those nobody manages is the host's less the managed
//! groups': the kernel has no gauge of the root's own.

mod backoff;
mod sources;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::color::rules::Supply;
use crate::config::{Config, GuardConfig, Mode};
use crate::feedback::limits;
use crate::plan::{Guarded, Knob, Reason, Value, Write};
use crate::share::entitlement::{non_file, Tree};
use crate::snapshot::{Group, GroupId, Host, Reservation, Snapshot};
use crate::step::{Decided, Memo};
use crate::units::{Bytes, Limit};

pub use backoff::Pace;
pub use sources::{takes, Source};

/// Taking goes on until this much more than the reserve is free, so that it does not begin anew
/// each step: this part of the reserve, at most.
const SLACK_DIVISOR: u64 = 8;
const SLACK_MOST: Bytes = Bytes::mib(32);
/// One write asks for at most this part of all memory, and never for more than this: the kernel
/// holds the writer until it has it.
const BATCH_DIVISOR: u64 = 8;
const BATCH_MOST: Bytes = Bytes(1 << 30);
/// Less is not worth a write.
const BATCH_LEAST: Bytes = Bytes::mib(1);
/// Who holds this part of its share is limited at it while something is reserved.
const NEAR_SHARE: f64 = 0.8;

/// What the guard remembers from one step to the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Memory each reserving group had when its reservation was first seen.
    before: BTreeMap<String, Bytes>,
    /// Limits were set for a reservation, so they are the guard's to lift.
    limits: bool,
}

/// What is to be kept free, and what there is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Need {
    memory: Memory,
    /// To be kept free whatever happens.
    standing: Bytes,
    /// Reserved and not yet taken by whom it is for.
    reserved: Bytes,
    /// Groups that something is reserved for.
    owners: Vec<GroupId>,
    /// Free memory above the watermarks.
    spare: Option<Bytes>,
}

impl Need {
    /// What has to be free now. In mode `observe`, and while nobody asked for anything, nothing.
    pub(crate) fn of(memory: &Memory, snapshot: &Snapshot, config: &Config) -> Need {
        if config.mode == Mode::Observe {
            return Need::default();
        }
        let host = &snapshot.host;
        let mut need = Need {
            memory: memory.clone(),
            standing: standing(&config.guard, host),
            spare: host.spare(),
            ..Need::default()
        };
        let reservations = &snapshot.reservations;
        let before = &mut need.memory.before;
        before.retain(|path, _| reservations.iter().any(|known| known.path == *path));
        for reservation in reservations {
            let group = snapshot.groups.iter().find(|g| g.path == reservation.path);
            need.reserved = need.reserved + outstanding(reservation, group, before);
            need.owners.extend(group.map(|group| group.id));
        }
        need
    }

    /// What is to be free above the watermarks, and so is not page cache to be divided.
    pub(crate) fn reserve(&self) -> Bytes {
        self.standing + self.reserved
    }

    /// What has to be taken now; nothing if the reserve is kept, or not known.
    fn missing(&self) -> Bytes {
        let reserve = self.reserve();
        match self.spare {
            Some(spare) if spare < reserve => {
                let slack = Bytes(reserve.0 / SLACK_DIVISOR).min(SLACK_MOST);
                reserve + slack - spare
            }
            _ => Bytes::ZERO,
        }
    }
}

fn standing(config: &GuardConfig, host: &Host) -> Bytes {
    match host.total {
        Some(total) if config.enabled => config.reserve.of(total),
        _ => Bytes::ZERO,
    }
}

/// What of a reservation its group has not taken yet. A group that is not there has taken nothing;
/// of one that cannot be read it is not known, so all of it is kept.
fn outstanding(
    reservation: &Reservation,
    group: Option<&Group>,
    before: &mut BTreeMap<String, Bytes>,
) -> Bytes {
    let held = group.map_or(Some(Bytes::ZERO), |group| group.memory.current);
    let Some(held) = held else {
        return reservation.bytes;
    };
    let before = *before.entry(reservation.path.clone()).or_insert(held);
    reservation.bytes - (held - before)
}

/// Limits whoever is at its share while something is reserved, and lifts those limits afterwards.
pub(crate) fn limit_at_shares(
    need: &mut Need,
    decided: &mut [Decided],
    memos: &[Memo],
    groups: &[Group],
    tree: &Tree,
) {
    let limiting = need.reserved > Bytes::ZERO;
    if !limiting && !need.memory.limits {
        return;
    }
    need.memory.limits = true;
    for (i, (d, group)) in decided.iter_mut().zip(groups).enumerate() {
        if !tree.leaf[i] {
            continue;
        }
        let near = |held: Bytes| held > d.threshold.scale(NEAR_SHARE);
        let holds =
            limiting && !need.owners.contains(&group.id) && group.memory.file.is_some_and(near);
        let limit = holds
            .then(|| limits::limit(group, &memos[i].least, d.threshold, d.grew))
            .flatten();
        match limit {
            Some(limit) if d.high.is_none_or(|high| limit < high) => {
                d.high = Some(limit);
                d.makes_room = true;
            }
            // In a mode that has no opinion on limits, nobody else would lift this one. Who cannot be
            // read keeps what it has.
            None if d.high.is_none() && non_file(group).is_some() => d.high = Some(Limit::Max),
            _ => {}
        }
    }
}

/// What the guard decides: whom to ask for how much, and what it thought.
pub(crate) fn decide(
    need: Need,
    snapshot: &Snapshot,
    decided: &[Decided],
    memos: &mut [Memo],
    tree: &Tree,
    config: &Config,
) -> (Memory, Option<Guarded>, Vec<Write>) {
    let host = &snapshot.host;
    let asked_for = config.guard.enabled || !snapshot.reservations.is_empty();
    if config.mode == Mode::Observe || !asked_for {
        return (need.memory, None, Vec::new());
    }
    let (reserve, missing) = (need.reserve(), need.missing());
    let mut candidates: Vec<Candidate> = Vec::new();
    for (i, group) in snapshot.groups.iter().enumerate() {
        if !tree.leaf[i] || need.owners.contains(&group.id) || !group.knobs.reclaim {
            continue;
        }
        let Some(source) = Source::of(group, decided[i].threshold) else {
            continue;
        };
        let pace = &mut memos[i].pace;
        pace.move_on(memos[i].rates.cache.refault_pages_per_s);
        candidates.push(Candidate {
            id: group.id,
            source: source.paced(pace.factor()),
            leaf: Some(i),
        });
    }
    let unmanaged = unmanaged_file(host, &snapshot.groups, tree);
    let share = host.total.map(|total| config.guard.root_share.of(total));
    let root = snapshot.outside.filter(|outside| outside.reclaim);
    if let (Some(root), Some(held), Some(share)) = (root, unmanaged, share) {
        let over = held - share;
        candidates.push(Candidate {
            id: root.root,
            source: Source {
                over,
                takeable: over,
            },
            leaf: None,
        });
    }
    let sources: Vec<Source> = candidates.iter().map(|c| c.source).collect();
    let mut asked = takes(missing, &sources);
    // Over its share, the root gives whether or not the reserve is kept, while memory is scarce.
    if config.guard.enabled && Supply::of_memory(host) == Supply::Scarce {
        for (candidate, bytes) in candidates.iter().zip(&mut asked) {
            if candidate.leaf.is_none() {
                *bytes = (*bytes).max(candidate.source.takeable);
            }
        }
    }
    let most = host.total.map_or(BATCH_LEAST, |total| {
        Bytes(total.0 / BATCH_DIVISOR).clamp(BATCH_LEAST, BATCH_MOST)
    });
    let mut writes = Vec::new();
    for (candidate, bytes) in candidates.iter().zip(asked) {
        let bytes = bytes.min(most).page_aligned();
        if bytes < BATCH_LEAST {
            continue;
        }
        if let Some(i) = candidate.leaf {
            memos[i].pace.note_asked();
        }
        writes.push(candidate.ask(bytes, reserve));
    }
    let guarded = Guarded {
        reserve,
        reserved: need.reserved,
        spare: need.spare,
        missing,
        unmanaged,
        unmanaged_share: root.and(share),
        asked: writes.iter().map(asked_bytes).sum(),
    };
    (need.memory, Some(guarded), writes)
}

/// Who may be asked.
struct Candidate {
    id: GroupId,
    source: Source,
    /// Its index; `None`: the root.
    leaf: Option<usize>,
}

impl Candidate {
    fn ask(&self, bytes: Bytes, reserve: Bytes) -> Write {
        let over = self.source.over;
        Write {
            group: self.id,
            knob: Knob::MemoryReclaim,
            value: Value::Reclaim(bytes),
            reason: match self.leaf {
                Some(_) => Reason::KeepFree { reserve, over },
                None => Reason::RootShare { over },
            },
        }
    }
}

fn asked_bytes(write: &Write) -> Bytes {
    match write.value {
        Value::Reclaim(bytes) => bytes,
        _ => Bytes::ZERO,
    }
}

/// Page cache of the root and of groups that nobody manages. `None` if anything of it is unknown.
fn unmanaged_file(host: &Host, groups: &[Group], tree: &Tree) -> Option<Bytes> {
    let leaves = groups.iter().zip(&tree.leaf).filter(|(_, &leaf)| leaf);
    let managed: Option<Bytes> = leaves.map(|(group, _)| group.memory.file).sum();
    Some(host.file? - managed?)
}

#[cfg(test)]
mod tests;
