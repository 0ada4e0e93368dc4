//! Demands: how much page cache a group has a use for.

use super::ownership::Charges;
use crate::decision::Member;
use crate::feedback::limits;
use crate::units::Bytes;

/// A group may grow this much beyond a quarter of what it holds within one period before its
/// entitlement follows.
const GROWTH: Bytes = Bytes::mib(8);

/// What a group that is not held back may want next: what it holds and room to grow.
pub(crate) fn growing(held: Bytes) -> Bytes {
    held + held.scale(0.25) + GROWTH
}

/// Sets each member's demand: unbounded for who contends or claims by writing, what it holds and
/// room to grow for others; no more than the operator's limits allow, and than its cap if
/// `caps_count`. A group that does nothing keeps what it is entitled to and lends the rest. What it
/// holds for others is not its demand but theirs.
pub(crate) fn set(members: &mut [Member], charges: &Charges, caps_count: bool) {
    let shifts = charges.wanted(members.len());
    for (member, shift) in members.iter_mut().zip(shifts) {
        let activity = &member.memo.activity;
        let busy = member.contends() || activity.claiming();
        let grows = member
            .group
            .memory
            .file
            .filter(|_| !(busy && activity.writer()));
        let cap = member.memo.cap.filter(|_| caps_count);
        let most = limits::ceiling(member.group).into_iter().chain(cap);
        member.memo.demand = grows
            .map(|held| growing(shift.need(held)))
            .into_iter()
            .chain(most.map(|most| shift.need(most)))
            .min();
    }
}
