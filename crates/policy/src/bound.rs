//! Bounds: how much of all memory a group may take, whatever kind of memory it is.
//!
//! `memory.low` keeps page cache only while the kernel finds other memory to reclaim. Anonymous memory
//! without swap cannot be reclaimed, so a group that fills memory with it takes the page cache of all other
//! groups. Bounds therefore set `memory.high` at a group's share of all memory before the group grows past
//! it. Above the limit, the kernel slows down that group's own allocations (`mm/memcontrol.c`,
//! `mem_cgroup_handle_over_high`).
//!
//! - A *tenant* is a directory that root delegated, with all below it. It is bounded at all times, because
//!   groups and limits below it are its own to make.
//! - Another group is bounded while some other group *lacks* memory, or did a moment ago, and it could grow
//!   past its bound in the next step (or in [`SOON_S`], a reader in lending): a bound far above what it holds
//!   would only lower its dirty limit (`mm/page-writeback.c`, `mdtc_calc_avail`). A group lacks memory if
//!   memory is short and the group contends, refaults what reclaim took, and holds no more than its share. A
//!   group that streams through memory lacks nothing. The bound leaves a group the page cache that it is
//!   entitled to, and what it holds of other groups' files ([`crate::share::ownership`]).
//!
//! The share comes from [`crate::share::water`] over demands. It includes all memory that no group demands, and is
//! at least the proportion of the group's weight. A group that takes part in lending ([`crate::share::lend`]) or
//! syncs a log ([`crate::share::demand`]) has only what it is granted: it has no use for more, and `memory.low`
//! alone does not keep the rest for others. The multi-generational LRU of 6.1 to 6.12 spares a group below its
//! `memory.low` only in the first of two rounds (`mm/vmscan.c`, `shrink_one`). While the watch ([`crate::watch`])
//! has suspended the limits, the share of a group that is no tenant is also at least an equal part. A tenant whose
//! memory the kernel cannot swap out gets undemanded memory little by little: it could keep for good what it takes
//! in one second, and others may demand it in the next.
//!
//! Properties, each held by a test:
//! - *never below memory that the kernel cannot take*: the bound falls only to what the group holds of it,
//!   and does not follow what the group gains while it stands there. Memory that can be swapped out is taken
//!   little by little;
//! - *by weight*: more weight never gives a lower bound;
//! - *work-conserving*: a group has no bound if others leave it all memory;
//! - *unknown moves nothing*.

use crate::decision::Member;
use crate::feedback::limits;
use crate::order::OVERCOMMIT;
use crate::plan::Reason;
use crate::share::entitlement::swappable;
use crate::share::supply::Supply;
use crate::share::water::{self, Node};
use crate::share::{self, demand};
use crate::snapshot::Host;
use crate::units::{Bytes, Limit};

/// A group with more refaults than this lacks memory: 1 MiB per second.
const LACKS_PAGES_PER_S: f64 = 256.0;
/// Seconds for which a group that lacked memory still counts as lacking it.
const LACKS_S: f64 = 30.0;

/// Seconds of misses by which a reader in lending may grow before its bound is written.
const SOON_S: f64 = 4.0;

/// Undemanded memory that a tenant may take per second if the kernel cannot take it back, as a part of all
/// memory.
const LENT_OF_MEMORY: f64 = 1.0 / 64.0;
/// The same as a part of what the tenant holds. The larger counts: a smaller step is not worth a write.
const LENT_OF_HELD: f64 = 1.0 / 16.0;

/// A step lends a tenant at most what it would in this many seconds, however long the last one took.
const LENT_S: f64 = 2.0;

/// Room for a tenant's page cache above its share, as a part of the share.
const TENANTS_ROOM: f64 = 1.0 / 16.0;

/// A group outside of all delegated subtrees, or such a subtree as a whole.
#[derive(Debug)]
struct Holder {
    member: usize,
    /// Index among the holders.
    parent: Option<usize>,
    tenant: bool,
    /// It refaults what reclaim took, or a group of the tenant does.
    reads_back: bool,
}

/// Limits groups that could take more than their share of all memory. `cache`: page cache that the groups
/// could hold; `None`: unknown. `suspended`: the watch has suspended the limits by weight.
pub(crate) fn limit(
    members: &mut [Member],
    host: &Host,
    cache: Option<Bytes>,
    suspended: bool,
    elapsed_s: f64,
) {
    let holders = holders(members);
    let holds = |h: &Holder| h.tenant || members[h.member].leaf;
    let (at, nodes): (Vec<bool>, Vec<Node>) =
        holders.iter().map(|h| (holds(h), h.node(members))).unzip();
    let Some(cache) = cache else {
        for holder in holders.iter().filter(|holder| holder.tenant) {
            members[holder.member].decision.high = None;
        }
        return;
    };
    let holding = || holders.iter().enumerate().filter(|(i, _)| at[*i]);
    let other = holding().filter_map(|(_, h)| members[h.member].non_file());
    let total = cache + other.sum();
    let granted = water::divide(total, &nodes);
    let unwanted = total - holding().map(|(i, _)| granted[i]).sum();
    let short = Supply::of_memory(host) != Supply::Plenty;
    let mut lacking = 0;
    for (i, holder) in holding() {
        let Member {
            group,
            memo,
            decision,
            ..
        } = &mut members[holder.member];
        let for_others = decision.shift.for_others;
        let held = group.memory.current.map(|held| held - for_others);
        let lacks = short && holder.reads_back && held.is_some_and(|held| held <= granted[i]);
        memo.lacks_s = if lacks {
            LACKS_S
        } else {
            (memo.lacks_s - elapsed_s).max(0.0)
        };
        lacking += usize::from(memo.lacks_s > 0.0);
    }
    let proportions = water::proportions(&nodes);
    let equal = total.scale(1.0 / holding().count().max(1) as f64);
    for (i, holder) in holding() {
        let member = &mut members[holder.member];
        let others = lacking - usize::from(member.memo.lacks_s > 0.0);
        let fair = total.scale(proportions[i]);
        let has_enough = member.decision.has_enough();
        let mut share = if has_enough {
            granted[i]
        } else {
            (granted[i] + unwanted).max(fair)
        };
        if suspended && !holder.tenant {
            share = share.max(equal);
        }
        if holder.tenant && !swappable(host, member.group) {
            let held = member.group.memory.current.unwrap_or_default();
            let lent = total.scale(LENT_OF_MEMORY).max(held.scale(LENT_OF_HELD));
            share = share.min(fair.max(held + lent.scale(elapsed_s.min(LENT_S))));
        }
        // Page cache may exceed the share, because it gives way. A tenant could fill that room with other
        // memory between two steps, and keep it. A group that has enough gets no room: others lack that memory.
        let room = match (holder.tenant, has_enough) {
            (true, _) => TENANTS_ROOM,
            (false, true) => 0.0,
            (false, false) => OVERCOMMIT - 1.0,
        };
        let file = member.group.memory.file.unwrap_or_default();
        let room = share.scale(room).min(file);
        let mut most = share + room;
        if !holder.tenant {
            most = most + member.decision.shift.for_others;
        }
        let held = member.group.memory.current;
        let near = held.is_none_or(|held| may_hold(member, held) > most);
        if share < total && (holder.tenant || (others > 0 && near)) {
            bound(member, host, most);
        } else {
            member.memo.bound_other = None;
        }
        let reason = member.decision.high.map(|(_, reason)| reason);
        member.memo.bounded = reason == Some(Reason::ShareOfMemory);
    }
}

/// The memory that a group may hold soon, if it holds this much now. A reader in lending grows by its misses only. A
/// bound that they do not reach would lower its dirty limit and keep nothing for others.
fn may_hold(member: &Member, held: Bytes) -> Bytes {
    let missed_per_s = member.memo.rates.missed_per_s;
    let fills = |seconds: f64| Bytes((missed_per_s.unwrap_or_default() * seconds) as u64);
    if member.decision.plain.is_some() && missed_per_s.is_some() {
        held + fills(SOON_S)
    } else {
        demand::growing(held) + fills(1.0)
    }
}

/// The holders, parents before children.
fn holders(members: &[Member]) -> Vec<Holder> {
    let mut holders: Vec<Holder> = Vec::new();
    // For each member, the index of the holder that it is or belongs to.
    let mut of_member: Vec<usize> = Vec::with_capacity(members.len());
    for (i, member) in members.iter().enumerate() {
        let above = member.parent.map(|p| of_member[p]);
        let refaults = member.memo.rates.cache.refault_pages_per_s;
        let reads_back = member.leaf && member.contends() && refaults > Some(LACKS_PAGES_PER_S);
        let holder = match above {
            Some(top) if member.group.delegated => {
                holders[top].tenant |= members[holders[top].member].group.weight.is_some();
                holders[top].reads_back |= reads_back;
                top
            }
            parent => {
                holders.push(Holder {
                    member: i,
                    parent,
                    tenant: false,
                    reads_back,
                });
                holders.len() - 1
            }
        };
        of_member.push(holder);
    }
    holders
}

impl Holder {
    fn node(&self, members: &[Member]) -> Node {
        let Member { group, weight, .. } = &members[self.member];
        Node {
            parent: self.parent,
            weight: weight.map(|weight| u64::from(weight.get())),
            floor: Bytes::ZERO,
            demand: if self.tenant {
                let member = &members[self.member];
                let last = || Some(member.file()? + member.non_file()?);
                group.memory.current.or_else(last).map(demand::growing)
            } else {
                share::all_demand(&members[self.member])
            },
        }
    }
}

/// Limits a group at `most`, or at the memory that the kernel cannot take from it if that is more.
fn bound(member: &mut Member, host: &Host, most: Bytes) {
    let (group, least) = (member.group, &member.decision.least);
    // A tenant's page cache gives way to its other memory; another group keeps what it is entitled to.
    let room = if member.decision.has_enough() {
        1.0
    } else {
        OVERCOMMIT
    };
    let entitled = if member.leaf {
        member.decision.own().scale(room) + member.decision.shift.for_others
    } else {
        Bytes::ZERO
    };
    let swaps = swappable(host, group);
    let holds = |other: Bytes| limits::holds(group, least, other, entitled, swaps);
    let Some((other, held)) = group.non_file().and_then(|now| Some((now, holds(now)?))) else {
        member.decision.high = member.decision.high.filter(|_| member.leaf);
        return;
    };
    // While the group stands above its share, the bound does not follow what it gains.
    let before = member.memo.bound_other.filter(|_| held > most);
    let least_held = before.map_or(other, |before| before.min(other));
    member.memo.bound_other = (held > most).then_some(least_held);
    let limit = Limit::Bytes(most.max(holds(least_held).unwrap_or(held)));
    let high = member.decision.high.map(|(high, _)| high);
    if high.is_none_or(|high| limit < high) {
        member.decision.high = Some((limit, Reason::ShareOfMemory));
    }
}

#[cfg(test)]
mod tests;
