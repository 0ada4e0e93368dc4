//! Leaves out of a tick's tree what follows from the rest, and guesses the next tick's knobs.
//!
//! A verdict or a reason that lacks fields says so with a number under the key `=`, one bit for
//! each field of [`derive::OF_VERDICT`] or [`derive::OF_REASON`]. Undone in the opposite order:
//! verdicts follow from the snapshots, reasons from the verdicts.

use std::collections::HashMap;

use justitia_policy::plan::Knob;
use justitia_policy::snapshot::{Group, GroupId, Snapshot};
use serde_json::{Map, Value};

use crate::derive;
use crate::tree::identical;

const LEFT_OUT: &str = "=";

/// What derivations are made from.
pub(crate) struct Known<'a> {
    now: HashMap<GroupId, &'a Group>,
    /// `None`: the tick before is not known, and nothing is derived from it.
    then: Option<HashMap<GroupId, &'a Group>>,
    elapsed_s: f64,
}

impl<'a> Known<'a> {
    /// From the snapshots of a tick and of the one before.
    pub(crate) fn new(now: &'a Snapshot, then: Option<&'a Snapshot>, elapsed_s: f64) -> Known<'a> {
        let index = |snapshot: &'a Snapshot| {
            let groups = snapshot.groups.iter();
            groups.map(|group| (group.id, group)).collect()
        };
        Known {
            now: index(now),
            then: then.map(index),
            elapsed_s,
        }
    }

    fn of_verdict(&self, verdict: &Value) -> Vec<(usize, Value)> {
        let mut known = vec![(4, derive::threshold(verdict))];
        let id = group_of(verdict);
        if let (Some(then), Some(now)) = (&self.then, id.and_then(|id| self.now.get(&id))) {
            let before = id.and_then(|id| then.get(&id)).copied();
            let measured = derive::measured(before, now, self.elapsed_s);
            known.extend(measured.into_iter().enumerate());
        }
        known
    }

    fn of_reason(&self, write: &Value, verdicts: &Verdicts<'_>) -> Vec<(usize, Value)> {
        let id = group_of(write);
        let group = id.and_then(|id| self.now.get(&id)).copied();
        let verdict = id.and_then(|id| verdicts.get(&id)).copied();
        let reasons = derive::reasons(group, verdict);
        reasons.into_iter().enumerate().collect()
    }
}

type Verdicts<'a> = HashMap<GroupId, &'a Value>;

fn by_group(verdicts: &[Value]) -> Verdicts<'_> {
    let verdicts = verdicts.iter();
    verdicts
        .filter_map(|verdict| Some((group_of(verdict)?, verdict)))
        .collect()
}

fn group_of(record: &Value) -> Option<GroupId> {
    Some(GroupId(record.get("group")?.as_u64()?))
}

/// Leaves out of a plan what follows from the rest.
pub(crate) fn squeeze(plan: &mut Value, known: &Known<'_>) {
    let verdicts = take_array(plan, "verdicts");
    let mut writes = take_array(plan, "writes");
    let index = by_group(&verdicts);
    for write in &mut writes {
        let derived = known.of_reason(write, &index);
        if let Some(reason) = write.get_mut("reason").and_then(Value::as_object_mut) {
            leave_out(reason, &derive::OF_REASON, &derived);
        }
    }
    let squeezed = verdicts.into_iter().map(|mut verdict| {
        let derived = known.of_verdict(&verdict);
        if let Some(fields) = verdict.as_object_mut() {
            leave_out(fields, &derive::OF_VERDICT, &derived);
        }
        verdict
    });
    let squeezed = squeezed.collect();
    put_array(plan, "verdicts", squeezed);
    put_array(plan, "writes", writes);
}

/// Puts back what was left out. `None` if something is missing that nothing here gives.
pub(crate) fn unsqueeze(plan: &mut Value, known: &Known<'_>) -> Option<()> {
    let mut verdicts = take_array(plan, "verdicts");
    for verdict in &mut verdicts {
        let derived = known.of_verdict(verdict);
        if let Some(fields) = verdict.as_object_mut() {
            put_back(fields, &derive::OF_VERDICT, derived)?;
        }
    }
    let mut writes = take_array(plan, "writes");
    let index = by_group(&verdicts);
    for write in &mut writes {
        let derived = known.of_reason(write, &index);
        if let Some(reason) = write.get_mut("reason").and_then(Value::as_object_mut) {
            put_back(reason, &derive::OF_REASON, derived)?;
        }
    }
    put_array(plan, "verdicts", verdicts);
    put_array(plan, "writes", writes);
    Some(())
}

fn leave_out(fields: &mut Map<String, Value>, names: &[&str], derived: &[(usize, Value)]) {
    let mut left_out = 0_u64;
    for (bit, value) in derived {
        let name = names[*bit];
        if fields
            .get(name)
            .is_some_and(|given| identical(given, value))
        {
            fields.remove(name);
            left_out |= 1 << bit;
        }
    }
    if left_out > 0 {
        fields.insert(LEFT_OUT.to_owned(), left_out.into());
    }
}

fn put_back(
    fields: &mut Map<String, Value>,
    names: &[&str],
    derived: Vec<(usize, Value)>,
) -> Option<()> {
    let Some(left_out) = fields.remove(LEFT_OUT) else {
        return Some(());
    };
    let mut missing = left_out.as_u64()?;
    for (bit, value) in derived {
        if missing & (1 << bit) != 0 {
            fields.insert(names[bit].to_owned(), value);
            missing &= !(1 << bit);
        }
    }
    (missing == 0).then_some(())
}

/// Turns the tree of a tick into the guess for the next one: what was to be written is what the
/// knobs hold then. Right most of the time; what is not is written as a difference. Frozen, as
/// the formulas are: both sides must guess the same.
pub(crate) fn guess_next(tree: &mut Value) {
    if let Some(count) = tree.get("count").and_then(Value::as_u64) {
        tree["count"] = count.wrapping_add(1).into();
    }
    let Some(writes) = tree.get_mut("plan").map(|plan| take_array(plan, "writes")) else {
        return;
    };
    let mut written: HashMap<u64, Vec<&Value>> = HashMap::new();
    for write in &writes {
        if let Some(id) = write.get("group").and_then(Value::as_u64) {
            written.entry(id).or_default().push(write);
        }
    }
    for (list, below) in [("groups", Some("knobs")), ("devices", None)] {
        let things = tree.pointer_mut(&format!("/snapshot/{list}"));
        for thing in things.and_then(Value::as_array_mut).into_iter().flatten() {
            let id = thing.get("id").and_then(Value::as_u64);
            let Some(writes) = id.and_then(|id| written.get(&id)) else {
                continue;
            };
            let knobs = match below {
                Some(name) => thing.get_mut(name),
                None => Some(thing),
            };
            if let Some(knobs) = knobs.and_then(Value::as_object_mut) {
                for write in writes {
                    take_effect(knobs, write);
                }
            }
        }
    }
    if let Some(plan) = tree.get_mut("plan") {
        put_array(plan, "writes", writes);
    }
}

fn take_effect(knobs: &mut Map<String, Value>, write: &Value) {
    const FIELDS: [(Knob, &str, &str); 5] = [
        (Knob::MemoryLow, "low", "limit"),
        (Knob::MemoryHigh, "high", "limit"),
        (Knob::IoWeight, "io_weight", "weight"),
        (Knob::IoBfqWeight, "bfq_weight", "weight"),
        (Knob::BfqLowLatency, "low_latency", "switch"),
    ];
    let name = write.get("knob").and_then(Value::as_str);
    let field = FIELDS
        .iter()
        .find(|(knob, ..)| Some(knob.file_name()) == name);
    let Some((_, field, kind)) = field else {
        return;
    };
    let value = write.get("value").and_then(|value| value.get(kind));
    if let (Some(held), Some(value)) = (knobs.get_mut(*field), value) {
        *held = value.clone();
    }
}

fn take_array(tree: &mut Value, name: &str) -> Vec<Value> {
    match tree.get_mut(name) {
        Some(Value::Array(items)) => std::mem::take(items),
        _ => Vec::new(),
    }
}

fn put_array(tree: &mut Value, name: &str, items: Vec<Value>) {
    // What was no array before stays what it was.
    if let Some(Value::Array(place)) = tree.get_mut(name) {
        *place = items;
    }
}
