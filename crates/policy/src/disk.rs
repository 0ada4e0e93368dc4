//! Disks that io.cost serves by weight: it is switched on for them while groups contend, with a model that is
//! given or learned. These are all disks but rotational ones with BFQ, which BFQ alone serves. On the other disks with
//! BFQ, io.cost is switched on once writers contend: readers alone lose an eighth of their bandwidth with both
//! (docs/results/nested.md).
//!
//! Units: bytes, requests and seconds.
//!
//! The kernel's model of a disk is linear (`block/blk-iocost.c`): a request costs a fixed time plus a time
//! per byte. Both are learned from the disk under load, without a benchmark. While the disk is *saturated*
//! (busy all the time), its throughput is its capacity. Large requests show the time per byte; small ones
//! show the remaining time per request. The largest throughput counts, and it decays slowly. Small requests alone say
//! nothing of the time per byte: until large ones were seen, it is that of a disk faster than any. Requests between
//! small and large ones, after small ones, say nothing new: their time would count twice.
//!
//! The model need not be exact. `io.cost.qos` lets the kernel run slower or faster than the model: faster
//! while requests wait for io.cost and the disk meets its latency target, slower while it misses the target. The
//! target follows from the model: the time of a few requests.
//!
//! A model may be far too slow for its disk: it was learned from few requests in flight, or from seeks, before a
//! scan. io.cost then holds back the whole host, whether or not groups contend. If the kernel runs at its highest
//! speed and groups use what it grants, the agent doubles the model at once, and again. It takes back a doubling
//! once the kernel runs a saturated disk slower than the doubled model.
//!
//! If groups contend and use what io.cost grants (`cost.usage`), the kernel runs slower than the model and the disk
//! delivers less than its capacity, io.cost is relaxed after [`RELAX_S`] seconds: the target is doubled, and the
//! lowest speed rises. The latter is for disks with few tags: the kernel also runs slower while requests wait for a
//! tag.
//!
//! Properties:
//! - A disk for which somebody else configured io.cost is left alone, and so is a disk whose knobs a foreign
//!   writer took over.
//! - Nothing is written before groups contend, and nothing before a model is given or the disk was saturated
//!   for [`LEARN_S`] seconds.
//! - Each write makes the kernel wait until no request is in flight. A model is therefore corrected only if
//!   it is wrong by more than the factor [`WORTH`], and a learned one at most once in [`PAUSE_S`] seconds.
//! - No disk that groups use is slower for long because of its model, given or learned, contention or not.
//! - A disk that io.cost slows down gets a larger latency target, up to [`LATENCY_US`], and in the end runs at
//!   least at the speed of the model.
//!
//! Left out: the difference between sequential and random requests. The model has the same numbers for both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cost::{CostModel, CostQos, DiskCounters};
use crate::knob::{Knob, Value};
use crate::plan::{Reason, Write};
use crate::snapshot::{BlockDevice, GroupId};

/// A disk that is busy for this part of the time is saturated.
const SATURATED: f64 = 0.9;
/// Groups do not contend for a disk that is busy for less than this part of the time.
const BUSY: f64 = 0.1;
/// Seconds of contention after which a disk that is not busy is not the one for which groups contend, and a disk for
/// which io.cost is still off serves nobody. Shorter times occur on slow disks, and while an agent starts.
const PATIENCE_S: f64 = 10.0;
/// Seconds of saturation before a learned model is used.
const LEARN_S: f64 = 3.0;
/// Requests of at least this many bytes show the time per byte.
const LARGE: f64 = 65536.0;
/// Requests of at most this many bytes show the time per request.
const SMALL: f64 = 16384.0;
/// Bytes per second of a disk that has served small requests only. No disk is faster.
const FAST: f64 = 16e9;
/// Part of a capacity that decays in each second in which the saturated disk delivers less.
const FADE: f64 = 0.002;
/// Time constant of the rates, seconds, so that a burst into the disk's own cache is not taken for capacity.
const SMOOTHING_S: f64 = 3.0;
/// A model that is wrong by this factor is corrected.
const WORTH: f64 = 1.25;
/// Minimum seconds between two corrections.
const PAUSE_S: f64 = 20.0;
/// Size, bytes, of the requests that the `iops` numbers of `io.cost.model` count.
const PAGE: f64 = 4096.0;
/// Lowest and highest speed of the kernel relative to the model, hundredths of a percent. The lowest rises with
/// each relaxation, up to the speed of the model.
const SLOWEST: u32 = 6500;
const RISE: u32 = 3500;
const FASTEST: u32 = 40_000;
/// Speed from which the kernel counts as at its highest, and largest number of doublings of a model.
const AT_FASTEST: u32 = FASTEST / 100 * 95;
const DOUBLED: u32 = 10;
/// Part of the requests that must meet the latency target, hundredths of a percent.
const IN_TIME: u32 = 9000;
/// While the kernel runs slower than the model, a disk of whose capacity less than this part is used is slowed
/// down by io.cost.
const SLOWED: f64 = 0.95;
/// While io.cost holds requests back, groups use at least this part of the time that it grants.
const GRANTED: f64 = 0.75;
/// Seconds of being slowed down before a relaxation or a step back of a doubled model, and the largest number of
/// relaxations.
const RELAX_S: f64 = 3.0;
const RELAXED: u32 = 6;
/// Bytes of a large request. The kernel merges contiguous pages up to `max_sectors_kb`, 512 or 1280 KiB on most
/// disks.
const LARGEST: f64 = 524_288.0;
/// Bounds of the latency target, microseconds.
const LATENCY_US: (f64, f64) = (200.0, 200_000.0);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DiskMemo {
    counters: Option<DiskCounters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_used_us: Option<u64>,
    rates: Option<DiskRates>,
    /// Seconds of contention since it was last busy.
    idle_s: f64,
    /// Seconds of contention for which io.cost has been off.
    off_s: f64,
    /// Seconds in which it was saturated.
    saturated_s: f64,
    read: Capacity,
    write: Capacity,
    /// We switched io.cost on.
    held: bool,
    /// Seconds since its model was written.
    written_s: f64,
    /// Seconds for which io.cost has slowed it down.
    slowed_s: f64,
    /// Number of relaxations.
    relaxed: u32,
    /// Times that its model is doubled.
    doubled: u32,
}

/// Smoothed rates of a disk, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct DiskRates {
    read_bytes: f64,
    write_bytes: f64,
    requests: f64,
    /// Part of the time in which it was busy.
    busy: f64,
}

/// Capacity of one direction: reads or writes. The default: nothing was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Capacity {
    /// 0: no requests were seen that show it.
    bytes_per_s: f64,
    /// Time per request in addition to that of its bytes, seconds; `None`: unknown, taken as zero.
    request_s: Option<f64>,
}

impl DiskRates {
    fn between(then: &DiskCounters, now: &DiskCounters, elapsed_s: f64) -> Option<DiskRates> {
        let rate = |then: u64, now: u64| {
            let difference = now.checked_sub(then)?;
            (elapsed_s > 0.0).then(|| difference as f64 / elapsed_s)
        };
        let requests = rate(then.reads, now.reads)? + rate(then.writes, now.writes)?;
        Some(DiskRates {
            read_bytes: rate(then.read_bytes, now.read_bytes)?,
            write_bytes: rate(then.write_bytes, now.write_bytes)?,
            requests,
            busy: rate(then.busy_ms, now.busy_ms)? / 1000.0,
        })
    }

    fn smoothed(self, new: DiskRates, elapsed_s: f64) -> DiskRates {
        let part = 1.0 - (-elapsed_s / SMOOTHING_S).exp();
        let mix = |old: f64, new: f64| old + (new - old) * part;
        DiskRates {
            read_bytes: mix(self.read_bytes, new.read_bytes),
            write_bytes: mix(self.write_bytes, new.write_bytes),
            requests: mix(self.requests, new.requests),
            busy: mix(self.busy, new.busy),
        }
    }
}

impl Capacity {
    /// Learns from the throughput of a saturated disk.
    fn learn(&mut self, bytes_per_s: f64, requests_per_s: f64, elapsed_s: f64) {
        let size = bytes_per_s / requests_per_s;
        if size >= LARGE {
            self.bytes_per_s *= 1.0 - FADE * elapsed_s;
        }
        let first = size > SMALL && self.request_s.is_none();
        if size >= LARGE || first || self.bytes_per_s > 0.0 {
            self.bytes_per_s = self.bytes_per_s.max(bytes_per_s);
        }
        if size <= SMALL {
            let seen = (1.0 / requests_per_s - size / speed(self.bytes_per_s)).max(0.0);
            let least = self.request_s.map(|least| least * (1.0 + FADE * elapsed_s));
            self.request_s = Some(least.map_or(seen, |least| least.min(seen)));
        }
    }

    /// Bytes per second, and requests of one page per second.
    fn numbers(self) -> (u64, u64) {
        let bytes_per_s = speed(self.bytes_per_s);
        let request_s = self.request_s.unwrap_or_default() + PAGE / bytes_per_s;
        (bytes_per_s as u64, (1.0 / request_s) as u64)
    }
}

/// The capacity, or that of a disk faster than any if it is unknown.
fn speed(bytes_per_s: f64) -> f64 {
    if bytes_per_s > 0.0 {
        bytes_per_s
    } else {
        FAST
    }
}

impl DiskMemo {
    fn after(&self, disk: &BlockDevice, contended: bool, elapsed_s: f64) -> DiskMemo {
        let mut memo = DiskMemo {
            counters: disk.counters,
            cost_used_us: disk.cost_used_us,
            written_s: self.written_s + elapsed_s,
            ..self.clone()
        };
        let both = self.counters.as_ref().zip(disk.counters.as_ref());
        let new = both.and_then(|(then, now)| DiskRates::between(then, now, elapsed_s));
        let Some(new) = new else {
            memo.rates = None;
            memo.idle_s = 0.0;
            return memo;
        };
        let rates = self.rates.map_or(new, |old| old.smoothed(new, elapsed_s));
        memo.rates = Some(rates);
        if rates.busy >= BUSY {
            memo.idle_s = 0.0;
        } else if contended {
            memo.idle_s += elapsed_s;
        }
        let on = disk.cost_qos.is_some_and(|qos| qos.enable);
        if on {
            memo.off_s = 0.0;
        } else if contended {
            memo.off_s += elapsed_s;
        }
        let bytes = rates.read_bytes + rates.write_bytes;
        let works = bytes > 0.0 && rates.requests > 0.0;
        let saturated = works && new.busy.min(rates.busy) >= SATURATED;
        // io.cost may keep the disk idle, so this does not ask whether the disk is saturated. The kernel leaves the
        // vrate where the last burst left it; on a disk in light use a low one slows nobody down.
        let granted = self.cost_used_us.zip(disk.cost_used_us);
        let granted = granted.map(|(then, now)| now.saturating_sub(then) as f64 / 1e6);
        let used_up = granted.map(|used_s| used_s >= GRANTED * elapsed_s);
        let slower = memo.held && contended && disk.vrate.is_some_and(|vrate| vrate < 9500);
        let back = saturated && memo.doubled > 0;
        let slowed = used_up.unwrap_or(true) && memo.used(rates, disk.given_model) < SLOWED;
        memo.slowed_s = if slower && (back || slowed) {
            memo.slowed_s + elapsed_s
        } else {
            0.0
        };
        let fastest = memo.held && disk.vrate.is_some_and(|vrate| vrate >= AT_FASTEST);
        if fastest && used_up == Some(true) {
            memo.doubled = (memo.doubled + 1).min(DOUBLED);
        } else if back && memo.slowed_s >= RELAX_S {
            memo.slowed_s = 0.0;
            memo.doubled -= 1;
        }
        if !saturated {
            return memo;
        }
        memo.saturated_s += elapsed_s;
        // A disk that reads and writes at the same time teaches both directions.
        let mostly = |part: f64| part >= 0.8 * bytes;
        if !mostly(rates.write_bytes) {
            memo.read.learn(bytes, rates.requests, elapsed_s);
        }
        if !mostly(rates.read_bytes) {
            memo.write.learn(bytes, rates.requests, elapsed_s);
        }
        memo
    }

    /// Part of the disk's capacity that these rates use. A disk with a given model may have learned nothing.
    fn used(&self, rates: DiskRates, given: Option<CostModel>) -> f64 {
        let bps = given.map_or(0, |given| given.rbps.max(given.wbps)) as f64;
        let seen = self.read.bytes_per_s.max(self.write.bytes_per_s);
        let bytes_per_s = speed(seen.max(bps));
        let of_given = |given: CostModel| {
            let iops = given.rrandiops.max(given.wrandiops);
            (1.0 / iops as f64 - PAGE / bps).max(0.0)
        };
        let request_s = self.read.request_s.or(self.write.request_s);
        let request_s = request_s.or(given.map(of_given)).unwrap_or_default();
        let bytes = rates.read_bytes + rates.write_bytes;
        bytes / bytes_per_s + rates.requests * request_s
    }

    /// The model learned so far; `None`: too little was seen.
    fn model(&self) -> Option<CostModel> {
        if self.saturated_s < LEARN_S {
            return None;
        }
        // A direction that was not observed takes the capacity of the other one.
        let known = |one, other| {
            if one == Capacity::default() {
                other
            } else {
                one
            }
        };
        let (rbps, riops) = known(self.read, self.write).numbers();
        let (wbps, wiops) = known(self.write, self.read).numbers();
        let model = CostModel {
            user: true,
            rbps,
            rseqiops: riops,
            rrandiops: riops,
            wbps,
            wseqiops: wiops,
            wrandiops: wiops,
        };
        model.is_whole().then_some(model)
    }
}

/// Seconds that a large request takes.
fn large_s(bps: u64, iops: u64) -> f64 {
    (LARGEST - PAGE) / bps as f64 + 1.0 / iops as f64
}

/// `io.cost.qos` for this model after this many relaxations.
fn qos(model: &CostModel, relaxed: u32) -> CostQos {
    // A request may wait in the disk behind a few large ones.
    let in_time = |bps: u64, iops: u64| {
        let few = 4.0 * f64::from(1 << relaxed);
        (few * large_s(bps, iops) * 1e6).clamp(LATENCY_US.0, LATENCY_US.1) as u32
    };
    CostQos {
        enable: true,
        user: true,
        rpct: IN_TIME,
        rlat_us: in_time(model.rbps, model.rrandiops),
        wpct: IN_TIME,
        wlat_us: in_time(model.wbps, model.wrandiops),
        min: (SLOWEST + RISE * relaxed).min(10_000),
        max: FASTEST,
    }
}

/// This model, so many times doubled.
fn doubled(model: CostModel, times: u32) -> CostModel {
    let more = |number: u64| number.saturating_mul(1 << times);
    CostModel {
        user: model.user,
        rbps: more(model.rbps),
        rseqiops: more(model.rseqiops),
        rrandiops: more(model.rrandiops),
        wbps: more(model.wbps),
        wseqiops: more(model.wseqiops),
        wrandiops: more(model.wrandiops),
    }
}

/// True if a model is wrong enough to be corrected.
fn worth(now: &CostModel, wanted: &CostModel) -> bool {
    let pairs = [
        (now.rbps, wanted.rbps),
        (now.rrandiops, wanted.rrandiops),
        (now.wbps, wanted.wbps),
        (now.wrandiops, wanted.wrandiops),
    ];
    pairs.into_iter().any(|(now, wanted)| {
        let factor = now as f64 / wanted.max(1) as f64;
        !(1.0 / WORTH..=WORTH).contains(&factor)
    })
}

/// The groups that contend for disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contention {
    None,
    /// None but readers. On disks without BFQ only io.cost orders them.
    Readers,
    /// Writers among them.
    Writers,
}

/// The next state of the disks, and the writes to their knobs. `serves`: disks are to be served by weight, from the
/// first contention on. `suspended`: the watch has suspended io.cost.
pub(crate) fn serve(
    memos: &BTreeMap<GroupId, DiskMemo>,
    disks: &[BlockDevice],
    contention: Contention,
    serves: bool,
    suspended: bool,
    elapsed_s: f64,
) -> (BTreeMap<GroupId, DiskMemo>, Vec<Write>) {
    let contended = contention != Contention::None;
    let begun = serves && (contended || served(memos) > 0);
    let mut writes = Vec::new();
    let mut next = BTreeMap::new();
    for disk in disks {
        let (Some(qos_now), Some(model_now)) = (disk.cost_qos, disk.cost_model) else {
            let unread = |memo: &DiskMemo| DiskMemo {
                counters: None,
                ..memo.clone()
            };
            next.extend(memos.get(&disk.id).map(|memo| (disk.id, unread(memo))));
            continue;
        };
        let before = memos.get(&disk.id).cloned().unwrap_or_default();
        let mut memo = before.after(disk, contended, elapsed_s);
        // The agent gives io.cost back where the mode serves no disk, and to a foreign writer.
        memo.held &= serves && !disk.foreign;
        let mut bfq = disks.iter().filter(|other| other.low_latency.is_some());
        let serve = begun
            && (contention == Contention::Writers
                || memo.held
                || !bfq.any(|bfq| bfq.name() == disk.name()));
        let others = !memo.held && (qos_now.enable || qos_now.user || model_now.user);
        let model = disk.given_model.or_else(|| memo.model());
        if suspended {
            let on = memo.held && qos_now.enable && !disk.foreign;
            writes.extend(on.then(|| off(disk, qos_now)));
        } else if let Some(model) = model.filter(|_| serve && !others && !disk.foreign) {
            let due = memo.written_s >= PAUSE_S || disk.given_model.is_some();
            let due = due || memo.doubled != before.doubled;
            let wrong = due && worth(&model_now, &doubled(model, memo.doubled));
            if !memo.held || !qos_now.enable || wrong {
                memo.held = true;
                memo.written_s = 0.0;
                writes.extend(both(disk, model, &memo));
            } else if memo.slowed_s >= RELAX_S && memo.relaxed < RELAXED {
                memo.slowed_s = 0.0;
                memo.relaxed += 1;
                let [_, qos] = both(disk, model, &memo);
                writes.push(qos);
            }
        }
        next.insert(disk.id, memo);
    }
    (next, writes)
}

/// Number of disks that io.cost serves, or would if it were not suspended.
pub(crate) fn served(memos: &BTreeMap<GroupId, DiskMemo>) -> usize {
    memos.values().filter(|memo| memo.held).count()
}

/// Whether a disk that serves writers by weight, now or once they contend, may be the one for which they contend: it
/// has been busy, or that is not known. io.cost serves no disk for which it stays off, because the disk is never
/// saturated.
pub(crate) fn any_may_serve(memos: &BTreeMap<GroupId, DiskMemo>, disks: &[BlockDevice]) -> bool {
    let is_idle = |name: &str| {
        let mut same = disks.iter().filter(|disk| disk.name() == name);
        same.any(|disk| {
            memos
                .get(&disk.id)
                .is_some_and(|memo| memo.idle_s >= PATIENCE_S)
        })
    };
    let may = |memo: &DiskMemo| memo.held || memo.off_s < PATIENCE_S;
    let mut disks = disks.iter();
    disks.any(|disk| !is_idle(disk.name()) && memos.get(&disk.id).is_none_or(may))
}

/// Whether io.cost is on for a disk.
pub(crate) fn any_is_on(disks: &[BlockDevice]) -> bool {
    let mut qos = disks.iter().filter_map(|disk| disk.cost_qos);
    qos.any(|qos| qos.enable)
}

/// Whether BFQ alone serves a disk by weight: io.cost is off for it.
pub(crate) fn any_is_left_to_bfq(disks: &[BlockDevice]) -> bool {
    let is_on = |bfq: &BlockDevice| {
        let mut same = disks.iter().filter(|disk| disk.name() == bfq.name());
        same.any(|disk| disk.cost_qos.is_some_and(|qos| qos.enable))
    };
    let mut bfq = disks.iter().filter(|disk| disk.low_latency.is_some());
    bfq.any(|disk| !is_on(disk))
}

fn off(disk: &BlockDevice, now: CostQos) -> Write {
    Write {
        group: disk.id,
        knob: Knob::IoCostQos,
        value: Value::CostQos(CostQos {
            enable: false,
            ..now
        }),
        reason: Reason::Suspended,
    }
}

/// Both writes, the model first: io.cost is never on with a model that the kernel guessed. The latency target is that
/// of the model as it was given or learned.
fn both(disk: &BlockDevice, model: CostModel, memo: &DiskMemo) -> [Write; 2] {
    let qos = qos(&model, memo.relaxed);
    let model = doubled(model, memo.doubled);
    let (rbps, wbps) = (model.rbps, model.wbps);
    let large_s = large_s(rbps, model.rrandiops).min(large_s(wbps, model.wrandiops));
    let reason = Reason::ServeByWeight {
        bytes_per_s: (LARGEST / large_s) as u64,
    };
    let write = |knob, value| Write {
        group: disk.id,
        knob,
        value,
        reason,
    };
    [
        write(Knob::IoCostModel, Value::CostModel(model)),
        write(Knob::IoCostQos, Value::CostQos(qos)),
    ]
}

#[cfg(test)]
mod tests;
