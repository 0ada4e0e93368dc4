//! Checks of kernel state: the multi-generational LRU, dying cgroups, pressure stall information.

use justitia_cgroup::File;
use justitia_policy::units::Bytes;

use super::{about, largest};
use crate::check::{Check, Outcome, Severity, Subject};
use crate::facts::Facts;
use crate::remedy;

pub(crate) const MGLRU: Check = Check {
    id: "mglru-protection",
    title: "protection by memory.low under the multi-generational LRU",
    severity: Severity::Note,
    needs: "MGLRU (/sys/kernel/mm/lru_gen), all groups (memory.low)",
    consequence:
        "kernels 6.1 to 6.12 take from a group above its memory.low without regard to how \
                  far above it is: proportions do not hold, and protection is not certain; newer ones scale. With \
                  min_ttl_ms processes are killed before a working set is given up",
    run: mglru,
};

pub(crate) const ZOMBIES: Check = Check {
    id: "zombie-cgroups",
    title: "removed cgroups that still hold memory",
    severity: Severity::Warning,
    needs: "all groups (cgroup.stat)",
    consequence: "their page cache is charged to no living group, reclaim walks through all of \
                  them, and reading statistics gets slow",
    run: zombies,
};

pub(crate) const PSI_OFF: Check = Check {
    id: "psi-off",
    title: "pressure stall information is off",
    severity: Severity::Critical,
    needs: "the host (/proc/pressure), all groups (memory.pressure)",
    consequence: "no program can tell which groups wait for memory or I/O: Justitia finds no \
                  contention and does nothing, oomd and systemd-oomd do not act",
    run: psi_off,
};

fn mglru(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let bits = out.known(facts.host.lru_gen.clone())?;
    // Bit 0 is the main switch.
    if bits.is_none_or(|bits| bits & 1 == 0) {
        return None;
    }
    let off = "echo n > /sys/kernel/mm/lru_gen/enabled";
    if let Some(Some(ttl)) = out.known(facts.host.lru_gen_min_ttl_ms.clone()) {
        if ttl > 0 {
            let evidence =
                format!("min_ttl_ms is {ttl}: what was used in that time is never evicted");
            out.find(Subject::Host, evidence)
                .number("min_ttl_ms", ttl as f64)
                .remedy("echo 0 > /sys/kernel/mm/lru_gen/min_ttl_ms");
        }
    }
    let groups = out.memory_groups(facts)?;
    let protected: Vec<(&str, Bytes)> = groups
        .iter()
        .skip(1)
        .filter_map(|group| {
            let low = out.known(group.protection(File::MemoryLow))?;
            (low > Bytes::ZERO).then_some((group.path.as_str(), low))
        })
        .collect();
    if protected.is_empty() {
        return None;
    }
    let release = facts.host.release.clone();
    let evidence = format!(
        "MGLRU is on (kernel {}), with memory.low on {}: {}",
        release.unwrap_or_else(|_| "unknown".to_owned()),
        super::groups(protected.len()),
        largest(protected.clone())
    );
    out.find(Subject::Host, evidence)
        .number("protected_groups", protected.len() as f64)
        .remedy(off);
    Some(())
}

/// Fewer dying groups than this are normal: the kernel frees them soon.
const MANY: u64 = 100;

fn zombies(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let root = out.tree(facts)?.first()?;
    let counts = out.known(root.descendants.clone()).flatten();
    let Some((dying, living)) = counts.and_then(|counts| counts.dying.zip(counts.living)) else {
        out.unknown("dying cgroups", "are not counted here");
        return None;
    };
    if dying < MANY || dying <= living {
        return None;
    }
    let counted = facts.children(root).filter_map(|group| {
        let counts = group.descendants.as_ref().ok()?.as_ref()?;
        Some((group, counts.dying?))
    });
    let worst = counted
        .max_by_key(|(_, dying)| *dying)
        .filter(|(_, dying)| *dying > 0);
    let below = worst.map_or_else(String::new, |(group, most)| {
        format!("; {most} of them below {}", group.path)
    });
    let evidence = format!("{dying} removed cgroups beside {living} that live{below}");
    let finding = out.find(Subject::Host, evidence);
    finding
        .number("dying", dying as f64)
        .number("living", living as f64);
    if let Some((group, _)) = worst {
        finding.remedy(remedy::write(facts, group, File::MemoryReclaim, "1G"));
    }
    finding
        .remedy("in a quiet hour: sync; echo 3 > /proc/sys/vm/drop_caches")
        .remedy("reuse the groups of short jobs instead of making new ones");
    Some(())
}

fn psi_off(facts: &Facts, out: &mut Outcome) -> Option<()> {
    if !out.known(facts.host.psi.clone())? {
        let evidence =
            "the kernel does not count pressure: it was built without PSI, or booted without psi=1";
        out.find(Subject::Host, evidence)
            .remedy("add psi=1 to the kernel's command line and reboot");
        return None;
    }
    for group in out.tree(facts)?.iter().skip(1) {
        if out.known(group.psi.clone()) == Some(false) {
            let path = group.path.trim_end_matches('/');
            let path = remedy::quoted(&format!("{}{path}/cgroup.pressure", facts.mount_point));
            out.find(about(group), "its pressure is not counted")
                .remedy(format!("echo 1 > {path}"));
        }
    }
    Some(())
}
