//! Replays the policy over a record.
//!
//! With the recorded decisions of the operator (configuration, weights), the plans come out as recorded, to
//! the last bit. This holds if the record has what the policy remembered before its first tick, and if this
//! version's policy is the recorded one. With other decisions a replay is **open loop**: the policy decides
//! anew at each tick, but the host of the record goes on as it did. Its counters and gauges respond to the
//! recorded decisions. Only the knobs follow: from the first tick that is decided differently, a knob holds
//! what the replay last wrote to it, or what the operator had set.
//!
//! After a gap, the policy continues from what the record says it remembered. A replay with other decisions
//! keeps its own memory, and is told that more time has passed.
//!
//! It reads no clock: the same record and options give the same steps.

use std::collections::BTreeMap;
use std::time::Duration;

use justitia_policy::config::{Config, Mode, Objective};
use justitia_policy::plan::{Knob, Plan, Value, Write};
use justitia_policy::snapshot::{Group, GroupId, Snapshot, WeightSource};
use justitia_policy::units::{Bytes, Weight};
use justitia_policy::{step, State};
use serde::Serialize;

use crate::model::{Remembered, Tick};

/// The decisions to change.
pub struct Options<'a> {
    /// A configuration that replaces the recorded one.
    pub config: Option<Config>,
    /// The mode that replaces the recorded one.
    pub mode: Option<Mode>,
    /// The objective that replaces the recorded one.
    pub objective: Option<Objective>,
    /// The weight that replaces a group's recorded one.
    pub weight: &'a dyn Fn(&Group) -> Option<Weight>,
    /// Page cache for a group beyond its share; changes no decision.
    pub more: &'a dyn Fn(&Group) -> Option<Bytes>,
}

impl Options<'_> {
    /// All decisions as recorded.
    pub fn as_recorded() -> Options<'static> {
        Options {
            config: None,
            mode: None,
            objective: None,
            weight: &|_| None,
            more: &|_| None,
        }
    }
}

/// One tick, as recorded and as replayed.
#[derive(Debug, Clone)]
pub struct Step {
    /// Seconds since the first tick of the record.
    pub at_s: f64,
    /// Seconds since the previous step, as the policy was told.
    pub elapsed_s: f64,
    /// As recorded.
    pub tick: Tick,
    /// The policy's input in the replay, if it differs from the recorded one.
    pub given: Option<Snapshot>,
    /// The configuration in the replay.
    pub config: Config,
    /// The plan in the replay.
    pub plan: Plan,
    /// See [`Options::more`].
    pub more: BTreeMap<GroupId, Bytes>,
    /// The policy began anew, because what it remembered before this tick is not known.
    pub began_anew: bool,
}

impl Step {
    /// The policy's input in the replay.
    pub fn snapshot(&self) -> &Snapshot {
        self.given.as_ref().unwrap_or(&self.tick.snapshot)
    }

    /// True if the plan is the recorded one.
    pub fn same(&self) -> bool {
        self.plan == self.tick.plan
    }

    /// The writes that only one of the recorded and the replayed plan has, and those with another value;
    /// ordered by group and knob.
    pub fn differences(&self) -> Vec<Difference> {
        let mut knobs: BTreeMap<(GroupId, Knob), [Option<&Write>; 2]> = BTreeMap::new();
        for (side, plan) in [&self.tick.plan, &self.plan].into_iter().enumerate() {
            for write in &plan.writes {
                knobs.entry((write.group, write.knob)).or_default()[side] = Some(write);
            }
        }
        let value = |write: Option<&Write>| write.map(|write| write.value);
        knobs.retain(|_, [then, now]| value(*then) != value(*now));
        let differences = knobs
            .into_iter()
            .map(|((id, knob), [then, now])| Difference {
                at_s: self.at_s,
                group: path_of(&self.tick.snapshot, id),
                knob,
                then: then.cloned(),
                now: now.cloned(),
            });
        differences.collect()
    }
}

/// A knob that the replay would write differently in one tick.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Seconds since the first tick of the record.
    pub at_s: f64,
    /// Path of the group, or of the disk.
    #[serde(rename = "path")]
    pub group: String,
    pub knob: Knob,
    /// The recorded write.
    pub then: Option<Write>,
    /// The write in the replay.
    pub now: Option<Write>,
}

/// The path of a group or disk, or its number if it has none.
pub fn path_of(snapshot: &Snapshot, id: GroupId) -> String {
    let group = snapshot.groups.iter().find(|group| group.id == id);
    let disk = snapshot.devices.iter().find(|disk| disk.id == id);
    let path = group.map(|group| &group.path);
    let path = path.or(disk.map(|disk| &disk.path));
    path.map_or_else(|| id.to_string(), Clone::clone)
}

/// Runs the policy over ticks, one after the other.
pub struct Replayer<'a> {
    options: Options<'a>,
    state: Option<State>,
    /// The decisions are no longer the recorded ones.
    diverged: bool,
    /// The values that the replay wrote.
    written: BTreeMap<(GroupId, Knob), Value>,
    /// Ticks before the next one are missing.
    gap: bool,
    at: Duration,
    last_at_unix_ms: Option<u64>,
}

impl<'a> Replayer<'a> {
    pub fn new(options: Options<'a>) -> Replayer<'a> {
        Replayer {
            options,
            state: None,
            diverged: false,
            written: BTreeMap::new(),
            gap: false,
            at: Duration::ZERO,
            last_at_unix_ms: None,
        }
    }

    /// A session begins. The ticks that follow are unrelated to the earlier ones.
    pub fn session(&mut self) {
        self.state = None;
        self.diverged = false;
        self.written.clear();
        self.gap = true;
    }

    /// Notes that part of the record could not be read.
    pub fn lost(&mut self) {
        self.gap = true;
    }

    /// Replays the next tick.
    pub fn step(&mut self, tick: Tick) -> Step {
        let gap = std::mem::take(&mut self.gap) || tick.missed > 0;
        let passed = self.passed(&tick, gap);
        self.at += passed;
        let config = self.config(&tick.config);
        let mut given = tick.snapshot.clone();
        let reweighted = self.reweigh(&mut given);
        self.diverged |= reweighted || config != tick.config;

        let recorded = || tick.before.as_ref().and_then(Remembered::state);
        let mut elapsed = tick.elapsed();
        if self.state.is_none() || (gap && !self.diverged) {
            self.state = recorded();
        } else if gap {
            elapsed = passed;
        }
        let began_anew = self.state.is_none();
        let state = self.state.take().unwrap_or_default();
        if self.diverged {
            self.hold_own_knobs(&mut given);
        }
        let (state, plan) = step(&state, &given, &config, elapsed);
        self.state = Some(state);
        for write in &plan.writes {
            if write.knob.holds_value() {
                self.written.insert((write.group, write.knob), write.value);
            }
        }
        let more = given.groups.iter();
        let more = more.filter_map(|group| Some((group.id, (self.options.more)(group)?)));
        Step {
            more: more.collect(),
            at_s: self.at.as_secs_f64(),
            elapsed_s: elapsed.as_secs_f64(),
            given: self.diverged.then_some(given),
            config,
            plan,
            began_anew,
            tick,
        }
    }

    /// Time since the previous tick: as the agent measured it, or by the clock after a gap.
    fn passed(&mut self, tick: &Tick, gap: bool) -> Duration {
        let last = self.last_at_unix_ms.replace(tick.at_unix_ms);
        let Some(last) = last else {
            return Duration::ZERO;
        };
        if !gap {
            return tick.elapsed();
        }
        let by_clock = Duration::from_millis(tick.at_unix_ms.saturating_sub(last));
        by_clock.max(tick.elapsed())
    }

    fn config(&self, recorded: &Config) -> Config {
        let mut config = self.options.config.unwrap_or(*recorded);
        config.mode = self.options.mode.unwrap_or(config.mode);
        config.objective = self.options.objective.unwrap_or(config.objective);
        config
    }

    /// Sets the groups' other weights. Returns whether any weight changed.
    fn reweigh(&self, snapshot: &mut Snapshot) -> bool {
        let mut changed = false;
        for group in &mut snapshot.groups {
            let Some(weight) = (self.options.weight)(group) else {
                continue;
            };
            if group.weight != Some(weight) {
                group.weight = Some(weight);
                group.weight_source = WeightSource::Config;
                changed = true;
            }
        }
        changed
    }

    /// Sets the knobs to the values that they would hold if the replay had been in charge.
    fn hold_own_knobs(&self, snapshot: &mut Snapshot) {
        for group in &mut snapshot.groups {
            let knobs = &mut group.knobs;
            for knob in Knob::of_groups() {
                let own = self.written.get(&(group.id, knob)).copied();
                let operator = knobs.operator.limit(knob).and_then(|limit| *limit);
                let held = own.or(operator.map(Value::Limit));
                // A file that did not exist then does not exist now.
                if let (Some(_), Some(held)) = (knobs.get(knob), held) {
                    knobs.set(knob, held);
                }
            }
        }
        for disk in &mut snapshot.devices {
            for knob in Knob::of_disks() {
                let own = self.written.get(&(disk.id, knob)).copied();
                if let (Some(_), Some(held)) = (disk.get(knob), own) {
                    disk.set(knob, held);
                }
            }
        }
    }
}
