//! Demands: how much page cache a group has a use for.

use super::ownership::Charges;
use crate::decision::Member;
use crate::units::Bytes;

/// Growth within one period that the demand allows for, as a part of what the group holds.
const GROWS: f64 = 0.25;
/// The same in addition, unless the group rests.
const GROWTH: Bytes = Bytes::mib(8);

/// The next demand of a group that is not limited: what it holds plus room to grow.
pub(crate) fn growing(held: Bytes) -> Bytes {
    held + held.scale(GROWS) + GROWTH
}

/// Sets each member's demand. It is unbounded for writers that contend or claim; for other groups it is what
/// they hold plus room to grow, so that an idle group keeps what it holds and lends the rest of its share.
/// The operator's limits on it and on its ancestors bound it, and so does the cap if `caps_count`. Page cache
/// that a group holds for others counts as their demand. Only the operator's limits bound an inner group. A group that
/// cannot be read demands what it demanded before, and nothing if it never could be read.
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
        let grows = held.filter(|_| member.leaf && !(busy && activity.writer()));
        // Thousands of idle groups would otherwise demand all memory that there is.
        let rests = activity.rests() && !busy;
        let room = if rests { Bytes::ZERO } else { GROWTH };
        let grown = |held: Bytes| held + held.scale(GROWS) + room;
        let cap = member.memo.cap.filter(|_| caps_count);
        let most = member.decision.ceiling.into_iter().chain(cap);
        member.memo.demand = grows
            .map(|held| grown(shift.need(held)))
            .into_iter()
            .chain(most.map(|most| shift.need(most)))
            .min();
    }
}
