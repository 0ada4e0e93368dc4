//! Checks for limits that are taken for reservations: limits whose sum exceeds the memory, and limits that a
//! group can reach only by reclaim from others. A limit reserves nothing.

use justitia_cgroup::survey::Known;
use justitia_cgroup::File;
use justitia_policy::units::Bytes;

use super::{about, largest, percent};
use crate::check::{Check, Outcome, Severity, Subject};
use crate::facts::{At, Facts, GroupFacts, ROOT};
use crate::remedy;

pub(crate) const LIMITS_EXCEED_MEMORY: Check = Check {
    id: "limits-exceed-memory",
    title: "limits that together promise more memory than there is",
    severity: Severity::Warning,
    needs: "all groups (memory.max, memory.high), MemTotal",
    consequence: "when the groups use their limits, they reclaim from each other or are killed; \
                  a limit is not a reservation",
    run: limits_exceed_memory,
};

pub(crate) const MEMORY_NOT_RESERVED: Check = Check {
    id: "memory-not-reserved",
    title: "groups that can reach their limit only by reclaim from others",
    severity: Severity::Warning,
    needs: "all groups (memory.current, memory.min, memory.low, memory.high, memory.max), MemFree",
    consequence: "an allocation well below the limit waits for reclaim, for seconds if the page \
                  cache to be taken is dirty: slow starts, slow requests",
    run: memory_not_reserved,
};

/// The memory that each group may claim from its parent: its limit, or without one the sum of its children's
/// claims. Children follow their parents, so the loop runs backward.
fn claims(groups: &[GroupFacts], out: &mut Outcome) -> Vec<Bytes> {
    let mut claims = vec![Bytes::ZERO; groups.len()];
    for (at, group) in groups.iter().enumerate().rev() {
        let limit = out.known(group.own_limit()).flatten();
        claims[at] = limit.unwrap_or(claims[at]);
        if let Some(parent) = group.parent {
            claims[parent] = claims[parent] + claims[at];
        }
    }
    claims
}

fn limits_exceed_memory(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let groups = out.memory_groups(facts)?;
    let claims = claims(groups, out);
    let ram = out.known(facts.ram());
    for (at, group) in groups.iter().enumerate() {
        let capacity = match at {
            ROOT => ram,
            // `claims` recorded the unknown limits already.
            _ => group.own_limit().ok().flatten(),
        };
        let children = group.children.iter();
        let children: Vec<(&str, Bytes)> = children
            .map(|at| (groups[*at].path.as_str(), claims[*at]))
            .filter(|(_, claim)| *claim > Bytes::ZERO)
            .collect();
        let sum: Bytes = children.iter().map(|(_, claim)| *claim).sum();
        if let Some(capacity) = capacity.filter(|capacity| sum > *capacity) {
            exceeded(facts, at, sum, capacity, &children, out);
        }
    }
    Some(())
}

/// A proposed limit is at least this many times what the group uses.
const LEAST_ROOM: f64 = 1.1;

fn exceeded(
    facts: &Facts,
    at: At,
    sum: Bytes,
    capacity: Bytes,
    children: &[(&str, Bytes)],
    out: &mut Outcome,
) {
    let group = &facts.groups[at];
    let (subject, of) = if at == ROOT {
        (Subject::Host, "of memory".to_owned())
    } else {
        (about(group), format!("that {} may have", group.path))
    };
    let factor = capacity.as_f64() / sum.as_f64();
    let evidence = format!(
        "limits sum to {sum}, {} of the {capacity} {of}: {}",
        percent(sum, capacity),
        largest(children.to_vec())
    );
    let finding = out.find(subject, evidence);
    finding
        .bytes("limits_bytes", sum)
        .bytes("capacity_bytes", capacity);
    let largest = children.iter().max_by_key(|(_, claim)| *claim);
    let found = largest.and_then(|(path, claim)| {
        let group = facts.groups.iter().find(|group| group.path == *path)?;
        let (limit, fits) = (group.own_limit().ok().flatten()?, claim.scale(factor));
        // A limit below what the group uses may kill its processes.
        let current = group.current.clone().ok().flatten()?;
        let room = fits > current.scale(LEAST_ROOM);
        room.then(|| remedy::set(facts, group, group.limited_by(limit), fits))
    });
    let example = found.map_or_else(String::new, |command| {
        format!(" ({command}, and the others alike)")
    });
    finding.remedy(format!(
        "multiply each of these limits by {factor:.2}{example}, or protect (memory.low) what each must have"
    ));
}

/// Groups with less room below their limit are ignored.
const LEAST_HEADROOM: Bytes = Bytes::mib(1);

/// A group that uses less than this share of its limit has only just started.
const HARDLY_BEGUN: f64 = 0.1;

fn memory_not_reserved(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let groups = out.memory_groups(facts)?;
    let recursive = out.known(facts.recursive_protection());
    let unreserved = |group| {
        let limit = out.known(GroupFacts::own_limit(group))??;
        // Only the topmost limits count: the groups below share them.
        let above = facts
            .ancestors(group)
            .any(|above| above.own_limit().is_ok_and(|limit| limit.is_some()));
        if above || out.known(is_protected(facts, group, recursive)) != Some(false) {
            return None;
        }
        let headroom = limit - out.known(group.current.clone())??;
        (headroom >= LEAST_HEADROOM).then_some((group, limit, headroom))
    };
    let groups = groups.iter().skip(1);
    let unreserved: Vec<(&GroupFacts, Bytes, Bytes)> = groups.filter_map(unreserved).collect();
    let all: Bytes = unreserved.iter().map(|(.., headroom)| *headroom).sum();
    let free = out.known(facts.meminfo(|info| info.free, "MemFree"))?;
    if all <= free {
        return None;
    }
    let dirty = facts.meminfo(|info| info.dirty, "Dirty").ok();
    let dirty = dirty.filter(|dirty| *dirty > Bytes::ZERO);
    let dirty = dirty.map_or_else(String::new, |dirty| {
        format!(", and {dirty} of the page cache are dirty")
    });
    for (group, limit, headroom) in unreserved {
        let current = limit - headroom;
        let needs = group.anon().ok().flatten().unwrap_or(current);
        let evidence = format!(
            "may grow by {headroom} to its limit of {limit}, nothing of it is protected; \
             {free} are free for {all} that such groups may still claim{dirty}"
        );
        let finding = out.find(about(group), evidence);
        finding
            .bytes("headroom_bytes", headroom)
            .bytes("limit_bytes", limit)
            .bytes("free_bytes", free)
            .bytes("claims_bytes", all);
        // The usage of a group that has only just started does not show what it needs.
        if current < limit.scale(HARDLY_BEGUN) {
            finding.remedy(format!(
                "set its memory.low to what it will need, at most its limit of {limit}"
            ));
        } else {
            finding
                .remedy(remedy::set(facts, group, File::MemoryLow, current))
                .remedy(remedy::set(facts, group, File::MemoryMin, needs));
        }
    }
    Some(())
}

/// True if a group has any protection: its own, or that of an ancestor that passes it on.
fn is_protected(facts: &Facts, group: &GroupFacts, recursive: Option<bool>) -> Known<bool> {
    let has = |group: &GroupFacts| {
        let min = group.protection(File::MemoryMin)?;
        Ok(min > Bytes::ZERO || group.protection(File::MemoryLow)? > Bytes::ZERO)
    };
    let above = facts.ancestors(group).filter(|_| recursive == Some(true));
    for group in std::iter::once(group).chain(above) {
        if has(group)? {
            return Ok(true);
        }
    }
    Ok(false)
}
