//! Checks of swap: none on a host full of anonymous memory, no swap limit beside a memory limit, and a
//! swappiness that leaves reclaim no choice. With cgroup v2 a group has no swappiness of its own; its
//! `memory.swap.max` decides.

use justitia_cgroup::File;
use justitia_policy::units::{Bytes, Limit};

use super::{about, percent};
use crate::check::{Check, Outcome, Severity, Subject};
use crate::facts::{Facts, GroupFacts};
use crate::remedy;

pub(crate) const NONE: Check = Check {
    id: "swap-none",
    title: "no swap on a host full of anonymous memory",
    severity: Severity::Note,
    needs: "swap devices (/proc/swaps), AnonPages, MemTotal",
    consequence:
        "anonymous memory cannot be reclaimed: all pressure falls on the page cache, down \
                  to mapped program code, and then the OOM killer runs",
    run: none,
};

pub(crate) const UNLIMITED: Check = Check {
    id: "swap-unlimited",
    title: "a group that is limited in memory, but not in swap",
    severity: Severity::Note,
    needs: "swap devices, all groups (memory.max, memory.swap.current, memory.swap.max)",
    consequence: "over its limit the group swaps instead of failing, and its swapping loads the \
                  disk that everybody's page cache is read from",
    run: unlimited,
};

pub(crate) const SWAPPINESS: Check = Check {
    id: "swappiness-extreme",
    title: "a swappiness that leaves reclaim no choice",
    severity: Severity::Warning,
    needs: "vm.swappiness, /proc/swaps",
    consequence: "0: idle anonymous memory is never swapped until the page cache is gone; above \
                  100: the kernel assumes that swapping is cheaper than reading, which is wrong \
                  for a disk",
    run: swappiness,
};

/// From this share of memory on, the host is full of anonymous memory.
const FULL_OF_ANON: f64 = 0.5;
/// Report swap usage above this share of the limit.
const SWAPPED: f64 = 0.05;
/// Above this swappiness the kernel assumes that swap I/O is cheaper than file I/O, which is meant for zram
/// and zswap.
const EVEN: u64 = 100;

fn none(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let swaps = out.known(facts.host.swaps.clone())?;
    if !swaps.is_empty() {
        return None;
    }
    let anon = out.known(facts.meminfo(|info| info.anon, "AnonPages"));
    let ram = out.known(facts.ram());
    let (anon, ram) = (anon?, ram?);
    if anon.as_f64() < FULL_OF_ANON * ram.as_f64() {
        return None;
    }
    let evidence = format!(
        "no swap, and {anon} of anonymous memory, {} of {ram}",
        percent(anon, ram)
    );
    out.find(Subject::Host, evidence).bytes("anon_bytes", anon)
        .bytes("memory_bytes", ram)
        .remedy(format!(
            "modprobe zram && dev=$(zramctl --find --size {}M) && mkswap $dev && swapon -p 100 $dev",
            (ram.0 / 4) >> 20
        ))
        .remedy("fallocate -l 4G /swapfile && chmod 600 /swapfile && mkswap /swapfile && swapon /swapfile");
    Some(())
}

fn unlimited(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let swaps = out.known(facts.host.swaps.clone())?;
    if swaps.is_empty() {
        return None;
    }
    for group in out.memory_groups(facts)?.iter().skip(1) {
        swaps_besides(facts, group, out);
    }
    Some(())
}

fn swaps_besides(facts: &Facts, group: &GroupFacts, out: &mut Outcome) -> Option<()> {
    let limit = out.known(group.max.clone())??.bytes()?;
    if out.known(group.swap_max.clone())?? != Limit::Max {
        return None;
    }
    let used = out.known(group.swap.clone())??;
    if used.as_f64() < SWAPPED * limit.as_f64() || used == Bytes::ZERO {
        return None;
    }
    let evidence = format!(
        "limited to {limit} of memory, and uses {used} of swap besides, {} of that limit, \
                     without a bound",
        percent(used, limit)
    );
    out.find(about(group), evidence)
        .bytes("limit_bytes", limit)
        .bytes("swap_bytes", used)
        .remedy(remedy::set(facts, group, File::MemorySwapMax, used))
        .remedy(remedy::write(facts, group, File::MemorySwapMax, "0"));
    Some(())
}

fn swappiness(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let swaps = out.known(facts.host.swaps.clone());
    let value = out.known(facts.host.swappiness.clone());
    let (swaps, value) = (swaps?, value?);
    // Without swap, swappiness has no effect.
    let swap = swaps
        .iter()
        .find(|swap| !swap.is_zram())
        .or(swaps.first())?;
    let evidence = if value == 0 {
        format!(
            "vm.swappiness is 0, and {} of swap stand ready",
            Bytes(swaps.iter().map(|swap| swap.size).sum())
        )
    } else if value > EVEN && !swap.is_zram() {
        format!("vm.swappiness is {value}, and {} is on a disk", swap.name)
    } else {
        return None;
    };
    out.find(Subject::Host, evidence)
        .number("swappiness", value as f64)
        .remedy("sysctl vm.swappiness=10, and the same in a file of /etc/sysctl.d");
    Some(())
}
