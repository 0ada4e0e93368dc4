//! One watched group: its last values, and how quiet it is. Also the result of one look at all groups.

use std::time::{Duration, Instant};

use justitia_cgroup::{is_near, Activity, Buffer, CgroupFs, Error, Gauges, Group, Want};
use justitia_policy::snapshot::{
    self, Ages, CacheCounters, GroupId, Knobs, Snapshot, Traffic, WeightSource,
};
use justitia_policy::units::{Bytes, Weight};

use crate::devices::Devices;
use crate::rhythm::{self, Rhythm, SELDOM, STANDS};
use crate::status::Problem;

/// Changes among the groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// Paths and weights of groups that joined.
    pub joined: Vec<(String, Weight, WeightSource)>,
    /// Paths of groups (and disks) that left.
    pub left: Vec<String>,
    /// Paths and new weights of groups with another weight.
    pub reweighted: Vec<(String, Weight, WeightSource)>,
}

/// The result of one look at the host.
#[derive(Debug, Default)]
pub struct Observation {
    /// For the policy.
    pub snapshot: Snapshot,
    /// Groups (and disks) whose knobs were read just now.
    pub knobs_read: Vec<GroupId>,
    /// Reads that failed.
    pub problems: Vec<Problem>,
    /// Changes since the last look.
    pub change: Change,
}

/// Time that a runtime may take to set up a container: it makes the cgroup first, writes its knobs then, and
/// starts the container last.
const SETS_UP: Duration = Duration::from_secs(10);

/// Stall below this, microseconds per full read, is no activity.
const QUIET_STALL_US: u64 = 1_000;

/// One group that is watched.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) group: Group,
    /// Its last values; identity, path and weight are always right.
    pub(crate) seen: snapshot::Group,
    activity: Option<Activity>,
    /// The tick in which it last did something.
    pub(crate) active_at: u64,
    /// Knobs read at least once, and not doubted since.
    knows_knobs: bool,
    /// The tick and the time of the last full read.
    read_at: Option<(u64, Instant)>,
    /// The same for memory and for `cpu.pressure`, which may stand longer.
    memory_at: Option<(u64, Instant)>,
    cpu_at: Option<(u64, Instant)>,
    devices: Devices,
    /// Has watched groups below it.
    pub(crate) inner: bool,
    /// Time at which it was first seen; `None` for groups of the first tick.
    born: Option<Instant>,
    /// The weight in its runtime's record, and the weight in the record's version before.
    pub(crate) recorded: [Option<Weight>; 2],
    /// The group that a container of crun sees as its own, and the tick in which it was last looked for.
    pub(crate) container: Option<Group>,
    pub(crate) sought_at: Option<u64>,
    /// It was gone when it was last read.
    pub(crate) gone: bool,
}

impl Tracked {
    /// A group of the new list, with what was known of it.
    pub(crate) fn renew(
        old: Option<Tracked>,
        group: Group,
        path: &str,
        parent: Option<GroupId>,
        weight: Option<(Weight, WeightSource)>,
        tick: u64,
    ) -> Tracked {
        let (weight, source) = weight.unzip();
        let mut tracked = old.unwrap_or_else(|| Tracked {
            seen: snapshot::Group::new(group.id(), path),
            group,
            activity: None,
            active_at: tick,
            knows_knobs: false,
            read_at: None,
            memory_at: None,
            cpu_at: None,
            devices: Devices::default(),
            inner: false,
            born: (tick > 1).then(Instant::now),
            recorded: [None; 2],
            container: None,
            sought_at: None,
            gone: false,
        });
        tracked.seen.parent = parent;
        tracked.seen.weight = weight;
        tracked.seen.weight_source = source.unwrap_or_default();
        tracked.inner = false;
        tracked
    }

    /// In a container's systemd scope, crun (1.8) puts the container into a group below the scope (annotation
    /// `run.oci.systemd.subgroup`). The container sees only that group.
    pub(crate) fn find_container(&mut self, fs: &dyn CgroupFs) {
        let there = self.container.as_ref().is_some_and(Group::exists);
        if !there && self.seen.path.rsplit('.').next() == Some("scope") {
            self.container = fs.open(&format!("{}/container", self.seen.path)).ok();
        }
    }

    /// True if its runtime may still be setting it up.
    pub(crate) fn is_new(&self) -> bool {
        self.born.is_some_and(|born| born.elapsed() < SETS_UP)
    }

    /// Intervals at which it is probed and read at this tick.
    pub(crate) fn rhythm(&self, tick: u64) -> Rhythm {
        rhythm::rhythm(tick.saturating_sub(self.active_at))
    }

    /// True if it stays busy in the next tick without further activity.
    fn is_busy(&self, tick: u64) -> bool {
        self.rhythm(tick).full == 1 && self.rhythm(tick + 1).full == 1
    }

    /// True if a value that was read at this time may stand in this tick.
    fn may_stand(&self, read: Option<(u64, Instant)>, tick: u64) -> bool {
        let in_turn = self.read_at.is_some_and(|(before, _)| before + 1 == tick);
        let old = read.is_none_or(|(before, _)| before + STANDS <= tick);
        in_turn && !old && self.is_busy(tick)
    }

    /// Reads it, but not what stands from an earlier tick. `calm`: no group contended in the last step.
    pub(crate) fn read(
        &mut self,
        want: Want,
        calm: bool,
        (tick, now): (u64, Instant),
        buffer: &mut Buffer,
    ) -> Result<Gauges, Error> {
        let cpu_stands = calm && self.may_stand(self.cpu_at, tick);
        let rest = Want {
            memory: false,
            cpu: want.cpu && !cpu_stands,
            ..want
        };
        let mut gauges = self.group.gauges(rest, buffer)?;
        if cpu_stands {
            gauges.pressure.cpu_some_us = self.seen.pressure.cpu_some_us;
        } else {
            self.cpu_at = Some((tick, now));
        }
        let seen = &self.seen;
        let knobs = if want.knobs {
            &gauges.knobs
        } else {
            &seen.knobs
        };
        let may_stand = calm
            && want.pressure
            && self.may_stand(self.memory_at, tick)
            && rhythm::memory_may_stand(&seen.pressure, &gauges.pressure, knobs.high);
        if may_stand && is_near(seen.memory.current, self.group.current(buffer)?) {
            gauges.memory = seen.memory;
        } else {
            let memory = Want {
                swap: want.swap,
                ..Want::MEMORY
            };
            gauges.memory = self.group.gauges(memory, buffer)?.memory;
            self.memory_at = Some((tick, now));
        }
        Ok(gauges)
    }

    /// True if the probe of a quiet group differs from the last one.
    pub(crate) fn is_active(&mut self, tick: u64, buffer: &mut Buffer) -> bool {
        let both = self.group.activity(buffer).ok().zip(self.activity);
        let active = both.is_none_or(|(now, before)| !now.same_as(&before));
        if active {
            self.active_at = tick;
        }
        active
    }

    /// The known knobs may be wrong: the next look reads them.
    pub(crate) fn doubt_knobs(&mut self) {
        self.knows_knobs = false;
    }

    /// True if it has to be read in full, its knobs too, whatever its rhythm says.
    pub(crate) fn must_be_read(&self) -> bool {
        !self.knows_knobs
    }

    /// Notes a full read in this tick, and the time that the new counts cover.
    pub(crate) fn note_read(&mut self, tick: u64, now: Instant) {
        let age = |read: Option<(u64, Instant)>| {
            let (_, at) = read.filter(|&(before, _)| before < tick)?;
            Some(now.saturating_duration_since(at).as_secs_f64())
        };
        self.seen.ages = Ages {
            memory_s: age(self.memory_at),
            cpu_s: age(self.cpu_at),
        };
        let before = self.read_at.replace((tick, now));
        self.seen.read_after_s = before
            .filter(|&(before, _)| before + 1 < tick)
            .map(|(_, at)| now.saturating_duration_since(at).as_secs_f64());
    }

    /// Takes in a full read; `knobs` says whether it included them.
    pub(crate) fn take_in(&mut self, gauges: &Gauges, knobs: bool, tick: u64, buffer: &mut Buffer) {
        self.gone = false;
        if self.differs_from(&gauges.memory, &gauges.pressure) {
            self.active_at = tick;
        }
        self.seen.memory = gauges.memory;
        self.seen.pressure = gauges.pressure;
        if knobs {
            self.seen.knobs = Knobs {
                foreign: self.seen.knobs.foreign,
                ..gauges.knobs
            };
            self.knows_knobs = true;
        }
        if !self.is_busy(tick) {
            let seen = Activity {
                current: gauges.memory.current,
                io_some_us: gauges.pressure.io_some_us,
            };
            // No pressure was read for an inner group.
            self.activity = match self.seen.weight {
                Some(_) => Some(seen),
                None => self.group.activity(buffer).ok(),
            };
        }
        if self.rhythm(tick).full >= SELDOM {
            self.group.release();
        }
    }

    /// Looks at which devices carry its traffic.
    pub(crate) fn look_at_devices(&mut self, fs: &dyn CgroupFs, buffer: &mut Buffer) {
        self.devices.look(&self.group, fs, &mut self.seen, buffer);
    }

    /// True if a full read shows a significant change.
    fn differs_from(&self, memory: &snapshot::Memory, pressure: &snapshot::Pressure) -> bool {
        let (before, stalls) = (&self.seen.memory, &self.seen.pressure);
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
        differs(bytes(before.current), bytes(memory.current), 1 << 20)
            || differs(stalls.io_some_us, pressure.io_some_us, QUIET_STALL_US)
            || differs(
                stalls.memory_some_us,
                pressure.memory_some_us,
                QUIET_STALL_US,
            )
    }

    /// Values that cannot be read now are unknown; the old ones do not stand. Knobs may be readable all the same,
    /// and a limit is lifted only if it is known.
    pub(crate) fn forget_values(&mut self, tick: u64, buffer: &mut Buffer) {
        self.read_at = None;
        self.seen.ages = Ages::default();
        self.active_at = tick;
        self.knows_knobs = false;
        self.seen.memory = snapshot::Memory::default();
        self.seen.pressure = snapshot::Pressure::default();
        self.seen.traffic = Traffic::default();
        self.seen.cache = CacheCounters::default();
        let known = self.group.gauges(Want::KNOBS, buffer).unwrap_or_default();
        self.seen.knobs = Knobs {
            foreign: self.seen.knobs.foreign,
            ..known.knobs
        };
    }
}

/// True if a value changed by more than a tolerance; becoming known or unknown is a change.
fn differs(before: Option<u64>, now: Option<u64>, tolerance: u64) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => before.abs_diff(now) > tolerance,
        (None, None) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use justitia_cgroup::FakeFs;
    use justitia_policy::units::Limit;
    use proptest::prelude::*;

    use super::*;

    /// A host with a managed group.
    fn managed() -> (Arc<FakeFs>, Tracked) {
        let fake = FakeFs::new();
        fake.mkdir("/a");
        let group = fake.open("/a").unwrap();
        let weight = Some((Weight::DEFAULT, WeightSource::Default));
        (fake, Tracked::renew(None, group, "/a", None, weight, 0))
    }

    #[test]
    fn a_scope_has_a_container_below_it_and_finds_the_next_when_it_is_gone() {
        let fake = FakeFs::new();
        for (path, there) in [("/app", false), ("/libpod-1.scope", true)] {
            let below = format!("{path}/container");
            fake.mkdir(path);
            let group = fake.open(path).unwrap();
            let mut tracked = Tracked::renew(None, group, path, None, None, 0);
            tracked.find_container(&*fake);
            assert!(tracked.container.is_none(), "{path}");
            for _ in 0..2 {
                fake.mkdir(&below);
                tracked.find_container(&*fake);
                let found = tracked.container.as_ref();
                assert_eq!(found.is_some_and(Group::exists), there, "{path}");
                fake.rmdir(&below);
            }
        }
    }

    /// Changes to a busy group in one tick.
    #[derive(Debug, Clone)]
    struct Event {
        /// Page cache afterwards, KiB, and the part of it that other memory takes the place of.
        file: u64,
        anon: u64,
        stalls: bool,
        limited: bool,
        calm: bool,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let kib = || prop_oneof![4 => 0..400_u64, 1 => 0..4000_u64];
        let rare = || prop::bool::weighted(0.15);
        let event = (kib(), kib(), rare(), rare(), prop::bool::weighted(0.8));
        let event = event.prop_map(|(file, anon, stalls, limited, calm)| Event {
            file,
            anon: anon.min(file),
            stalls,
            limited,
            calm,
        });
        prop::collection::vec(event, 1..40)
    }

    proptest! {
        /// The rules of `rhythm.rs`, against a full read in each tick.
        #[test]
        fn a_standing_value_is_one_that_a_full_read_gave_less_than_four_ticks_ago(events in events()) {
            let (fake, mut tracked) = managed();
            let group = tracked.group.clone();
            let (began, mut buffer) = (Instant::now(), Buffer::new());
            let mut full: Vec<Gauges> = Vec::new();
            for (tick, event) in (0..).zip(&events) {
                fake.update("/a", |group| {
                    group.file = Bytes((event.file - event.anon) << 10);
                    group.anon = Bytes(event.anon << 10);
                    group.refault_pages += event.file;
                    group.memory_some_us += 5000 * u64::from(event.stalls);
                    group.io_some_us += 5000;
                    group.cpu_some_us += 5000;
                    group.high = if event.limited { Limit::Bytes(Bytes::mib(9)) } else { Limit::Max };
                });
                let now = began + Duration::from_secs(tick);
                full.push(group.gauges(Want::ALL, &mut buffer).unwrap());
                let gauges = tracked.read(Want::ALL, event.calm, (tick, now), &mut buffer).unwrap();
                tracked.take_in(&gauges, true, tick, &mut buffer);
                tracked.note_read(tick, now);

                let (seen, now) = (&tracked.seen, &full[tick as usize]);
                let then = |age_s: Option<f64>| &full[tick as usize - age_s.unwrap_or(0.0) as usize];
                let memory = then(seen.ages.memory_s);
                prop_assert_eq!(seen.memory, memory.memory);
                prop_assert!(is_near(seen.memory.current, now.memory.current));
                prop_assert_eq!(memory.pressure.memory_some_us, now.pressure.memory_some_us);
                let cpu = then(seen.ages.cpu_s).pressure.cpu_some_us;
                prop_assert_eq!(seen.pressure, snapshot::Pressure { cpu_some_us: cpu, ..now.pressure });
                prop_assert!(event.calm || seen.ages == Ages::default());
                prop_assert!(!event.limited || seen.ages.memory_s.is_none());
                for age_s in [seen.ages.memory_s, seen.ages.cpu_s].into_iter().flatten() {
                    prop_assert!(age_s < STANDS as f64);
                }
            }
        }
    }

    #[test]
    fn an_unchanged_busy_group_is_read_in_full_once_in_four_ticks() {
        let (fake, mut tracked) = managed();
        let (began, mut buffer) = (Instant::now(), Buffer::new());
        let mut stats = Vec::new();
        for tick in 0..9 {
            let now = began + Duration::from_secs(tick);
            tracked.active_at = tick;
            let gauges = tracked
                .read(Want::ALL, true, (tick, now), &mut buffer)
                .unwrap();
            tracked.take_in(&gauges, true, tick, &mut buffer);
            tracked.note_read(tick, now);
            let reads = fake.reads("/a");
            stats.push((
                reads["memory.stat"],
                reads["cpu.pressure"],
                reads["io.pressure"],
            ));
        }
        assert_eq!(stats[3], (1, 1, 4));
        assert_eq!(stats[8], (3, 3, 9));
    }

    #[test]
    fn counters_of_a_group_read_seldom_cover_the_time_since_then() {
        let (_fake, mut tracked) = managed();
        let began = Instant::now();
        let mut after = |tick: u64| {
            tracked.note_read(tick, began + Duration::from_secs(tick));
            tracked.seen.read_after_s
        };
        assert_eq!(
            [1, 2, 10, 11].map(&mut after),
            [None, None, Some(8.0), None]
        );
    }

    #[test]
    fn becoming_known_or_unknown_is_a_change() {
        assert!(differs(None, Some(0), 10) && differs(Some(0), None, 10));
        assert!(!differs(None, None, 10) && !differs(Some(5), Some(15), 10));
        assert!(differs(Some(5), Some(16), 10));
    }
}
