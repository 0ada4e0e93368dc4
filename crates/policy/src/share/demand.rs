//! Demands: how much page cache a group has a use for.

use super::ownership::Charges;
use crate::decision::Member;
use crate::units::{Bytes, Limit};

/// Growth within one period that the demand allows for, as a part of what the group holds.
const GROWS: f64 = 0.25;
/// The same in addition, unless the group rests.
const GROWTH: Bytes = Bytes::mib(8);

/// A group that only writes, and has no limit but a bound, has a use for this many times its dirty pages.
const OF_DIRTY: f64 = 8.0;
/// The same in addition: room for code and for pages between two looks.
const BESIDE_DIRTY: Bytes = Bytes::mib(12);
/// Its dirty pages are few if they are less than this part of its page cache, or than [`FEW`]. A group in dirty
/// throttling has more.
const FEW_OF_HELD: f64 = 0.05;
/// Dirty pages that are few, however little page cache the group holds.
const FEW: Bytes = Bytes::mib(2);
/// Part of its demand that it keeps in each step.
const KEEPS: f64 = 0.875;

/// The next demand of a group that is not limited: what it holds plus room to grow.
pub(crate) fn growing(held: Bytes) -> Bytes {
    held + held.scale(GROWS) + GROWTH
}

/// The demand of a group that syncs what it writes and reads next to nothing, such as a log: its clean pages serve
/// nobody, and the dirty limit of what it demands is not reached. `None`: it is none.
fn of_log(member: &Member, held: Bytes) -> Option<Bytes> {
    let (group, memo) = (member.group, &member.memo);
    let dirty = group.memory.file_dirty?;
    let unlimited = group.knobs.high == Some(Limit::Max) || memo.bounded;
    let syncs =
        unlimited && memo.activity.only_writes() && dirty < held.scale(FEW_OF_HELD).max(FEW);
    let mapped = group.memory.file_mapped.unwrap_or(held);
    let wants = dirty.scale(OF_DIRTY) + BESIDE_DIRTY + mapped;
    syncs.then(|| wants.max(memo.demand.unwrap_or(held).scale(KEEPS)))
}

/// Sets each member's demand. It is unbounded for writers that contend or claim, except those that sync a log. For
/// other groups it is what they hold plus room to grow, so that an idle group keeps what it holds and lends the rest
/// of its share. The operator's limits on it and on its ancestors bound it, and so does the cap if `caps_count`. Page
/// cache that a group holds for others counts as their demand. Only the operator's limits bound an inner group. A
/// group that cannot be read demands what it demanded before, and nothing if it never could be read.
pub(crate) fn set(members: &mut [Member], charges: &Charges, caps_count: bool) {
    let shifts = charges.wanted(members.len());
    for (member, shift) in members.iter_mut().zip(shifts) {
        let held = member.group.memory.file;
        if held.is_none() && member.memo.demand.is_some() {
            continue;
        }
        let activity = &member.memo.activity;
        let busy = member.contends() || activity.claiming();
        if held.is_none() && member.leaf && member.memo.file.is_none() {
            member.memo.demand = Some(Bytes::ZERO);
            continue;
        }
        let writes = busy && activity.writer();
        let log = held.filter(|_| member.leaf && writes);
        let log = log.and_then(|held| of_log(member, held));
        member.decision.syncs = log.is_some();
        let grows = held.filter(|_| member.leaf && !writes);
        // Thousands of idle groups would otherwise demand all memory that there is.
        let rests = activity.rests() && !busy;
        let room = if rests { Bytes::ZERO } else { GROWTH };
        let grown = |held: Bytes| held + held.scale(GROWS) + room;
        let cap = member.memo.cap.filter(|_| caps_count);
        let most = member.decision.ceiling.into_iter().chain(cap);
        member.memo.demand = grows
            .map(|held| grown(shift.need(held)))
            .into_iter()
            .chain(log.map(|log| shift.need(log)))
            .chain(most.map(|most| shift.need(most)))
            .min();
    }
}
