//! The guard: it keeps memory free before it is needed.
//!
//! An allocating task waits in direct reclaim when free memory is down at the watermarks, and for the disk if
//! reclaim finds dirty pages. The guard keeps a *reserve* free above the zones' high watermarks: a standing
//! reserve, if the operator wants it, and what was reserved for groups that are about to start
//! ([`Reservation`]). The guard takes what is missing from the page cache of groups above their share,
//! through `memory.reclaim`. It does so before kswapd, which begins only below the low watermark and takes
//! from all groups alike.
//!
//! Shares are those of [`crate::share::entitlement`], with the reserve subtracted from the capacity.
//! Otherwise `memory.low` would protect the very pages that are to be freed. Unmanaged memory, above all that
//! of the root cgroup, has no `memory.high`. Its share is a part of all memory; above it the guard writes the
//! root's own `memory.reclaim`. Reclaim there respects the protection of all groups below (`mm/vmscan.c`,
//! `shrink_node_memcgs`), so it takes from the root, from other unmanaged groups, and from groups that hold
//! more than is protected. Under the multi-generational LRU it takes from protected groups too
//! (`shrink_one`), so there the guard does not use it.
//!
//! While something is reserved, groups that hold their share of page cache are limited at it (`memory.high`):
//! reclaim cannot take dirty pages, and the limit makes the kernel write them back, because a cgroup's dirty
//! limits follow it (`mm/page-writeback.c`, `mdtc_calc_avail`).
//!
//! Properties, each held by a test:
//! - *nothing without need*: while the reserve is kept, nothing is taken for it;
//! - *floors*: never below a group's share, its mapped page cache, or the protection that the operator set;
//!   never dirty pages;
//! - *conservation*: the sum of what is taken is at most what is missing, and all of it if the sources have
//!   it;
//! - *order*: groups give in proportion to their overage;
//! - *backing off*: a group that refaults what was taken gives less;
//! - *unknown moves nothing*.
//!
//! Units: bytes, seconds. Unmanaged page cache is the host's less that of the managed groups: the kernel has
//! no gauge of the root's own.

mod sources;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::config::{Config, GuardConfig};
use crate::decision::Member;
use crate::plan::{Guarded, Knob, Reason, Value, Write};
use crate::share::supply::Supply;
use crate::share::Pool;
use crate::snapshot::{Group, GroupId, Host, Reservation, Snapshot};
use crate::units::Bytes;
use sources::{takes, Source};

/// Hysteresis: taking continues until more than the reserve is free, so that it does not restart in each
/// step. The slack is the reserve divided by this, at most [`SLACK_MOST`].
const SLACK_DIVISOR: u64 = 8;
/// Upper limit of the slack.
const SLACK_MOST: Bytes = Bytes::mib(32);
/// One write asks for at most all memory divided by this, and at most [`BATCH_MOST`]: the kernel blocks the
/// writer until it has reclaimed that much.
const BATCH_DIVISOR: u64 = 8;
/// Upper limit of one write.
const BATCH_MOST: Bytes = Bytes(1 << 30);
/// Less is not worth a write.
const BATCH_LEAST: Bytes = Bytes::mib(1);
/// A group that holds more than this part of its share is limited at the share while something is reserved. A group that
/// rests demands a quarter more than it holds, so it is not, unless it holds more than its part by weight.
const NEAR_SHARE: f64 = 0.8;
/// Memory was reserved anew if its time left fell by this many seconds more than have passed.
const SHORTER_S: f64 = 1.0;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GuardState {
    /// Least memory that each reserving group had since memory was last reserved for it. A group that restarts
    /// begins anew.
    before: BTreeMap<String, Bytes>,
    /// The reservations of the last step.
    reservations: Vec<Reservation>,
}

/// Memory to keep free, and memory that is free.
#[derive(Debug, Clone, Default)]
pub(crate) struct Need {
    asked: bool,
    state: GuardState,
    /// The standing reserve.
    standing: Bytes,
    /// Reserved memory that is not taken up yet.
    reserved: Bytes,
    /// Groups that memory is reserved for, and those below them.
    owners: BTreeSet<GroupId>,
    /// Free memory above the watermarks.
    spare: Option<Bytes>,
}

impl Need {
    /// The need of this step; nothing if `may` is false, or if nothing was asked for.
    pub(crate) fn of(
        state: &GuardState,
        snapshot: &Snapshot,
        config: &Config,
        may: bool,
        elapsed_s: f64,
    ) -> Need {
        if !may {
            return Need::default();
        }
        let (host, reservations) = (&snapshot.host, &snapshot.reservations);
        let mut need = Need {
            asked: config.guard.enabled || !reservations.is_empty(),
            state: state.clone(),
            standing: standing(&config.guard, host),
            spare: host.spare(),
            ..Need::default()
        };
        need.state.reservations.clone_from(reservations);
        let before = &mut need.state.before;
        before.retain(|path, _| reservations.iter().any(|known| known.path == *path));
        for reservation in reservations {
            let mut last = state.reservations.iter();
            let last = last.find(|last| last.path == reservation.path);
            if last.is_some_and(|last| is_anew(last, reservation, elapsed_s)) {
                before.remove(&reservation.path);
            }
            let group = snapshot.groups.iter().find(|g| g.path == reservation.path);
            need.reserved = need.reserved + outstanding(reservation, group, before);
            let theirs = snapshot.groups.iter();
            let theirs = theirs.filter(|group| is_within(&group.path, &reservation.path));
            need.owners.extend(theirs.map(|group| group.id));
        }
        need
    }

    /// Memory to keep free above the watermarks, which is no page cache to be divided.
    pub(crate) fn reserve(&self) -> Bytes {
        self.standing + self.reserved
    }

    /// Memory to take now; nothing if the reserve is kept, or if free memory is unknown.
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

/// Whether memory was reserved anew since the last step. `elapsed_s`: 0 in an agent's first step, where the time left
/// also fell while no agent ran.
fn is_anew(last: &Reservation, now: &Reservation, elapsed_s: f64) -> bool {
    let fell_s = last.left_s - now.left_s;
    let shorter = elapsed_s > 0.0 && fell_s > elapsed_s + SHORTER_S;
    last.bytes != now.bytes || fell_s < 0.0 || shorter
}

/// The part of a reservation that its group has not taken yet. A group that does not exist has taken nothing.
/// For an unreadable group this is unknown, so all of the reservation is kept.
fn outstanding(
    reservation: &Reservation,
    group: Option<&Group>,
    before: &mut BTreeMap<String, Bytes>,
) -> Bytes {
    let Some(held) = group.map_or(Some(Bytes::ZERO), |group| group.memory.current) else {
        return reservation.bytes;
    };
    let before = before.entry(reservation.path.clone()).or_insert(held);
    *before = held.min(*before);
    reservation.bytes - (held - *before)
}

/// True for a group and those below it.
fn is_within(path: &str, top: &str) -> bool {
    let rest = path.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Limits groups near their share while something is reserved. No share is known if the host could not be read.
pub(crate) fn limit_at_shares(need: &Need, members: &mut [Member], pool: Pool) {
    if need.reserved == Bytes::ZERO || pool.cache.is_none() {
        return;
    }
    for member in members.iter_mut().filter(|m| m.leaf) {
        let threshold = member.decision.threshold();
        let near = |held: Bytes| held > threshold.scale(NEAR_SHARE);
        let holds =
            !need.owners.contains(&member.group.id) && member.group.memory.file.is_some_and(near);
        let limit = holds.then(|| member.limit_for(threshold)).flatten();
        let high = member.decision.high;
        if let Some(limit) = limit.filter(|limit| high.is_none_or(|(high, _)| *limit < high)) {
            member.limit_at(limit, Reason::Reserved);
        }
    }
}

/// Decides how much to ask of each source. Returns the next state, the guard's view and the writes.
pub(crate) fn decide(
    need: Need,
    snapshot: &Snapshot,
    members: &mut [Member],
    config: &Config,
) -> (GuardState, Option<Guarded>, Vec<Write>) {
    if !need.asked {
        return (need.state, None, Vec::new());
    }
    let host = &snapshot.host;
    let (reserve, missing) = (need.reserve(), need.missing());
    let unmanaged = unmanaged_file(host, members);
    let share = host.total.map(|total| config.guard.root_share.of(total));
    let root = snapshot.outside.filter(|outside| outside.reclaim);
    let mut sources = leaves_to_ask(&need, members);
    if let (Some(root), Some(held), Some(share)) = (root, unmanaged, share) {
        let (over, takeable) = (held - share, held - share);
        sources.push((root.root, None, Source { over, takeable }));
    }
    let takes = takes(missing, &sources.iter().map(|s| s.2).collect::<Vec<_>>());
    let scarce = config.guard.enabled && Supply::of_memory(host) == Supply::Scarce;
    let most = host.total.map_or(BATCH_LEAST, |total| {
        Bytes(total.0 / BATCH_DIVISOR).clamp(BATCH_LEAST, BATCH_MOST)
    });
    let mut writes = Vec::new();
    let mut asked = Bytes::ZERO;
    for ((group, leaf, Source { over, takeable }), bytes) in sources.into_iter().zip(takes) {
        // While memory is scarce, the root gives what it holds above its share even if the reserve is kept.
        let bytes = if leaf.is_none() && scarce {
            bytes.max(takeable)
        } else {
            bytes
        };
        let bytes = bytes.min(most).page_aligned();
        if bytes < BATCH_LEAST {
            continue;
        }
        asked = asked + bytes;
        let reason = match leaf {
            Some(i) => {
                members[i].memo.backoff.note_asked();
                Reason::KeepFree { reserve, over }
            }
            None => Reason::RootShare { over },
        };
        writes.push(Write {
            group,
            knob: Knob::MemoryReclaim,
            value: Value::Reclaim(bytes),
            reason,
        });
    }
    let guarded = Guarded {
        reserve,
        reserved: need.reserved,
        spare: need.spare,
        missing,
        unmanaged,
        unmanaged_share: root.and(share),
        asked,
    };
    (need.state, Some(guarded), writes)
}

/// Leaves that may be asked, with their index and what they can give.
fn leaves_to_ask(need: &Need, members: &mut [Member]) -> Vec<(GroupId, Option<usize>, Source)> {
    let mut sources = Vec::new();
    for (i, member) in members.iter_mut().enumerate() {
        let group = member.group;
        if !member.leaf || need.owners.contains(&group.id) || !group.knobs.reclaim {
            continue;
        }
        if let Some(source) = Source::of(group, member.decision.threshold()) {
            let backoff = &mut member.memo.backoff;
            backoff.move_on(member.memo.rates.cache.refault_pages_per_s);
            sources.push((group.id, Some(i), source.paced(backoff.factor)));
        }
    }
    sources
}

/// Page cache of the root and of unmanaged groups. `None` if any part of it is unknown.
fn unmanaged_file(host: &Host, members: &[Member]) -> Option<Bytes> {
    let leaves = members.iter().filter(|m| m.leaf);
    let managed: Option<Bytes> = leaves.map(|m| m.group.memory.file).sum();
    Some(host.file? - managed?)
}

#[cfg(test)]
mod tests;
