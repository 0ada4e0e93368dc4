//! A small deterministic page cache: the plant that the loop is tested against.
//!
//! It models, after the kernel: two LRU lists for each group (`mm/vmscan.c`), dirty pages and writeback
//! (`mm/page-writeback.c`), a disk of limited bandwidth, which serves groups in the ratio of their requests
//! in flight, `memory.low` (reclaim in proportion to the overage; ignored if no group is above it),
//! `memory.high` (a group above it reclaims its own clean pages or waits), and dirty limits at a fifth of
//! what a group may hold. Anonymous memory cannot be swapped out, so a group above its `memory.high` without
//! clean pages waits. On a host where limits cost bandwidth ([`PageCacheHost::limits_cost`]), each group that
//! waits at its limit costs the disk a part of its speed. Left out: CPUs, block weights, readahead.
//!
//! Units: memory in chunks of 64 KiB, time in ticks of 5 ms.

pub(crate) mod sharing;

use std::collections::VecDeque;
use std::time::Duration;

use justitia_policy::color::{Channel, Color, Declared, Standing};
use justitia_policy::plan::{Knob, Plan, Value};
use justitia_policy::snapshot::{
    BlockDevice, Group, GroupId, Host, Knobs, Memory, Pressure, Snapshot, Traffic, WeightSource,
};
use justitia_policy::units::{Bytes, Limit, Weight};
use justitia_policy::worth::{Curve, Point};

const CHUNK: u64 = 64 << 10;
const TICK_US: u64 = 5_000;
/// Chunks that an unthrottled task moves through memory in a tick (about 200 MB/s).
const MEMORY_SPEED: usize = 16;
/// Reads in flight at once.
const READ_DEPTH: usize = 4;
/// Ticks for which a hog holds its memory: 10 seconds.
pub(crate) const HOLD_TICKS: u32 = 2000;
/// ID of the root cgroup; the groups' IDs follow it.
const ROOT: u64 = 1;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Load {
    /// Does nothing.
    Idle,
    /// Writes new chunks, as fast as it may; old ones are never read.
    Write,
    /// For each chunk written, reads this many chunks of the last `set` written.
    WriteRead { reads: usize, set: u64 },
    /// Reads a file of `chunks` chunks, skewed: half of the reads go to a tenth of it.
    Read { chunks: u64 },
    /// Reads a file of `chunks` chunks from begin to end, again and again.
    Scan { chunks: u64 },
    /// Takes anonymous memory of `chunks` chunks, holds it for [`HOLD_TICKS`] and begins again.
    Hog { chunks: u64 },
    /// Reads a file of `chunks` chunks that the group `payer` touched first.
    UseShared { payer: u64, chunks: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Page {
    Clean,
    Dirty,
}

#[derive(Debug)]
struct Cell {
    id: u64,
    weight: u32,
    load: Load,
    color: Option<Color>,
    worth: Option<Curve>,
    low: u64,
    high: Option<u64>,
    /// Its limit made it wait or reclaim in this tick.
    held_up: bool,
    active: VecDeque<u64>,
    inactive: VecDeque<u64>,
    resident: std::collections::HashMap<u64, (Page, bool)>,
    dirty: VecDeque<u64>,
    reads: VecDeque<u64>,
    /// Evicted pages, until they are read again.
    evicted: std::collections::HashSet<u64>,
    refaults: u64,
    anon: u64,
    held_ticks: u32,
    next: u64,
    owed_reads: usize,
    read_bytes: u64,
    written_bytes: u64,
    missed_bytes: u64,
    stall_us: u64,
}

#[derive(Debug)]
pub(crate) struct PageCacheHost {
    chunks: u64,
    disk_chunks_per_tick: f64,
    /// The part of the disk's speed that each group costs that its limit holds up.
    limit_costs: f64,
    budget: f64,
    /// The disk as the policy sees it. `None`: none serves writers by weight.
    pub(crate) disk: Option<BlockDevice>,
    cells: Vec<Cell>,
    pub(crate) seed: u64,
    next_id: u64,
}

impl PageCacheHost {
    /// A host with this much memory and a disk this fast.
    pub(crate) fn new(memory: Bytes, disk_bytes_per_s: u64) -> PageCacheHost {
        PageCacheHost {
            chunks: memory.0 / CHUNK,
            disk_chunks_per_tick: disk_bytes_per_s as f64 * TICK_US as f64 / 1e6 / CHUNK as f64,
            limit_costs: 0.0,
            budget: 0.0,
            disk: Some(BlockDevice::new(GroupId(1 << 63), "block:vda")),
            cells: Vec::new(),
            seed: 7,
            next_id: ROOT + 1,
        }
    }

    /// Adds a group; returns its id.
    pub(crate) fn add(&mut self, weight: u32, load: Load) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.cells.push(Cell {
            id,
            weight,
            load,
            color: None,
            worth: None,
            low: 0,
            high: None,
            held_up: false,
            active: VecDeque::new(),
            inactive: VecDeque::new(),
            resident: std::collections::HashMap::new(),
            dirty: VecDeque::new(),
            reads: VecDeque::new(),
            evicted: std::collections::HashSet::new(),
            refaults: 0,
            anon: 0,
            held_ticks: 0,
            next: 0,
            owed_reads: 0,
            read_bytes: 0,
            written_bytes: 0,
            missed_bytes: 0,
            stall_us: 0,
        });
        id
    }

    /// Makes each group that waits at its limit cost the disk this part of its speed from now on.
    pub(crate) fn limits_cost(&mut self, part: f64) {
        self.limit_costs = part;
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.cells.retain(|c| c.id != id);
    }

    pub(crate) fn set_load(&mut self, id: u64, load: Load) {
        self.cell(id).load = load;
    }

    /// Sets the color that a group declares from now on.
    pub(crate) fn declare(&mut self, id: u64, color: Option<Color>) {
        self.cell(id).color = color;
    }

    /// Sets the curve that is known of a group's reads from now on. `points`: hit ratios by size in chunks.
    pub(crate) fn learn(&mut self, id: u64, points: &[(u64, f64)], asked_per_s: f64) {
        let point = |&(chunks, hit_ratio): &(u64, f64)| Point {
            cache: Bytes(chunks * CHUNK),
            hit_ratio,
        };
        self.cell(id).worth = Curve::new(points.iter().map(point).collect(), asked_per_s);
    }

    pub(crate) fn set_weight(&mut self, id: u64, weight: u32) {
        self.cell(id).weight = weight;
    }

    fn cell(&mut self, id: u64) -> &mut Cell {
        self.cells
            .iter_mut()
            .find(|c| c.id == id)
            .expect("a group of the model")
    }

    /// Application-level bytes of every group so far, in the order they were added.
    pub(crate) fn moved(&self) -> Vec<u64> {
        self.cells
            .iter()
            .map(|c| c.read_bytes + c.written_bytes)
            .collect()
    }

    /// Weights in the same order.
    pub(crate) fn weights(&self) -> Vec<u32> {
        self.cells.iter().map(|c| c.weight).collect()
    }

    pub(crate) fn run(&mut self, time: Duration) {
        for _ in 0..time.as_micros() as u64 / TICK_US {
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.disk();
        let mut left: Vec<usize> = vec![MEMORY_SPEED; self.cells.len()];
        let mut stalled = vec![false; self.cells.len()];
        // One chunk each in turn, starting at a random group, so that no group is first for long.
        let first = (self.random() % self.cells.len().max(1) as u64) as usize;
        loop {
            let mut moved = false;
            for k in 0..self.cells.len() {
                let i = (k + first) % self.cells.len();
                if left[i] > 0 && !stalled[i] && self.cells[i].load != Load::Idle {
                    if self.advance(i) {
                        left[i] -= 1;
                        moved = true;
                    } else {
                        stalled[i] = true;
                    }
                }
            }
            if !moved {
                break;
            }
        }
        for (cell, stalled) in self.cells.iter_mut().zip(stalled) {
            cell.stall_us += if stalled { TICK_US } else { 0 };
        }
    }

    /// Moves group `i` by one chunk; false if it has to wait.
    fn advance(&mut self, i: usize) -> bool {
        match self.cells[i].load {
            Load::Idle => false,
            Load::Write => self.write(i),
            Load::WriteRead { reads, set } => {
                if self.cells[i].owed_reads > 0 {
                    let newest = self.cells[i].next;
                    let page = newest.saturating_sub(1 + self.random() % set.min(newest.max(1)));
                    if !self.read(i, page) {
                        return false;
                    }
                    self.cells[i].owed_reads -= 1;
                    return true;
                }
                let written = self.write(i);
                self.cells[i].owed_reads = if written { reads } else { 0 };
                written
            }
            Load::Read { chunks } => {
                let hot = self.random() % 2 == 0;
                let page = self.random() % if hot { chunks / 10 } else { chunks };
                self.read(i, page)
            }
            Load::Scan { chunks } => {
                let read = self.read(i, self.cells[i].next % chunks);
                self.cells[i].next += u64::from(read);
                read
            }
            Load::Hog { chunks } => self.hog(i, chunks),
            Load::UseShared { payer, chunks } => self.use_shared(i, payer, chunks),
        }
    }

    fn hog(&mut self, i: usize, chunks: u64) -> bool {
        if self.cells[i].anon < chunks {
            let taken = self.charge(i);
            self.cells[i].anon += u64::from(taken);
            return taken;
        }
        let cell = &mut self.cells[i];
        cell.held_ticks += 1;
        if cell.held_ticks > HOLD_TICKS {
            cell.anon = 0;
            cell.held_ticks = 0;
        }
        false
    }

    fn write(&mut self, i: usize) -> bool {
        let free = self.free();
        let clean: u64 = self.cells.iter().map(Cell::clean).sum();
        let global_dirty: u64 = self.cells.iter().map(|c| c.dirty.len() as u64).sum();
        let global_limit = (free + clean + global_dirty) / 5;
        let cell = &self.cells[i];
        let own_limit = cell.high.map_or(u64::MAX, |high| high / 5);
        if global_dirty >= global_limit {
            return false;
        }
        if cell.dirty.len() as u64 >= own_limit.max(4) {
            self.cells[i].held_up = true;
            return false;
        }
        if !self.charge(i) {
            return false;
        }
        let cell = &mut self.cells[i];
        let page = cell.next;
        cell.next += 1;
        cell.resident.insert(page, (Page::Dirty, false));
        cell.inactive.push_front(page);
        cell.dirty.push_back(page);
        cell.written_bytes += CHUNK;
        true
    }

    fn read(&mut self, i: usize, page: u64) -> bool {
        if let Some((_, referenced)) = self.cells[i].resident.get_mut(&page) {
            let activate = std::mem::replace(referenced, true);
            let cell = &mut self.cells[i];
            cell.read_bytes += CHUNK;
            if activate {
                if let Some(at) = cell.inactive.iter().take(64).position(|&p| p == page) {
                    cell.inactive.remove(at);
                    cell.active.push_front(page);
                }
            }
            return true;
        }
        if self.cells[i].reads.len() >= READ_DEPTH {
            return false;
        }
        let refault = self.cells[i].evicted.remove(&page);
        self.cells[i].refaults += u64::from(refault);
        self.cells[i].reads.push_back(page);
        self.cells[i].read_bytes += CHUNK;
        self.cells[i].missed_bytes += CHUNK;
        true
    }

    /// The disk serves groups in the ratio of their requests in flight.
    fn disk(&mut self) {
        let held_up = self.cells.iter().filter(|c| c.held_up).count();
        let left = 1.0 - self.limit_costs * held_up as f64;
        self.budget += self.disk_chunks_per_tick * left.max(0.1);
        for cell in &mut self.cells {
            cell.held_up = false;
        }
        while self.budget >= 1.0 {
            let Some(i) = self.pick(Cell::queued) else {
                self.budget = self.budget.min(1.0);
                return;
            };
            self.budget -= 1.0;
            if let Some(page) = self.cells[i].reads.pop_front() {
                if self.charge(i) {
                    let cell = &mut self.cells[i];
                    cell.resident.insert(page, (Page::Clean, false));
                    cell.inactive.push_front(page);
                }
            } else if let Some(page) = self.cells[i].dirty.pop_front() {
                if let Some((state, _)) = self.cells[i].resident.get_mut(&page) {
                    *state = Page::Clean;
                }
            }
        }
    }

    fn free(&self) -> u64 {
        self.chunks
            .saturating_sub(self.cells.iter().map(Cell::usage).sum())
    }

    /// Makes room for one chunk of group `i`. Above its `high` it evicts the group's own clean pages; if
    /// memory is full, clean pages of all groups by overage. False if there is no clean page to evict.
    fn charge(&mut self, i: usize) -> bool {
        while self.cells[i]
            .high
            .is_some_and(|high| self.cells[i].usage() >= high)
        {
            self.cells[i].held_up = true;
            if !self.cells[i].evict() {
                return false;
            }
        }
        while self.free() == 0 {
            let overage = |c: &Cell| c.usage().saturating_sub(c.low).min(c.clean());
            let above: u64 = self.cells.iter().map(overage).sum();
            let pressure = |c: &Cell| {
                if above > 0 {
                    overage(c)
                } else {
                    c.clean()
                }
            };
            let Some(victim) = self.pick(pressure) else {
                return false;
            };
            if !self.cells[victim].evict() {
                return false;
            }
        }
        true
    }

    /// A random group, in the ratio of these numbers. `None`: all of them are zero.
    fn pick(&mut self, of: impl Fn(&Cell) -> u64) -> Option<usize> {
        let sum: u64 = self.cells.iter().map(&of).sum();
        if sum == 0 {
            return None;
        }
        let mut pick = self.random() % sum;
        self.cells.iter().position(|c| {
            let mine = of(c);
            let hit = pick < mine;
            pick = pick.saturating_sub(mine);
            hit
        })
    }

    fn random(&mut self) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.seed >> 33
    }

    /// The snapshot that an agent would take.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let file: u64 = self.cells.iter().map(Cell::file).sum();
        let host = Host {
            total: Some(Bytes(self.chunks * CHUNK)),
            free: Some(Bytes(self.free() * CHUNK)),
            file: Some(Bytes(file * CHUNK)),
            high_watermark: Some(Bytes::ZERO),
            ..Host::default()
        };
        Snapshot {
            host,
            groups: self.cells.iter().map(Cell::seen).collect(),
            shared: Some(self.shared()),
            devices: Vec::from_iter(self.disk.clone()),
            ..Snapshot::default()
        }
    }

    /// Applies a plan as a perfect agent would.
    pub(crate) fn apply(&mut self, plan: &Plan) {
        for write in &plan.writes {
            let cell = self.cell(write.group.0);
            match (write.knob, write.value) {
                (Knob::MemoryLow, Value::Limit(limit)) => {
                    cell.low = limit.bytes().map_or(u64::MAX, |b| b.0 / CHUNK);
                }
                (Knob::MemoryHigh, Value::Limit(limit)) => {
                    cell.high = limit.bytes().map(|b| b.0 / CHUNK);
                    while cell.high.is_some_and(|high| cell.usage() > high) && cell.evict() {}
                }
                _ => {}
            }
        }
    }
}

impl Cell {
    fn file(&self) -> u64 {
        self.resident.len() as u64
    }

    fn usage(&self) -> u64 {
        self.file() + self.anon
    }

    fn clean(&self) -> u64 {
        self.file() - self.dirty.len() as u64
    }

    fn queued(&self) -> u64 {
        (self.reads.len() + self.dirty.len()) as u64
    }

    /// Drops the oldest clean page; referenced pages get a second chance on the active list.
    fn evict(&mut self) -> bool {
        for _ in 0..self.inactive.len() {
            let page = self.inactive.pop_back().expect("it is not empty");
            match self.resident.get(&page) {
                Some((Page::Clean, false)) => {
                    self.resident.remove(&page);
                    self.evicted.insert(page);
                    return true;
                }
                Some((Page::Clean, true)) => {
                    self.resident.insert(page, (Page::Clean, false));
                    self.active.push_front(page);
                }
                Some((Page::Dirty, _)) => self.inactive.push_front(page),
                None => {}
            }
        }
        let clean = |page| matches!(self.resident.get(page), Some((Page::Clean, _)));
        let oldest = self.active.iter().rposition(clean);
        let Some(page) = oldest.and_then(|at| self.active.remove(at)) else {
            return false;
        };
        self.evicted.insert(page);
        self.resident.remove(&page).is_some()
    }

    fn seen(&self) -> Group {
        let bytes = |chunks: u64| Some(Bytes(chunks * CHUNK));
        Group {
            weight: Weight::new(self.weight).ok(),
            weight_source: WeightSource::OciBlockIo,
            memory: Memory {
                current: bytes(self.usage()),
                file: bytes(self.file()),
                file_mapped: bytes(0),
                anon: bytes(self.anon),
                refault_pages: Some(self.refaults * CHUNK / 4096),
                file_dirty: bytes(self.dirty.len() as u64),
                ..Memory::default()
            },
            traffic: Traffic {
                read_bytes: Some(self.read_bytes),
                write_bytes: Some(self.written_bytes),
                missed_bytes: Some(self.missed_bytes),
            },
            pressure: Pressure {
                io_some_us: Some(self.stall_us),
                ..Pressure::default()
            },
            knobs: Knobs {
                low: bytes(self.low).map(Limit::Bytes),
                high: Some(
                    self.high
                        .map_or(Limit::Max, |h| Limit::Bytes(Bytes(h * CHUNK))),
                ),
                ..Knobs::default()
            },
            worth: self.worth.clone(),
            declared: self.color.map(|color| Declared {
                standing: Standing::Fresh,
                color: Some(color),
                channel: Channel::Xattr,
                unchanged_s: 0.0,
                reason: String::new(),
            }),
            ..Group::new(GroupId(self.id), &format!("/app/{}", self.id))
        }
    }
}
