//! Checks for protections (`memory.min`, `memory.low`) that do not protect.
//!
//! Kernel: `effective_protection` in `mm/page_counter.c`. Below the top level, children share at most their
//! parent's protection, in the ratio of their protected usage. With `memory_recursiveprot` the unclaimed rest
//! of the parent's protection goes to all children in the ratio of their usage.

use justitia_cgroup::survey::Known;
use justitia_cgroup::File;
use justitia_policy::units::Bytes;

use super::{about, largest, percent};
use crate::check::{Check, Outcome, Severity, Subject};
use crate::facts::{Facts, GroupFacts};
use crate::remedy;

pub(crate) const EXCEEDS_MEMORY: Check = Check {
    id: "protection-exceeds-memory",
    title: "protections that together exceed the memory that they can protect",
    severity: Severity::Warning,
    needs: "all groups (memory.min, memory.low, memory.current), MemTotal",
    consequence: "at the top, reclaim finds nothing it may take and the OOM killer runs (min) or \
                  protection is ignored (low); below, everybody's protection is scaled down",
    run: exceeds_memory,
};

pub(crate) const CUT_OFF: Check = Check {
    id: "protection-cut-off",
    title: "protections below an ancestor that has none",
    severity: Severity::Warning,
    needs: "all groups (memory.min, memory.low)",
    consequence:
        "the protection has no effect against reclaim from outside the ancestor: it is at most \
                  the ancestor's, which is 0",
    run: cut_off,
};

pub(crate) const RECURSIVE_MISSING: Check = Check {
    id: "recursiveprot-missing",
    title: "a parent's protection that reaches none of its children",
    severity: Severity::Warning,
    needs: "mount options, all groups (memory.min, memory.low, memory.current)",
    consequence:
        "without the mount option memory_recursiveprot, protection of a parent counts only \
                  for children that claim it",
    run: recursive_missing,
};

pub(crate) const RECURSIVE_UNCLAIMED: Check = Check {
    id: "recursiveprot-unclaimed",
    title: "a parent's protection that goes to children that did not claim it",
    severity: Severity::Warning,
    needs: "mount options, all groups (memory.low, memory.current)",
    consequence: "the unclaimed protection goes to all children in proportion to their usage: \
                  the largest gets most, and the proportions of their own memory.low are lost",
    run: recursive_unclaimed,
};

const KINDS: [File; 2] = [File::MemoryMin, File::MemoryLow];

/// Protections above this share of memory leave too little to reclaim.
const MOST_OF_RAM: f64 = 0.9;

/// Tolerance for children that claim more than their parent has: usage changes while it is read.
const SLACK: f64 = 1.05;

/// A group's claim on its parent's protection: its own protection, as far as it uses it.
fn claim(group: &GroupFacts, file: File) -> Known<Bytes> {
    let own = group.protection(file)?;
    if own == Bytes::ZERO {
        return Ok(own);
    }
    Ok(match group.current.clone()? {
        Some(current) => own.min(current),
        None => Bytes::ZERO,
    })
}

/// A group's own protection, if it has any.
fn protected(group: &GroupFacts, file: File, out: &mut Outcome) -> Option<Bytes> {
    out.known(group.protection(file))
        .filter(|own| *own > Bytes::ZERO)
}

fn exceeds_memory(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let groups = out.memory_groups(facts)?;
    let ram = out.known(facts.ram());
    for file in KINDS {
        if let (Some(ram), Some(root)) = (ram, groups.first()) {
            at_the_top(facts, root, ram, file, out);
        }
        for parent in groups.iter().skip(1) {
            let Some(own) = protected(parent, file, out) else {
                continue;
            };
            // Too small a sum does no harm here.
            let (claims, _) = claims(facts, parent, file, out);
            let sum: Bytes = claims.iter().map(|(_, claim)| *claim).sum();
            if sum <= own.scale(SLACK) + Bytes::mib(1) {
                continue;
            }
            let evidence = format!(
                "children claim {sum} of its {} of {own}, {}: {}",
                file.name(),
                percent(sum, own),
                largest(claims)
            );
            out.find(about(parent), evidence)
                .bytes("claims_bytes", sum)
                .bytes("protection_bytes", own)
                .remedy(remedy::set(facts, parent, file, sum));
        }
    }
    Some(())
}

fn at_the_top(facts: &Facts, root: &GroupFacts, ram: Bytes, file: File, out: &mut Outcome) {
    let mut protections = Vec::new();
    for group in facts.children(root) {
        match out.known(group.protection(file)) {
            // `max` protects all memory that the group can have.
            Some(Bytes(u64::MAX)) => {
                let limit = out.known(group.own_limit()).flatten();
                protections.push((group.path.as_str(), limit.unwrap_or(ram)));
            }
            Some(bytes) if bytes > Bytes::ZERO => protections.push((group.path.as_str(), bytes)),
            _ => {}
        }
    }
    let sum: Bytes = protections.iter().map(|(_, bytes)| *bytes).sum();
    if sum.as_f64() <= MOST_OF_RAM * ram.as_f64() {
        return;
    }
    let most = ram.scale(MOST_OF_RAM);
    let evidence = format!(
        "{} of the top-level groups sums to {sum}, {} of the {ram} of memory: {}",
        file.name(),
        percent(sum, ram),
        largest(protections)
    );
    out.find(Subject::Host, evidence)
        .bytes("protections_bytes", sum)
        .bytes("memory_bytes", ram)
        .remedy(format!(
            "lower them to {most} in all, so that reclaim has something to take"
        ));
}

/// The known claims of a group's children above zero, and whether they are all known: without one of them
/// their sum is too small.
fn claims<'a>(
    facts: &'a Facts,
    parent: &'a GroupFacts,
    file: File,
    out: &mut Outcome,
) -> (Vec<(&'a str, Bytes)>, bool) {
    // A group that could not be opened may be a child of any group.
    let mut complete = facts.closed.is_empty();
    let mut claims = Vec::new();
    for child in facts.children(parent) {
        match out.known(claim(child, file)) {
            Some(claim) if claim > Bytes::ZERO => claims.push((child.path.as_str(), claim)),
            Some(_) => {}
            None => complete = false,
        }
    }
    (claims, complete)
}

fn cut_off(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let groups = out.memory_groups(facts)?;
    for group in groups.iter().skip(1) {
        for file in KINDS {
            let Some(own) = protected(group, file, out) else {
                continue;
            };
            let bare: Vec<&GroupFacts> = facts
                .ancestors(group)
                .filter(|above| out.known(above.protection(file)) == Some(Bytes::ZERO))
                .collect();
            let Some(top) = bare.last() else { continue };
            // The protection that it asks for, even if it uses less so far. `max` is not a size.
            let needed = match group.current {
                Ok(Some(current)) if own == Bytes(u64::MAX) => current,
                _ => own,
            };
            let evidence = format!(
                "has {} of {own}, but {} has 0: effectively nothing is protected",
                file.name(),
                top.path
            );
            let finding = out.find(about(group), evidence);
            finding
                .bytes("protection_bytes", own)
                .bytes("effective_bytes", Bytes::ZERO);
            finding.all_needed = true;
            for above in bare {
                finding.remedy(remedy::set(facts, above, file, needed));
            }
        }
    }
    Some(())
}

fn recursive_missing(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let groups = out.memory_groups(facts)?;
    if out.known(facts.recursive_protection()) != Some(false) {
        return None;
    }
    for parent in groups.iter().skip(1) {
        for file in KINDS {
            let Some(own) = protected(parent, file, out) else {
                continue;
            };
            if !facts.children(parent).any(has_memory) {
                continue;
            }
            if claims(facts, parent, file, out) != (Vec::new(), true) {
                continue;
            }
            let evidence = format!(
                "has {} of {own}, none of its children has any, and {} is mounted without \
                         memory_recursiveprot",
                file.name(),
                facts.mount_point
            );
            out.find(about(parent), evidence)
                .bytes("protection_bytes", own)
                .remedy(format!(
                    "mount -o remount,memory_recursiveprot {}",
                    remedy::quoted(&facts.mount_point)
                ))
                .remedy("set it on the children that need protection");
        }
    }
    Some(())
}

fn has_memory(group: &GroupFacts) -> bool {
    !matches!(group.current, Ok(None))
}

/// Up to this share of a parent's protection may stay unclaimed: usage changes while it is read.
const UNCLAIMED_SHARE: f64 = 0.1;
const UNCLAIMED_LEAST: Bytes = Bytes::mib(4);

fn recursive_unclaimed(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let groups = out.memory_groups(facts)?;
    if out.known(facts.recursive_protection()) != Some(true) {
        return None;
    }
    let file = File::MemoryLow;
    for parent in groups.iter().skip(1) {
        let (Some(own), Some(Some(current))) = (
            out.known(parent.protection(file)),
            out.known(parent.current.clone()),
        ) else {
            continue;
        };
        let own = own.min(current);
        if own == Bytes::ZERO {
            continue;
        }
        let (claims, complete) = claims(facts, parent, file, out);
        let claimed: Bytes = claims.iter().map(|(_, claim)| *claim).sum();
        let unclaimed = own - claimed;
        let too_much = own.scale(UNCLAIMED_SHARE).max(UNCLAIMED_LEAST);
        // Without any claim the operator protects the children as a whole.
        if !complete || claims.is_empty() || unclaimed <= too_much {
            continue;
        }
        // The unclaimed rest goes to children that use more than their own protection.
        let gainers: Vec<(&str, Bytes)> = facts
            .children(parent)
            .filter_map(|child| {
                let over = child.current.clone().ok()?? - child.protection(file).ok()?;
                (over > Bytes::ZERO).then_some((child.path.as_str(), over))
            })
            .collect();
        if gainers.is_empty() {
            continue;
        }
        let evidence = format!(
            "{unclaimed} of its {} of {own} are claimed by no child and go by usage to {}",
            file.name(),
            largest(gainers)
        );
        out.find(about(parent), evidence)
            .bytes("unclaimed_bytes", unclaimed)
            .bytes("claimed_bytes", claimed)
            .bytes("protection_bytes", own)
            .remedy(remedy::set(facts, parent, file, claimed));
    }
    Some(())
}
