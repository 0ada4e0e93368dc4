//! Checks for groups whose limit is smaller than their working set: anonymous memory displaces page cache,
//! and pages in repeated use are evicted between uses.
//!
//! A refault is a read of a page that was evicted so recently that a little more memory would have kept it
//! (`mm/workingset.c`). An activation is a refault of a page that had been hot.

use justitia_cgroup::parse::memory::MemoryStat;
use justitia_policy::units::Bytes;

use super::{about, percent};
use crate::check::{Check, Finding, Outcome, Severity};
use crate::facts::{Facts, GroupFacts};
use crate::remedy;

pub(crate) const TOO_SMALL: Check = Check {
    id: "limit-too-small",
    title: "limits too small for anonymous memory and hot page cache",
    severity: Severity::Warning,
    needs:
        "all groups (memory.current, memory.high, memory.max, memory.events, memory.events.local; \
            memory.stat twice)",
    consequence: "hot pages are evicted and read again from the disk, which slows the group and \
                  loads the disk for everybody; when anonymous memory reaches the limit, processes \
                  are killed",
    run: too_small,
};

pub(crate) const CACHE_STARVED: Check = Check {
    id: "page-cache-starved",
    title: "page cache starved by anonymous memory inside a limit",
    severity: Severity::Critical,
    needs: "all groups (memory.current, memory.high, memory.max; memory.stat twice)",
    consequence: "every read goes to the disk, mapped program code too: the group crawls although \
                  the host has memory",
    run: cache_starved,
};

/// Refaults below this are noise: 100 pages of 4 KiB are 0.4 MB/s.
const REFAULTS_PER_S: f64 = 100.0;
/// From this share of its limit on, a group is at its limit: charges come in batches.
const AT_LIMIT: f64 = 0.9;
/// Below this share of the limit, page cache is only the remainder that anonymous memory leaves.
const STARVED: f64 = 0.1;
/// Growth of anonymous memory that counts as a trend, bytes per second.
const GROWTH_PER_S: f64 = (1 << 20) as f64;
/// Report a limit that will be reached within this time, seconds.
const SOON_S: f64 = 300.0;
/// Factor of the proposed limit when the need is not known.
const MORE: f64 = 1.25;

/// A group at its limit that refaults.
struct Thrashing<'a> {
    group: &'a GroupFacts,
    limit: Bytes,
    current: Bytes,
    cache: Bytes,
    anon: Bytes,
    refaults: f64,
    /// Activations per second; `None`: not counted.
    activations: Option<f64>,
}

/// The groups that thrash. Unknown facts of limited groups are recorded.
fn thrashing<'a>(facts: &'a Facts, out: &mut Outcome) -> Option<Vec<Thrashing<'a>>> {
    let groups = out.memory_groups(facts)?.iter().skip(1);
    Some(
        groups
            .filter_map(|group| Thrashing::of(group, out))
            .collect(),
    )
}

impl Thrashing<'_> {
    fn of<'a>(group: &'a GroupFacts, out: &mut Outcome) -> Option<Thrashing<'a>> {
        let limit = out.known(group.own_limit())??;
        let rate = group.rate(
            |stat| stat.workingset_refault_file,
            "workingset_refault_file",
        );
        let (current, refaults) = (out.known(group.current.clone()), out.known(rate));
        let (current, refaults) = (current??, refaults??);
        let (cache, anon) = (out.known(group.file()), out.known(group.anon()));
        let (cache, anon) = (cache??, anon??);
        if current.as_f64() < AT_LIMIT * limit.as_f64() || refaults < REFAULTS_PER_S {
            return None;
        }
        let field = |stat: &MemoryStat| stat.workingset_activate_file;
        let activations = group.rate(field, "workingset_activate_file");
        Some(Thrashing {
            group,
            limit,
            current,
            cache,
            anon,
            refaults,
            activations: activations.ok().flatten(),
        })
    }

    fn is_starved(&self) -> bool {
        self.cache.as_f64() < STARVED * self.limit.as_f64()
    }

    fn find<'a>(&self, facts: &Facts, out: &'a mut Outcome, what: &str) -> &'a mut Finding {
        let megabytes = self.refaults * facts.page as f64 / 1e6;
        let hot = self.activations.map_or_else(String::new, |activations| {
            format!(", {activations:.0} of them hot")
        });
        let evidence = format!(
            "{what}: uses {} of {}, page cache {} ({}), anonymous {} ({}), and reads {:.0} \
             pages/s again ({megabytes:.1} MB/s{hot})",
            self.current,
            self.limit,
            self.cache,
            percent(self.cache, self.limit),
            self.anon,
            percent(self.anon, self.limit),
            self.refaults,
        );
        out.find(about(self.group), evidence)
            .bytes("limit_bytes", self.limit)
            .bytes("current_bytes", self.current)
            .bytes("page_cache_bytes", self.cache)
            .bytes("anon_bytes", self.anon)
            .number("refaults_per_s", self.refaults)
    }
}

/// The command that raises a limit when the need is not known.
fn more(facts: &Facts, group: &GroupFacts, limit: Bytes) -> String {
    remedy::set(facts, group, group.limited_by(limit), limit.scale(MORE))
}

fn too_small(facts: &Facts, out: &mut Outcome) -> Option<()> {
    for thrashing in thrashing(facts, out)? {
        if thrashing.is_starved() {
            continue;
        }
        thrashing
            .find(facts, out, "its hot page cache does not fit")
            .remedy(more(facts, thrashing.group, thrashing.limit));
    }
    for group in facts.groups.iter().skip(1) {
        let Ok(Some(limit)) = group.own_limit() else {
            continue;
        };
        growing(facts, group, limit, out);
        killed(facts, group, limit, out);
    }
    Some(())
}

fn growing(facts: &Facts, group: &GroupFacts, limit: Bytes, out: &mut Outcome) -> Option<()> {
    let growth = out.known(group.rate(|stat| stat.anon, "anon"))??;
    let anon = group.anon().ok()??;
    let left_s = (limit - anon).as_f64() / growth;
    if growth < GROWTH_PER_S || left_s >= SOON_S {
        return None;
    }
    let evidence = format!(
        "anonymous memory is {anon} of {limit} and grows by {}/s: it fills the limit in \
                 {left_s:.0} s",
        Bytes::from_f64(growth)
    );
    out.find(about(group), evidence).bytes("limit_bytes", limit)
        .bytes("anon_bytes", anon)
        .number("anon_bytes_per_s", growth)
        .number("full_in_s", left_s)
        .remedy(more(facts, group, limit))
        .remedy("bound the application's heap below the limit, unless the application is still starting");
    Some(())
}

fn killed(facts: &Facts, group: &GroupFacts, limit: Bytes, out: &mut Outcome) -> Option<()> {
    // `memory.events` counts a kill in all ancestors of the victim's group, and in the victim's group even if
    // the whole host ran out of memory. Only the group's own `oom` in `memory.events.local` shows that its
    // limit was hit.
    let events = out.known(group.events.clone());
    let local = out.known(group.events_local.clone());
    let counted = |count: Option<u64>| count.filter(|count| *count > 0);
    let kills = counted(events??.oom_kill)?;
    counted(local??.oom)?;
    let processes = match kills {
        1 => "1 process was".to_owned(),
        kills => format!("{kills} processes were"),
    };
    let evidence =
        format!("{processes} killed for lack of memory since it was made; its limit is {limit}");
    out.find(about(group), evidence)
        .bytes("limit_bytes", limit)
        .number("oom_kills", kills as f64)
        .remedy(more(facts, group, limit));
    Some(())
}

fn cache_starved(facts: &Facts, out: &mut Outcome) -> Option<()> {
    for thrashing in thrashing(facts, out)? {
        if !thrashing.is_starved() {
            continue;
        }
        let group = thrashing.group;
        let file = group.limited_by(thrashing.limit);
        // Room for its anonymous memory plus a quarter of that for page cache, and more than its present
        // limit.
        let wanted = thrashing.anon.scale(MORE).max(thrashing.limit.scale(MORE));
        thrashing
            .find(facts, out, "anonymous memory left its page cache no room")
            .remedy(remedy::set(facts, group, file, wanted))
            .remedy("shrink the application's heap");
    }
    Some(())
}
