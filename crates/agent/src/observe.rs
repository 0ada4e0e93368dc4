//! Reads the host into an [`Observation`]: managed groups and their ancestors, parents before children.
//!
//! Reading one group in full takes some ten system calls, and a host may have a thousand groups of which most
//! do nothing. So a group that showed no activity for a few ticks is only probed (two short reads) and read
//! in full every 8th tick, each group at its own turn, or at once when the probe differs. `rhythm.rs` has
//! these rules, and says which values of a busy group stand. Knobs change seldom, and we know what we write:
//! they are read every [`KNOBS_EVERY`]th tick, and once more by [`crate::apply`] before each write. Looking
//! for new groups costs a walk through the tree, which is done only as often as it costs less than 0.2 % of
//! the time, or 2 % where groups come and go all the time.
//!
//! Invariants: a group that cannot be read stays, with unknowns, and is a problem: without it, its memory and its
//! limit would be forgotten. Only a leaf that is gone is left out of the tick. Unknown is `None`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use justitia_cgroup::{Buffer, Fs, Group, Want};
use justitia_discover::{DiscoverConfig, Discovered, Pods, Priors, RuntimeDirs, Scanner};
use justitia_nri::Listener;
use justitia_observe::{ProcIo, Sample, TrafficSource, Watched};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::{self, BlockDevice, ForeignKnobs, GroupId, Outside, WeightSource};
use justitia_policy::units::{Bytes, Weight};

use crate::colors::{Colors, Spoken, TIME_TO_LIVE};
use crate::config::{Settings, GLOB_REMEDY};
use crate::disks::Disks;
use crate::error::{Error, Result};
use crate::rhythm::STANDS;
use crate::status::{Names, NamesOf, Problem};
use crate::tracked::Tracked;
pub use crate::tracked::{Change, Observation};

/// Knobs are read once in this many ticks.
pub const KNOBS_EVERY: u64 = 4;
/// The walk for new groups may take one part in this many of the time.
const SCAN_SHARE: u32 = 500;
/// The same for walks that something asks for: a group that ended, a pod, a weight.
const ASKED_SCAN_SHARE: u32 = 50;

pub struct Observer {
    fs: Fs,
    scanner: Scanner,
    traffic: Box<dyn TrafficSource>,
    tracked: Vec<Tracked>,
    index: HashMap<GroupId, usize>,
    names: Arc<NamesOf>,
    disks: Disks,
    /// The root cgroup, while the guard needs it.
    root: Option<Group>,
    colors: Colors,
    buffer: Buffer,
    tick: u64,
    scans: u64,
    /// The next scan by time; `None`: something asks for one.
    next_scan: Option<Instant>,
    /// No scan before this.
    no_scan_until: Instant,
    /// The runtime that reports pods.
    runtime: Option<Listener>,
    /// The pods reported at the last scan.
    pods: Arc<Pods>,
    /// The scanner is new, so its result does not tell which groups changed.
    anew: bool,
    samples: Vec<Sample>,
    /// The host has swap.
    swap: bool,
    /// No group contended in the last step.
    calm: bool,
}

fn names(found: &Discovered) -> Names {
    let pod = found.pod.as_ref();
    Names {
        kind: found.kind.to_string(),
        name: found.alias.as_ref().unwrap_or(&found.name).clone(),
        namespace: pod.map(|pod| pod.namespace.clone()),
        pod: pod.map(|pod| pod.pod.clone()),
        container: pod.and_then(|pod| pod.container.clone()),
    }
}

impl Observer {
    /// An observer that has seen nothing yet.
    pub fn new(fs: Fs, config: DiscoverConfig, runtime: RuntimeDirs) -> Result<Observer> {
        let scanner = Scanner::new(fs.clone(), config, runtime)
            .map_err(|error| Error::usage(error, GLOB_REMEDY))?;
        let traffic = Box::new(ProcIo::new(fs.clone()));
        Ok(Observer {
            fs,
            scanner,
            traffic,
            tracked: Vec::new(),
            index: HashMap::new(),
            names: Arc::default(),
            disks: Disks::default(),
            root: None,
            colors: Colors::new(TIME_TO_LIVE),
            buffer: Buffer::new(),
            tick: 0,
            scans: 0,
            next_scan: None,
            no_scan_until: Instant::now(),
            runtime: None,
            pods: Arc::default(),
            anew: true,
            samples: Vec::new(),
            swap: false,
            calm: false,
        })
    }

    /// Counts by this source from now on; what was counted before is forgotten.
    pub fn count_by(&mut self, source: Box<dyn TrafficSource>) {
        self.traffic = source;
    }

    /// Name of the source that counts.
    pub fn counts_by(&self) -> &'static str {
        self.traffic.name()
    }

    /// Events that it did not count.
    pub fn missed_events(&self) -> Option<u64> {
        self.traffic.missed_events()
    }

    /// The knobs' values before this agent, or the one beside it, wrote to them.
    pub fn set_priors(&mut self, priors: impl Into<Arc<Priors>>) {
        self.scanner.set_priors(priors);
    }

    /// Takes reports of pods from this runtime from now on; `None`: from none.
    pub fn listen_to(&mut self, runtime: Option<Listener>) {
        self.runtime = runtime;
        self.pods = Arc::default();
        self.look_for_groups();
    }

    /// Sets the lifetime of declared colors, whether disks are watched for io.cost, and the disks' models.
    pub fn configure(&mut self, settings: &Settings) {
        self.colors.time_to_live = settings.color_ttl;
        self.disks.settings.clone_from(&settings.disk);
    }

    /// Takes in a group's color that was declared or withdrawn over the socket.
    pub fn hear_color(&mut self, id: GroupId, spoken: Option<Spoken>) {
        self.colors.hear(id, spoken, Instant::now());
    }

    /// Sets which groups to manage. The state of groups that stay is kept.
    pub fn reconfigure(&mut self, config: DiscoverConfig, runtime: RuntimeDirs) -> Result<()> {
        self.scanner = Scanner::new(self.fs.clone(), config, runtime)
            .map_err(|error| Error::usage(error, GLOB_REMEDY))?;
        self.anew = true;
        self.look_for_groups();
        Ok(())
    }

    /// Makes the next look at the host scan for new groups.
    pub fn look_for_groups(&mut self) {
        self.next_scan = None;
    }

    /// The open group (or disk) of this id, if it is watched.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        let group = self.tracked(id).map(|tracked| &tracked.group);
        group
            .or_else(|| self.disks.group(id))
            .or_else(|| self.root.as_ref().filter(|root| root.id() == id))
    }

    /// Sets whether the policy sees the root cgroup.
    pub fn look_at_root(&mut self, wanted: bool) {
        if !wanted {
            self.root = None;
        } else if self.root.is_none() {
            self.root = self.fs.open("/").ok();
        }
    }

    /// The last values of this disk.
    pub fn disk(&self, id: GroupId) -> Option<&BlockDevice> {
        self.disks.seen(id)
    }

    /// The last value read from a knob of a group or disk.
    pub fn knob(&self, id: GroupId, knob: Knob) -> Option<Value> {
        match self.seen(id) {
            Some(seen) => seen.knobs.get(knob),
            None => self.disks.seen(id)?.get(knob),
        }
    }

    /// The last values of this group.
    pub fn seen(&self, id: GroupId) -> Option<&snapshot::Group> {
        self.tracked(id).map(|tracked| &tracked.seen)
    }

    pub(crate) fn tracked(&self, id: GroupId) -> Option<&Tracked> {
        self.index.get(&id).map(|&at| &self.tracked[at])
    }

    fn tracked_mut(&mut self, id: GroupId) -> Option<&mut Tracked> {
        let at = *self.index.get(&id)?;
        Some(&mut self.tracked[at])
    }

    /// Names of the managed groups.
    pub fn names(&self) -> Arc<NamesOf> {
        Arc::clone(&self.names)
    }

    /// Groups with a weight.
    pub fn managed(&self) -> usize {
        let managed = |tracked: &&Tracked| tracked.seen.weight.is_some();
        self.tracked.iter().filter(managed).count()
    }

    /// Notes whether some group contended in the step that was made of the last look.
    pub(crate) fn note_contention(&mut self, contended: bool) {
        self.calm = !contended;
    }

    /// Notes that a knob of a group or disk holds this value now.
    pub fn know(&mut self, id: GroupId, knob: Knob, value: Value) {
        if let Some(tracked) = self.tracked_mut(id) {
            tracked.seen.knobs.set(knob, value);
        } else if let Some(disk) = self.disks.seen_mut(id) {
            disk.set(knob, value);
        }
    }

    /// Notes that these knobs of this group, or those of this disk, belong to somebody else.
    pub fn set_foreign(&mut self, id: GroupId, foreign: ForeignKnobs) {
        if let Some(tracked) = self.tracked_mut(id) {
            tracked.seen.knobs.foreign = foreign;
        } else if let Some(disk) = self.disks.seen_mut(id) {
            disk.foreign = true;
        }
    }

    /// The weight in the runtime's record of a group, and the weight in its version before.
    pub(crate) fn recorded(&self, id: GroupId) -> [Option<Weight>; 2] {
        let tracked = self.tracked(id);
        tracked.map_or([None; 2], |tracked| tracked.recorded)
    }

    /// Number of scans of groups and the runtimes' records.
    pub(crate) fn scans(&self) -> u64 {
        self.scans
    }

    /// Makes the next look read the records and this group's knobs.
    pub(crate) fn look_again(&mut self, id: GroupId) {
        self.doubt(id);
        self.look_for_groups();
    }

    /// Makes the next look read this group's knobs.
    pub(crate) fn doubt(&mut self, id: GroupId) {
        if let Some(tracked) = self.tracked_mut(id) {
            tracked.doubt_knobs();
        }
    }

    /// All knobs may have changed: the next look reads those of every group.
    pub fn doubt_knobs(&mut self) {
        self.tracked.iter_mut().for_each(Tracked::doubt_knobs);
    }

    /// Growth of a group's memory other than page cache since the last look.
    pub fn non_file_growth(&mut self, id: GroupId) -> Option<Bytes> {
        let tracked = &self.tracked[*self.index.get(&id)?];
        let now = tracked.group.gauges(Want::MEMORY, &mut self.buffer).ok()?;
        Some(now.memory.non_file()? - tracked.seen.non_file()?)
    }

    /// Observes the host once.
    pub fn observe(&mut self) -> Observation {
        self.tick += 1;
        let mut observation = Observation::default();
        self.scan(&mut observation);
        // Problems stand until the next scan.
        let of_runtime = self.runtime.as_ref().and_then(Listener::problem);
        let of_scan = self.scanner.problems().iter().cloned();
        observation.problems.extend(of_scan.chain(of_runtime));
        let now = Instant::now();
        let mut fully_read = vec![false; self.tracked.len()];
        for (at, full) in fully_read.iter_mut().enumerate() {
            *full = self.read(at, now, &mut observation);
            let tracked = &mut self.tracked[at];
            if *full {
                tracked.note_read(self.tick, now);
            } else {
                tracked.seen.read_after_s = None;
            }
        }
        self.sample_traffic(&fully_read);
        self.look_at_colors(&fully_read, now);
        observation.snapshot.shared = self.traffic.shared();
        self.disks.observe(&self.fs, &mut observation);
        observation.snapshot.outside = self.root.as_ref().map(|root| Outside {
            root: root.id(),
            reclaim: self.fs.multi_generational() == Some(false)
                && root.can_write(Knob::MemoryReclaim),
        });
        observation.snapshot.host = self.fs.read_host();
        self.swap = observation.snapshot.host.swap > Some(Bytes::ZERO);
        let groups = &mut observation.snapshot.groups;
        groups.reserve_exact(self.tracked.len());
        let tracked = self.tracked.iter();
        let there = tracked.filter(|tracked| tracked.inner || !tracked.gone);
        groups.extend(there.map(|tracked| tracked.seen.clone()));
        observation
    }

    /// Walks the tree if it is time to.
    fn scan(&mut self, observation: &mut Observation) {
        let began = Instant::now();
        if let Some(runtime) = &self.runtime {
            let pods = runtime.pods();
            if !Arc::ptr_eq(&pods, &self.pods) && pods != self.pods {
                self.next_scan = None;
                self.pods = pods;
            }
        }
        if self.next_scan.is_some_and(|next| began < next) || began < self.no_scan_until {
            return;
        }
        self.scans += 1;
        self.scanner.set_pods(Arc::clone(&self.pods));
        match self.scanner.rescan() {
            Ok(changed) => {
                if changed || std::mem::take(&mut self.anew) {
                    observation.change = self.retrack();
                }
            }
            Err(error) => observation.problems.push(Problem {
                group: None,
                cause: format!("cannot look for groups: {error}"),
                remedy: error.remedy().to_owned(),
            }),
        }
        // This read sees `systemctl set-property IOWeight=` before the knobs are due.
        for tracked in &mut self.tracked {
            let knobs = &tracked.seen.knobs;
            let held = tracked.seen.weight_source == WeightSource::IoWeight;
            if held && !tracked.must_be_read() {
                let now = tracked.group.read_knob(Knob::IoWeight).ok().flatten();
                if now != knobs.io_weight.map(Value::Weight) {
                    tracked.doubt_knobs();
                }
            }
        }
        let pause = |share| (began.elapsed() * share).min(Duration::from_secs(10));
        self.next_scan = Some(began + pause(SCAN_SHARE));
        // Steps are seldom less than a second apart.
        let asked = pause(ASKED_SCAN_SHARE).saturating_sub(Duration::from_secs(1));
        self.no_scan_until = began + asked;
    }

    /// Rebuilds the list after the groups changed, keeping what is known of those that stay.
    fn retrack(&mut self) -> Change {
        let mut change = Change::default();
        let old = self.tracked.drain(..);
        let mut old: HashMap<_, _> = old.map(|tracked| (tracked.seen.id, tracked)).collect();
        // Ids by path of this round only: paths are recycled.
        let mut by_path: HashMap<String, GroupId> = HashMap::new();
        self.index.clear();
        let weighed = self.scanner.weighed();
        for found in self.scanner.groups() {
            let mut parent = None;
            for (end, _) in found.path.match_indices('/').skip(1) {
                let path = &found.path[..end];
                if let Some(&id) = by_path.get(path) {
                    parent = Some(id);
                } else if let Ok(group) = self.fs.open(path) {
                    let id = group.id();
                    by_path.insert(path.to_owned(), id);
                    let tracked = old.remove(&id);
                    let weight = weighed.iter().find(|inner| inner.path == path);
                    let weight = weight.map(|inner| (inner.weight, inner.source));
                    let mut tracked =
                        Tracked::renew(tracked, group, path, parent, weight, self.tick);
                    tracked.seen.delegated = self.scanner.is_delegated(path);
                    self.index.insert(id, self.tracked.len());
                    self.tracked.push(tracked);
                    parent = Some(id);
                }
            }
            let weight = Some((found.weight, found.source));
            let before = old.remove(&found.id);
            let entry = || (found.path.clone(), found.weight, found.source);
            match before.as_ref().and_then(|tracked| tracked.seen.weight) {
                None => change.joined.push(entry()),
                Some(before) if before != found.weight => change.reweighted.push(entry()),
                Some(_) => {}
            }
            let group = found.group.clone();
            let mut tracked = Tracked::renew(before, group, &found.path, parent, weight, self.tick);
            tracked.seen.delegated = found.delegated;
            if tracked.recorded[0] != found.recorded {
                tracked.recorded = [found.recorded, tracked.recorded[0]];
            }
            by_path.insert(found.path.clone(), found.id);
            self.index.insert(found.id, self.tracked.len());
            self.tracked.push(tracked);
        }
        for at in 0..self.tracked.len() {
            let parent = self.tracked[at].seen.parent;
            if let Some(&parent) = parent.and_then(|id| self.index.get(&id)) {
                self.tracked[parent].inner = true;
            }
        }
        let left = old
            .into_values()
            .filter(|tracked| tracked.seen.weight.is_some());
        change.left = left.map(|tracked| tracked.seen.path).collect();
        let index = &self.index;
        self.colors.retain(|id| index.contains_key(&id));
        let groups = self.scanner.groups().iter();
        self.names = Arc::new(groups.map(|found| (found.id, names(found))).collect());
        change
    }

    /// Reads a group, or probes it if it is quiet. Returns whether it was read in full.
    fn read(&mut self, at: usize, now: Instant, observation: &mut Observation) -> bool {
        let turn = self.tick.wrapping_add(at as u64);
        let tracked = &mut self.tracked[at];
        let rhythm = tracked.rhythm(self.tick);
        if turn % rhythm.full != 0 && !tracked.must_be_read() {
            let probe = turn % rhythm.probe == 0;
            if !probe || !tracked.is_active(self.tick, &mut self.buffer) {
                return false;
            }
        }
        let knobs = turn % KNOBS_EVERY == 0 || tracked.must_be_read();
        let managed = tracked.seen.weight.is_some();
        let want = Want {
            memory: true,
            pressure: managed,
            cpu: managed,
            knobs,
            swap: self.swap,
        };
        match tracked.read(want, self.calm, (self.tick, now), &mut self.buffer) {
            Ok(gauges) => {
                tracked.take_in(&gauges, knobs, self.tick, &mut self.buffer);
                if knobs {
                    observation.knobs_read.push(tracked.seen.id);
                }
                let unknown = tracked.seen.devices.is_empty();
                if managed && (unknown || !self.calm && turn % STANDS == 0) {
                    tracked.look_at_devices(&*self.fs, &mut self.buffer);
                }
                true
            }
            Err(error) => {
                tracked.forget_values(self.tick, &mut self.buffer);
                tracked.gone = error.is_gone();
                if tracked.gone {
                    self.next_scan = None;
                } else {
                    let problem = Problem::of(&tracked.seen.path, &error);
                    observation.problems.push(problem);
                }
                false
            }
        }
    }

    /// Reads the declarations of managed groups, quiet ones too, because a declaration goes stale.
    fn look_at_colors(&mut self, fully_read: &[bool], now: Instant) {
        let (colors, buffer) = (&mut self.colors, &mut self.buffer);
        for (at, (tracked, &busy)) in self.tracked.iter_mut().zip(fully_read).enumerate() {
            let managed = tracked.seen.weight.is_some();
            if !managed {
                tracked.seen.declared = None;
                continue;
            }
            let in_turn = self.tick.wrapping_add(at as u64) % STANDS == 0;
            if !in_turn && !busy && !colors.has_heard(tracked.seen.id) {
                continue;
            }
            if in_turn || tracked.sought_at.is_none() || tracked.container.is_some() {
                tracked.sought_at = Some(self.tick);
                tracked.find_container(&*self.fs);
            }
            let container = tracked.container.as_ref();
            tracked.seen.declared = colors.look(&tracked.group, container, buffer, now);
        }
    }

    fn sample_traffic(&mut self, fully_read: &[bool]) {
        let managed = self.tracked.iter().zip(fully_read);
        let managed = managed.filter(|(tracked, _)| tracked.seen.weight.is_some());
        let watched: Vec<Watched<'_>> = managed
            .map(|(tracked, &active)| Watched {
                group: &tracked.group,
                active,
            })
            .collect();
        self.samples.clear();
        self.traffic.sample(&watched, &mut self.samples);
        drop(watched);
        let managed = self.tracked.iter_mut().zip(fully_read);
        let managed = managed.filter(|(tracked, _)| tracked.seen.weight.is_some());
        for ((tracked, &active), sample) in managed.zip(&self.samples) {
            if active {
                if tracked.seen.traffic != sample.traffic {
                    tracked.active_at = self.tick;
                }
                tracked.seen.traffic = sample.traffic;
                tracked.seen.cache = sample.cache;
            }
            tracked.seen.worth = self.traffic.worth(tracked.seen.id);
        }
    }
}
