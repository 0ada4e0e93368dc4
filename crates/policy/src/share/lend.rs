//! Lending: memory that a group has no use for goes to groups that gain hits from it.
//!
//! A group whose curve ([`crate::worth`]) is flat at its entitlement has no use for all of it. It keeps what
//! it needs to hit as often, and the rest is lent to groups whose curves rise.
//!
//! 1. A *reader* has a curve that covers its plain share, the division by weight among all. It needs the
//!    smallest size with the misses of that share, plus room for readahead, dirty and mapped pages. If it
//!    misses less of late than its curve says, it needs its share, unless it scans. All other groups keep the entitlement
//!    without lending: groups without such a curve, and groups that write, because dirty limits follow the
//!    page share. An agent that starts has no curves yet, so a loan that was noted stays for a minute without
//!    one, as long as others leave room for it.
//! 2. The rest is *lent*. Each reader first takes what it can use of its part by weight. A group that reads
//!    in order to look needy therefore gains nothing more where others have a use too. The remainder goes by
//!    weight x additional hits in bytes per second, per byte, over the convex hull of each curve: a cliff is
//!    bought whole or not at all.
//! 3. Loans persist, because memory that moves has to be read again. Another division replaces them only if
//!    it saves a tenth of what the readers miss, and not before the last one has paid back. Needs fall slowly,
//!    except that of a scan, and rise at once.
//! 4. Water-filling ([`super::water`]) takes the results as floors, and demands a little above them. Memory
//!    that no reader has a use for goes to groups without a curve. If there is none, it stays unprotected,
//!    and any group may fill it.
//!
//! Units: bytes, seconds. Properties, each held by a test:
//! - *incentive*: no group's hit ratio is below that of its plain share or of its entitlement without
//!   lending, whichever is less;
//! - *unknown changes nothing*: a group without a curve gets no less than without lending. A noted loan
//!   counts for a minute, unless others are entitled to it;
//! - *conservation*: the sum of what is given is at most what there is, and below an operator's limit at most what
//!   the limit allows;
//! - *work-conserving*: no memory that a reader could use is left, except the margin that keeps loans steady;
//! - *whole or nothing*: no loan ends part of the way up a cliff;
//! - *no gain by asking*: however fast one reader reads, the others get their part by weight of what is lent;
//! - *steady*: memory that moved pays back before it moves again.

use super::tree::{divide, nodes, Left};
use super::water;
use crate::decision::{Lent, Member};
use crate::units::Bytes;
use crate::worth::{Curve, Stretch};

/// Minimum room in addition to a reader's need, for readahead and dirty pages.
const ROOM: Bytes = Bytes::mib(12);
/// Room as a part of the need, for the inaccuracy of a curve.
const ROOM_OF_SIZE: f64 = 1.0 / 16.0;
/// This part of the lendable memory is not lent; it absorbs fluctuations.
const STEADY: f64 = 1.0 / 32.0;
/// A need falls by at most this part of what could be page cache per second.
const DOWN_PER_S: f64 = 1.0 / 16.0;
/// A reader that misses at least this part with its share, and no more with [`ROOM`] alone, scans: its need falls at
/// once. Hits beyond its curve are then on pages that other groups hold.
const SCANS: f64 = 0.5;
/// A new division must save at least this part of what the readers miss.
const CLEARLY: f64 = 0.1;
/// Longest time for moved memory to pay back, however slow the disk.
const PAYS_BACK_S: f64 = 120.0;
/// Longest time for which a group without a curve keeps its loan: an agent that starts has no curves yet.
const KEPT_S: f64 = 60.0;
/// Least speed at which a reader refills its cache, bytes per second.
const REFILLS_PER_S: f64 = 4e6;

struct Reader<'a> {
    member: usize,
    curve: &'a Curve,
    /// Its share of the total weight down the hierarchy.
    weight: f64,
    /// Size that it keeps in any case.
    need: Bytes,
    /// Size beyond which it has no use for memory.
    most: Bytes,
    before: Option<Lent>,
    /// Speed at which it refills its cache, bytes per second.
    refills_per_s: f64,
}

impl<'a> Reader<'a> {
    /// `None`: it does not take part. `fair`: its plain share, or its entitlement without lending if less.
    fn of(i: usize, member: &Member<'a>, fair: Bytes, down: Bytes) -> Option<Reader<'a>> {
        let (memo, curve) = (&member.memo, member.group.worth.as_ref()?);
        let scans = 1.0 - curve.at_least(fair) >= SCANS && curve.need(fair, None) <= ROOM;
        let writes = memo.activity.writer() || memo.activity.mixes();
        if !member.leaf || writes || curve.asked_per_s() <= 0.0 || !curve.tells(fair) {
            return None;
        }
        let mapped = member.group.memory.file_mapped.unwrap_or_default();
        let missed = memo.activity.missed_part().filter(|_| !scans);
        let enough = curve.need(fair, missed);
        let enough = (enough + spare(enough) + mapped).min(fair);
        let before = memo.lent.map_or(fair, |lent| lent.need);
        let least = if scans { Bytes::ZERO } else { before - down };
        let need = enough.max(least).min(fair);
        let useful = curve.need(curve.known(), missed);
        let most = memo.demand.map_or(useful, |most| most.min(useful));
        Some(Reader {
            member: i,
            curve,
            weight: member.decision.proportion,
            need,
            most: most.max(need),
            before: memo.lent,
            refills_per_s: memo
                .rates
                .missed_per_s
                .unwrap_or_default()
                .max(REFILLS_PER_S),
        })
    }

    /// The part of its last size that it still has a use for.
    fn kept(&self) -> Bytes {
        let before = self.before.map_or(self.need, |lent| lent.size);
        let useful = self.curve.at_least(before + spare(before));
        let kept = before.min(self.curve.size_for(useful));
        kept.clamp(self.need, self.most)
    }

    /// Weighted hits with this size, bytes per second.
    fn worth(&self, size: Bytes) -> f64 {
        self.weight * self.curve.hit_per_s(size)
    }
}

fn spare(size: Bytes) -> Bytes {
    ROOM.max(size.scale(ROOM_OF_SIZE))
}

/// Divides `total` with lending: sets demands, notes loans and returns the entitlements. `None`: no group has
/// a curve, and nothing was changed. `today`: the entitlements without lending. `settles_s`: seconds until
/// the memory that moved last has paid back.
pub(crate) fn lend(
    members: &mut [Member],
    total: Bytes,
    today: &[Bytes],
    settles_s: &mut f64,
    elapsed_s: f64,
) -> Option<Vec<Bytes>> {
    *settles_s = (*settles_s - elapsed_s).max(0.0);
    let unlent = members.iter().all(|m| m.memo.lent.is_none());
    if unlent && members.iter().all(|m| m.group.worth.is_none()) {
        return None;
    }
    let plain = divide(total, members, |_| None);
    let down = total.scale(DOWN_PER_S * elapsed_s);
    let fair: Vec<Bytes> = plain.iter().zip(today).map(|(a, b)| *a.min(b)).collect();
    let readers: Vec<Reader> = members
        .iter()
        .enumerate()
        .filter_map(|(i, member)| Reader::of(i, member, fair[i], down))
        .collect();
    let mut keeping: Vec<Option<Lent>> = members
        .iter_mut()
        .zip(&fair)
        .map(|(member, &fair)| keeps(member, fair, elapsed_s))
        .collect();
    let mut others: Vec<bool> = members.iter().map(|m| m.leaf).collect();
    for reader in &readers {
        others[reader.member] = false;
    }
    let others: Vec<usize> = (0..members.len()).filter(|&i| others[i]).collect();
    let size = |i: usize, kept: Option<Lent>| kept.map_or(today[i], |lent| lent.size);
    let needs = readers.iter().map(|reader| (reader.member, reader.need));
    let due = others
        .iter()
        .map(|&i| (i, size(i, keeping[i]).min(today[i])));
    let mut left = Left::of(members, total);
    left.take_all(due.chain(needs));
    for &i in &others {
        // A kept loan ends if others are entitled to what it holds.
        let loan = size(i, keeping[i]) - today[i];
        keeping[i] = keeping[i].filter(|_| loan <= left.for_member(i));
        left.take(i, size(i, keeping[i]) - today[i]);
    }
    let mut left = Left::of(members, total);
    left.take_all(others.iter().map(|&i| (i, size(i, keeping[i]))));
    let sizes = sizes(&readers, &left, settles_s);
    let mut floors = today.to_vec();
    for member in members.iter_mut() {
        member.memo.lent = None;
    }
    let lent = readers.iter().zip(sizes).map(|(reader, size)| {
        let need = reader.need;
        (reader.member, Lent { need, size })
    });
    let keeping = keeping.into_iter().enumerate();
    let keeping = keeping.filter_map(|(i, lent)| Some((i, lent?)));
    for (i, lent) in lent.chain(keeping) {
        let Member { memo, decision, .. } = &mut members[i];
        memo.lent = Some(lent);
        let size = lent.size;
        let wants = size + spare(size);
        memo.demand = Some(memo.demand.map_or(wants, |most| most.min(wants)).max(size));
        decision.plain = Some(plain[i]);
        floors[i] = size;
    }
    let mut nodes = nodes(members, |_| true, |m| m.memo.demand);
    for (node, floor) in nodes.iter_mut().zip(floors) {
        node.floor = node.demand.map_or(floor, |most| floor.min(most));
    }
    Some(water::divide(total, &nodes))
}

/// The loan of a group of which no curve tells enough for now. It stays for [`KEPT_S`], unless the group writes.
fn keeps(member: &mut Member, fair: Bytes, elapsed_s: f64) -> Option<Lent> {
    let memo = &mut member.memo;
    let curve = member.group.worth.as_ref();
    let told = curve.is_some_and(|curve| curve.tells(fair));
    let writes = memo.activity.writer() || memo.activity.mixes();
    if told || writes || !member.leaf || memo.lent.is_none() {
        memo.no_curve_s = 0.0;
        return None;
    }
    memo.no_curve_s += elapsed_s;
    let lent = memo.lent.filter(|_| memo.no_curve_s < KEPT_S)?;
    let size = memo.demand.map_or(lent.size, |most| lent.size.min(most));
    let need = lent.need.min(size);
    Some(Lent { need, size })
}

/// The size of each reader: its need and its loan.
fn sizes(readers: &[Reader], left: &Left, settles_s: &mut f64) -> Vec<Bytes> {
    let members = || readers.iter().map(|reader| reader.member);
    let lent = |from: Vec<Bytes>| {
        let mut left = left.clone();
        for bytes in left.at.iter_mut().flatten() {
            *bytes = bytes.scale(1.0 - STEADY);
        }
        left.take_all(members().zip(from.iter().copied()));
        buy(readers, from, left)
    };
    let anew = lent(readers.iter().map(|r| r.need).collect());
    let kept: Vec<Bytes> = readers.iter().map(Reader::kept).collect();
    if !left.clone().take_all(members().zip(kept.iter().copied())) {
        return anew;
    }
    let kept = lent(kept);
    let worth =
        |sizes: &[Bytes]| -> f64 { readers.iter().zip(sizes).map(|(r, &s)| r.worth(s)).sum() };
    let asked: f64 = readers
        .iter()
        .map(|r| r.weight * r.curve.asked_per_s())
        .sum();
    let saves = worth(&anew) - worth(&kept);
    if *settles_s > 0.0 || saves <= CLEARLY * (asked - worth(&kept)) {
        return kept;
    }
    let moves = readers.iter().zip(anew.iter().zip(&kept));
    let refill_s = moves.map(|(r, (&to, &from))| (to - from).as_f64() / r.refills_per_s);
    *settles_s = refill_s.fold(0.0, f64::max).min(PAYS_BACK_S);
    anew
}

/// Distributes what is left to readers that have a use for more than `sizes`.
fn buy(readers: &[Reader], mut sizes: Vec<Bytes>, mut left: Left) -> Vec<Bytes> {
    let hull = |reader: &Reader, size: Bytes| reader.curve.hull(size, reader.most);
    // A cliff larger than all that is left cannot be bought.
    let buys = |(reader, &size): &(&Reader, &Bytes)| {
        let first = hull(reader, size).into_iter().next();
        first.is_some_and(|stretch| {
            !stretch.whole || stretch.bytes <= left.for_member(reader.member)
        })
    };
    let mut weights = vec![f64::MIN_POSITIVE; left.at.len()];
    for (reader, _) in readers.iter().zip(&sizes).filter(buys) {
        for (i, _) in left.above(reader.member) {
            weights[i] += reader.weight;
        }
    }
    let part = |reader: &Reader| -> Bytes {
        let parts = left.above(reader.member);
        let parts = parts.map(|(i, left)| left.scale(reader.weight / weights[i]));
        parts.min().unwrap_or_default()
    };
    let parts: Vec<Bytes> = readers.iter().map(part).collect();
    for ((reader, size), mut part) in readers.iter().zip(&mut sizes).zip(parts) {
        for stretch in hull(reader, *size) {
            let taken = take(&stretch, part.min(left.for_member(reader.member)));
            left.take(reader.member, taken);
            (*size, part) = (*size + taken, part - taken);
            if taken < stretch.bytes {
                break;
            }
        }
    }
    let mut offers: Vec<(f64, usize, Stretch)> = Vec::new();
    for (i, (reader, &size)) in readers.iter().zip(&sizes).enumerate() {
        let value =
            |s: &Stretch| reader.weight * reader.curve.asked_per_s() * s.hits / s.bytes.as_f64();
        offers.extend(hull(reader, size).into_iter().map(|s| (value(&s), i, s)));
    }
    // The sort is stable, so each reader's stretches stay in order.
    offers.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut done = vec![false; readers.len()];
    for (_, i, stretch) in offers {
        let member = readers[i].member;
        if !done[i] {
            let taken = take(&stretch, left.for_member(member));
            left.take(member, taken);
            sizes[i] = sizes[i] + taken;
            done[i] = taken < stretch.bytes;
        }
    }
    sizes
}

/// The bytes of a stretch that fit into `room`; a cliff fits only as a whole.
fn take(stretch: &Stretch, room: Bytes) -> Bytes {
    match stretch.bytes <= room {
        true => stretch.bytes,
        false if stretch.whole => Bytes::ZERO,
        false => room,
    }
}

#[cfg(test)]
mod tests;
