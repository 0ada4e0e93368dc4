//! One watched group: its last values, and how quiet it is. Also the result of one look at all groups.

use std::time::{Duration, Instant};

use justitia_cgroup::{Activity, Buffer, CgroupFs, Gauges, Group};
use justitia_policy::snapshot::{self, GroupId, Knobs, Snapshot, Traffic, WeightSource};
use justitia_policy::units::{Bytes, Weight};

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

/// Intervals at which a group is probed and read in full, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rhythm {
    /// Quiet for at least this many ticks.
    after: u64,
    /// The two short reads that tell whether it is active.
    pub(crate) probe: u64,
    /// Everything.
    pub(crate) full: u64,
}

/// The longer a group was quiet, the less often it is read.
const RHYTHMS: [Rhythm; 4] = [
    Rhythm {
        after: 128,
        probe: 4,
        full: 32,
    },
    Rhythm {
        after: 32,
        probe: 2,
        full: 16,
    },
    Rhythm {
        after: 4,
        probe: 1,
        full: 8,
    },
    Rhythm {
        after: 0,
        probe: 1,
        full: 1,
    },
];

/// A group with at least this many ticks between full reads does not hold its files open in between:
/// descriptors are few, and busy groups need theirs in each tick.
const SELDOM: u64 = 16;

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
    /// Has watched groups below it.
    pub(crate) inner: bool,
    /// Time at which it was first seen; `None` for groups of the first tick.
    born: Option<Instant>,
    /// The weight in its runtime's record, and the weight in the record's version before.
    pub(crate) recorded: [Option<Weight>; 2],
    /// The group that a container of crun sees as its own.
    pub(crate) container: Option<Group>,
    /// It could not be read in this tick.
    pub(crate) failed: bool,
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
        let (weight, weight_source) = match weight {
            Some((weight, source)) => (Some(weight), source),
            None => (None, WeightSource::Default),
        };
        let mut tracked = old.unwrap_or_else(|| Tracked {
            seen: snapshot::Group {
                id: group.id(),
                parent,
                path: path.to_owned(),
                weight,
                weight_source,
                delegated: false,
                memory: snapshot::Memory::default(),
                traffic: Traffic::default(),
                pressure: snapshot::Pressure::default(),
                knobs: Knobs::default(),
                cache: snapshot::CacheCounters::default(),
                read_after_s: None,
                declared: None,
                worth: None,
            },
            group,
            activity: None,
            active_at: tick,
            knows_knobs: false,
            read_at: None,
            inner: false,
            born: (tick > 1).then(Instant::now),
            recorded: [None; 2],
            container: None,
            failed: false,
        });
        tracked.seen.parent = parent;
        tracked.seen.weight = weight;
        tracked.seen.weight_source = weight_source;
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
        let quiet_for = tick.saturating_sub(self.active_at);
        let fits = RHYTHMS.iter().find(|rhythm| quiet_for >= rhythm.after);
        *fits.unwrap_or(&RHYTHMS[RHYTHMS.len() - 1])
    }

    /// True if the probe of a quiet group differs from the last one.
    pub(crate) fn is_active(&mut self, tick: u64, buffer: &mut Buffer) -> bool {
        let now = self.group.activity(buffer).ok();
        let active = match (&now, &self.activity) {
            (Some(now), Some(before)) => !now.same_as(before),
            _ => true,
        };
        if active {
            self.active_at = tick;
        }
        active
    }

    /// True if this read has to include the knobs.
    pub(crate) fn wants_knobs(&self, due: bool) -> bool {
        due || !self.knows_knobs
    }

    /// The known knobs may be wrong: the next look reads them.
    pub(crate) fn doubt_knobs(&mut self) {
        self.knows_knobs = false;
    }

    /// True if it has to be read in full whatever its rhythm says.
    pub(crate) fn must_be_read(&self) -> bool {
        !self.knows_knobs
    }

    /// Notes a full read in this tick, and the time that the new counts cover.
    pub(crate) fn note_read(&mut self, tick: u64, now: Instant) {
        let before = self.read_at.replace((tick, now));
        self.seen.read_after_s = before
            .filter(|&(before, _)| before + 1 < tick)
            .map(|(_, at)| now.saturating_duration_since(at).as_secs_f64());
    }

    /// Takes in a full read; `knobs` says whether it included them.
    pub(crate) fn take_in(&mut self, gauges: &Gauges, knobs: bool, tick: u64, buffer: &mut Buffer) {
        self.failed = false;
        if self.differs_from(&gauges.memory, &gauges.pressure) {
            self.active_at = tick;
        }
        self.seen.memory = gauges.memory;
        self.seen.pressure = gauges.pressure;
        if knobs {
            let foreign = self.seen.knobs.foreign;
            self.seen.knobs = Knobs {
                foreign,
                ..gauges.knobs
            };
            self.knows_knobs = true;
        }
        if self.rhythm(tick).full > 1 || self.rhythm(tick + 1).full > 1 {
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

    /// Values that cannot be read now are unknown; the old ones do not stand.
    pub(crate) fn forget_values(&mut self, tick: u64) {
        self.failed = true;
        self.read_at = None;
        self.active_at = tick;
        self.knows_knobs = false;
        let foreign = self.seen.knobs.foreign;
        self.seen.memory = snapshot::Memory::default();
        self.seen.pressure = snapshot::Pressure::default();
        self.seen.traffic = Traffic::default();
        self.seen.knobs = Knobs {
            foreign,
            ..Knobs::default()
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
    use super::*;

    #[test]
    fn rhythms_are_whole_turns_and_the_quietest_is_seen_within_four_ticks() {
        for rhythm in RHYTHMS {
            assert_eq!(rhythm.full % rhythm.probe, 0, "{rhythm:?}");
            assert!(rhythm.probe <= 4, "{rhythm:?}");
        }
        assert_eq!(RHYTHMS[RHYTHMS.len() - 1].after, 0);
    }

    #[test]
    fn a_scope_has_a_container_below_it_and_finds_the_next_when_it_is_gone() {
        let fake = justitia_cgroup::FakeFs::new();
        for (path, there) in [("/app", false), ("/libpod-1.scope", true)] {
            let below = format!("{path}/container");
            fake.mkdir(path);
            let group = CgroupFs::open(&*fake, path).unwrap();
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

    #[test]
    fn counters_of_a_group_read_seldom_cover_the_time_since_then() {
        let fake = justitia_cgroup::FakeFs::new();
        fake.mkdir("/a");
        let group = justitia_cgroup::CgroupFs::open(&*fake, "/a").unwrap();
        let mut tracked = Tracked::renew(None, group, "/a", None, None, 0);
        let began = Instant::now();
        let mut after = |tick: u64| {
            tracked.note_read(tick, began + std::time::Duration::from_secs(tick));
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
