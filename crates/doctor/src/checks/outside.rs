//! Checks memory outside all limits: that of the root group itself, and of slices without a limit. Backups
//! and log shippers run there. Their page cache takes memory from everybody, and their dirty pages make
//! everybody wait.

use std::fmt::Write as _;

use justitia_policy::units::Bytes;

use super::percent;
use crate::check::{Check, Finding, Outcome, Severity, Subject};
use crate::facts::{Facts, GroupFacts};
use crate::remedy;
use justitia_cgroup::survey::Known;
use justitia_cgroup::File;

pub(crate) const UNBOUNDED: Check = Check {
    id: "outside-unbounded",
    title: "page cache of the root group or of slices without a limit",
    severity: Severity::Warning,
    needs: "all groups (memory.stat, memory.high, memory.max), MemTotal",
    consequence: "backups and log shippers push the workloads' page cache out: they may take \
                  everything that is not protected",
    run: unbounded,
};

pub(crate) const DIRTYING: Check = Check {
    id: "outside-dirtying",
    title: "the root group or a slice without a limit that fills memory with dirty pages",
    severity: Severity::Warning,
    needs: "all groups (memory.stat, memory.high, memory.max), vm.dirty_ratio, vm.dirty_bytes, \
            MemAvailable",
    consequence: "reclaim for a workload's allocation finds dirty pages and waits for the disk; \
                  writers are throttled together",
    run: dirtying,
};

/// Report an outsider whose page cache exceeds this share of memory.
const CACHE_OF_RAM: f64 = 0.1;
/// Report an outsider whose dirty pages exceed this share of the dirty limit.
const DIRTY_OF_LIMIT: f64 = 0.25;
/// An insider with a smaller limit than this share of memory has little page cache to lose.
const LEAST_LIMIT_OF_RAM: f64 = 0.02;

type Field = fn(&GroupFacts) -> Known<Option<Bytes>>;

/// True if a group is an insider: a workload, or a group with a weight or a limit.
fn is_inside(group: &GroupFacts) -> Known<bool> {
    if group.workload.is_some() || group.managed.clone()? {
        return Ok(true);
    }
    for weight in group.weights() {
        if weight?.is_some() {
            return Ok(true);
        }
    }
    Ok(group.own_limit()?.is_some())
}

/// True if an insider has page cache to lose. Services with a small limit, this program's own among them, are on
/// every host.
fn is_harmed(group: &GroupFacts, ram: Bytes) -> bool {
    let limit = group.own_limit().ok().flatten();
    is_inside(group) == Ok(true) && limit.is_none_or(|limit| limit >= ram.scale(LEAST_LIMIT_OF_RAM))
}

/// The memory of each outsider: the root without its children, and each group directly below it without its
/// insiders.
fn outsiders<'a>(
    facts: &'a Facts,
    field: Field,
    out: &mut Outcome,
) -> Vec<(&'a GroupFacts, Bytes)> {
    let Some(groups) = out.memory_groups(facts) else {
        return Vec::new();
    };
    let ram = facts.ram().unwrap_or_default();
    let insiders = groups.iter().skip(1).any(|group| is_harmed(group, ram));
    let Some(root) = groups.first().filter(|_| insiders) else {
        // No insider is there to be harmed. Record the groups for which that is unknown.
        for group in groups.iter().skip(1) {
            let _ = out.known(is_inside(group));
        }
        return Vec::new();
    };
    let mut found = Vec::new();
    // A group that could not be opened may be an insider below any group.
    if !facts.closed.is_empty() {
        return found;
    }
    let mut below = Bytes::ZERO;
    for top in facts.children(root) {
        let Some(all) = out.known(field(top)) else {
            return Vec::new();
        };
        let all = all.unwrap_or_default();
        below = below + all;
        if out.known(is_inside(top)) == Some(false) {
            if let Some(inside) = inside_of(facts, top, field, out) {
                found.push((top, all - inside));
            }
        }
    }
    if let Some(all) = out.known(field(root)) {
        found.push((root, all.unwrap_or_default() - below));
    }
    found
}

/// The memory of the topmost insiders below a group; `None`: unknown for at least one of them.
fn inside_of(facts: &Facts, group: &GroupFacts, field: Field, out: &mut Outcome) -> Option<Bytes> {
    let mut sum = Some(Bytes::ZERO);
    // Visit all children, to record every unknown fact.
    for child in facts.children(group) {
        let inside = match out.known(is_inside(child)) {
            Some(true) => out.known(field(child)).map(Option::unwrap_or_default),
            Some(false) => inside_of(facts, child, field, out),
            None => None,
        };
        sum = sum.zip(inside).map(|(sum, inside)| sum + inside);
    }
    sum
}

fn subject(group: &GroupFacts) -> (Subject, &'static str) {
    if group.parent.is_none() {
        (Subject::Host, "the root group itself")
    } else {
        (Subject::Group(group.path.clone()), "it")
    }
}

/// The group itself or the outsider below it that holds most of its memory.
fn culprit<'a>(facts: &'a Facts, group: &'a GroupFacts, field: Field) -> &'a GroupFacts {
    let mut at = group;
    let holds = |group: &GroupFacts| field(group).ok().flatten().unwrap_or_default();
    loop {
        let outsiders = facts
            .children(at)
            .filter(|child| is_inside(child) == Ok(false));
        let Some(most) = outsiders.max_by_key(|child| holds(child)) else {
            return at;
        };
        // `outsiders` recorded the unknown facts already.
        let inside = inside_of(facts, at, field, &mut Outcome::default());
        let own = holds(at) - inside.unwrap_or_default();
        if holds(most).as_f64() < own.as_f64() / 2.0 {
            return at;
        }
        at = most;
    }
}

/// Adds to a finding the group that causes it, and how to limit that group. A limit on a group with workloads
/// below it would hit them too.
fn bound(facts: &Facts, group: &GroupFacts, field: Field, finding: &mut Finding, room: Bytes) {
    if group.parent.is_none() {
        finding.remedy(
            "move what runs in the root group into a slice of its own, for example \
             systemd-run --slice=backup.slice -p MemoryHigh=512M COMMAND",
        );
        return;
    }
    let culprit = culprit(facts, group, field);
    if culprit.path != group.path {
        let _ = write!(finding.evidence, "; most of it is {}'s", culprit.path);
    }
    if facts
        .children(culprit)
        .any(|child| is_inside(child) != Ok(false))
    {
        finding.remedy(format!(
            "move the workloads below {} into a slice of their own, then bound it with MemoryHigh=",
            culprit.path
        ));
        return;
    }
    let (current, file) = (culprit.current.clone(), culprit.file());
    let (Ok(Some(current)), Ok(Some(file))) = (current, file) else {
        finding.remedy(format!(
            "bound {} with MemoryHigh= above its memory that is not page cache",
            culprit.path
        ));
        return;
    };
    let bound = current - file + room;
    finding.remedy(remedy::set(facts, culprit, File::MemoryHigh, bound));
}

fn unbounded(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let ram = out.known(facts.ram())?;
    for (group, cache) in outsiders(facts, GroupFacts::file, out) {
        if cache.as_f64() < CACHE_OF_RAM * ram.as_f64() {
            continue;
        }
        let (subject, who) = subject(group);
        let share = percent(cache, ram);
        let evidence =
            format!("{who} holds {cache} of page cache outside any limit, {share} of memory");
        let finding = out.find(subject, evidence);
        finding
            .bytes("page_cache_bytes", cache)
            .bytes("memory_bytes", ram);
        let room = ram.scale(CACHE_OF_RAM / 2.0);
        bound(facts, group, GroupFacts::file, finding, room);
    }
    Some(())
}

fn dirtying(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let limit = out.known(super::dirty::limit(facts))?;
    for (group, dirty) in outsiders(facts, GroupFacts::dirty, out) {
        if dirty.as_f64() < DIRTY_OF_LIMIT * limit.as_f64() || limit == Bytes::ZERO {
            continue;
        }
        let (subject, who) = subject(group);
        // The root's own writes are not counted separately from its children's.
        let rate = group.parent.and(group.write_rate().ok().flatten());
        let rate = rate.map_or_else(String::new, |rate| {
            format!(", writing {:.1} MB/s to disk", rate / 1e6)
        });
        let evidence = format!(
            "{who} holds {dirty} of dirty page cache outside any limit, {} of the host's \
             dirty limit of {limit}{rate}",
            percent(dirty, limit)
        );
        let finding = out.find(subject, evidence);
        finding
            .bytes("dirty_bytes", dirty)
            .bytes("dirty_limit_bytes", limit);
        let room = limit.scale(DIRTY_OF_LIMIT);
        bound(facts, group, GroupFacts::dirty, finding, room);
    }
    Some(())
}
