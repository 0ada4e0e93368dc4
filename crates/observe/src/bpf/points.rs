//! Where programs attach, what each place is needed for, and which of them to use. Pure.

use super::features::{Answer, Coverage};
use super::Error;

/// How much is counted in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Everything, at the entry and exit of functions.
    Fentry,
    /// Only what has tracepoints; bytes come from `/proc`.
    Tracepoints,
}

/// What a place to attach to is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A function of the kernel, or of this module of it.
    Function(Option<&'static str>),
    /// A tracepoint.
    Tracepoint,
    /// What user space runs over all objects of a kind, when it wants to.
    Iterator,
}

/// A place to attach to.
#[derive(Debug)]
pub(crate) struct Point {
    /// The function or tracepoint.
    pub(crate) target: &'static str,
    pub(crate) kind: Kind,
    /// Programs of `observe.bpf.c` that attach there.
    pub(crate) programs: &'static [&'static str],
    /// The tier cannot do without it.
    pub(crate) required: bool,
    /// What its absence costs.
    pub(crate) cost: &'static str,
    /// A function that tells the same for less, where programs can attach to it.
    pub(crate) cheaper: Option<&'static str>,
}

const fn function(
    target: &'static str,
    programs: &'static [&'static str],
    required: bool,
    cost: &'static str,
) -> Point {
    Point {
        target,
        kind: Kind::Function(None),
        programs,
        required,
        cost,
        cheaper: None,
    }
}

const fn in_module(
    target: &'static str,
    module: &'static str,
    programs: &'static [&'static str],
    cost: &'static str,
) -> Point {
    Point {
        kind: Kind::Function(Some(module)),
        ..function(target, programs, false, cost)
    }
}

const fn tracepoint(
    target: &'static str,
    programs: &'static [&'static str],
    required: bool,
    cost: &'static str,
) -> Point {
    Point {
        target,
        kind: Kind::Tracepoint,
        programs,
        required,
        cost,
        cheaper: None,
    }
}

const fn iterator(
    target: &'static str,
    programs: &'static [&'static str],
    cost: &'static str,
) -> Point {
    Point {
        target,
        kind: Kind::Iterator,
        programs,
        required: false,
        cost,
        cheaper: None,
    }
}

const READS: &str = "pages that reads ask for, hits and misses are not counted";
const INSERTED: &str = "pages brought into the page cache are not counted";
const EVICTED: &str = "evictions are not counted";
const SHARED: &str = "files that several groups use are not known";
const SAMPLED: &str = "each read is counted, whatever that costs";
const THROTTLED: &str = "time asleep above memory.high is not counted";
const RECLAIM: &str = "time in direct reclaim is not counted";
const MEMCG_RECLAIM: &str = "time in reclaim for a group's own limit is not counted";

/// Every place, required ones first.
pub(crate) const POINTS: &[Point] = &[
    function("filemap_read", &["filemap_read"], true, READS),
    function(
        "generic_perform_write",
        &["generic_perform_write"],
        true,
        "bytes that ext4, f2fs and most other file systems write are not counted",
    ),
    function(
        "page_cache_sync_ra",
        &["page_cache_sync_ra", "page_cache_sync_ra_end"],
        true,
        READS,
    ),
    function(
        "page_cache_async_ra",
        &["page_cache_async_ra", "page_cache_async_ra_end"],
        true,
        READS,
    ),
    Point {
        cheaper: Some("read_pages"),
        ..tracepoint(
            "mm_filemap_add_to_page_cache",
            &["page_added"],
            true,
            INSERTED,
        )
    },
    function("read_pages", &["pages_read"], false, INSERTED),
    function(
        "filemap_read_folio",
        &["folio_read"],
        false,
        "pages that reads fetch without readahead, as at a memory limit, count as hits",
    ),
    Point {
        cheaper: Some("__filemap_remove_folio"),
        ..tracepoint(
            "mm_filemap_delete_from_page_cache",
            &["page_removed"],
            false,
            EVICTED,
        )
    },
    function("__filemap_remove_folio", &["folio_removed"], false, EVICTED),
    function(
        "filemap_fault",
        &["filemap_fault", "filemap_fault_end"],
        false,
        "faults on mapped files are not counted, and their readahead counts as that of reads",
    ),
    function(
        "filemap_splice_read",
        &["filemap_splice_read"],
        false,
        "bytes read by sendfile and splice are not counted, unless they pass filemap_read",
    ),
    function(
        "iomap_file_buffered_write",
        &["iomap_file_buffered_write"],
        false,
        "bytes that XFS writes are not counted",
    ),
    in_module(
        "btrfs_buffered_write",
        "btrfs",
        &["btrfs_buffered_write"],
        "bytes that Btrfs writes are not counted, should it be loaded later",
    ),
    in_module(
        "fuse_perform_write",
        "fuse",
        &["fuse_perform_write"],
        "bytes that FUSE writes through are not counted, should it be loaded later",
    ),
    in_module(
        "netfs_perform_write",
        "netfs",
        &["netfs_perform_write"],
        "bytes that 9p, AFS and CIFS write are not counted, should netfs be loaded later",
    ),
    tracepoint(
        "mm_vmscan_direct_reclaim_begin",
        &["direct_reclaim"],
        false,
        RECLAIM,
    ),
    tracepoint(
        "mm_vmscan_direct_reclaim_end",
        &["direct_reclaim_end"],
        false,
        RECLAIM,
    ),
    tracepoint(
        "mm_vmscan_memcg_reclaim_begin",
        &["memcg_reclaim"],
        false,
        MEMCG_RECLAIM,
    ),
    tracepoint(
        "mm_vmscan_memcg_reclaim_end",
        &["memcg_reclaim_end"],
        false,
        MEMCG_RECLAIM,
    ),
    function(
        "security_file_open",
        &["file_opened"],
        false,
        "of files that several groups use, those that are not kept open are not known",
    ),
    iterator("task_file", &["files_open"], SHARED),
    iterator("task_vma", &["files_mapped"], SHARED),
    iterator("bpf_map_elem", &["files_shared"], SHARED),
    iterator("task", &["threads_read"], SAMPLED),
    tracepoint("sched_process_exit", &["thread_ends"], false, SAMPLED),
    // One of the two is there.
    function(
        "__mem_cgroup_handle_over_high",
        &["over_high", "over_high_end"],
        false,
        THROTTLED,
    ),
    function(
        "mem_cgroup_handle_over_high",
        &["over_high_old", "over_high_old_end"],
        false,
        THROTTLED,
    ),
];

/// Which programs to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) tier: Tier,
    pub(crate) programs: Vec<&'static str>,
    /// Of those, programs in modules: what the modules hold is known only when they are loaded.
    pub(crate) in_modules: Vec<&'static str>,
}

/// Decides from what the probe found.
pub(crate) fn choose(coverage: &Coverage) -> Result<Choice, Error> {
    for (name, what) in [
        ("btf", "this kernel has no BTF (/sys/kernel/btf/vmlinux)"),
        ("bpf", "this process may not use bpf(2)"),
        ("tracing", "this kernel runs no BPF tracing programs"),
    ] {
        if coverage.answer(name) != Answer::Yes {
            return Err(Error::Missing(what.to_owned()));
        }
    }
    let there = |point: &&Point| coverage.answer(point.target) == Answer::Yes;
    let fits =
        |point: &&Point, tier| tier == Tier::Fentry || !matches!(point.kind, Kind::Function(_));
    let fentry = coverage.answer("fentry") == Answer::Yes
        && POINTS.iter().all(|point| !point.required || there(&point));
    let tier = if fentry {
        Tier::Fentry
    } else {
        Tier::Tracepoints
    };
    let points: Vec<&Point> = POINTS
        .iter()
        .filter(|point| fits(point, tier) && there(point))
        .filter(|point| {
            let cheaper = |name| tier == Tier::Fentry && coverage.answer(name) == Answer::Yes;
            !point.cheaper.is_some_and(cheaper)
        })
        .collect();
    if !points.iter().any(|point| point.kind == Kind::Tracepoint) {
        return Err(Error::Missing(
            "this kernel has none of the tracepoints that the observer uses".to_owned(),
        ));
    }
    let programs = |points: &mut dyn Iterator<Item = &&'static Point>| {
        points.flat_map(|point| point.programs).copied().collect()
    };
    Ok(Choice {
        tier,
        programs: programs(&mut points.iter()),
        in_modules: programs(
            &mut points
                .iter()
                .filter(|point| matches!(point.kind, Kind::Function(Some(_)))),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::features::Feature;
    use super::*;

    /// A kernel that has everything but these.
    fn all_but(missing: &[&str]) -> Coverage {
        let general = ["btf", "bpf", "tracing", "fentry"];
        let names = general.into_iter().chain(POINTS.iter().map(|p| p.target));
        Coverage {
            features: names
                .map(|name| Feature {
                    name,
                    answer: if missing.contains(&name) {
                        Answer::No
                    } else {
                        Answer::Yes
                    },
                    needed_for: "",
                })
                .collect(),
        }
    }

    #[test]
    fn a_full_kernel_gets_every_program() {
        let choice = choose(&all_but(&[])).unwrap();
        assert_eq!(choice.tier, Tier::Fentry);
        let used = POINTS.iter().filter(|point| point.cheaper.is_none());
        let all: usize = used.map(|point| point.programs.len()).sum();
        assert_eq!(choice.programs.len(), all);
        let choice = choose(&all_but(&["read_pages"])).unwrap();
        assert!(choice.programs.contains(&"page_added"));
        assert_eq!(
            choice.in_modules,
            [
                "btrfs_buffered_write",
                "fuse_perform_write",
                "netfs_perform_write"
            ]
        );
    }

    #[test]
    fn without_fentry_only_tracepoints_are_used() {
        let choice = choose(&all_but(&["fentry"])).unwrap();
        assert_eq!(choice.tier, Tier::Tracepoints);
        assert!(choice.programs.contains(&"page_added"));
        assert!(choice.programs.contains(&"page_removed"));
        assert!(!choice.programs.contains(&"filemap_read"));
    }

    #[test]
    fn a_function_that_the_first_tier_needs_decides_the_tier() {
        let choice = choose(&all_but(&["page_cache_sync_ra"])).unwrap();
        assert_eq!(choice.tier, Tier::Tracepoints);
        let choice = choose(&all_but(&["filemap_splice_read"])).unwrap();
        assert_eq!(choice.tier, Tier::Fentry);
        assert!(!choice.programs.contains(&"filemap_splice_read"));
    }

    #[test]
    fn what_every_tier_needs_is_an_error() {
        for name in ["btf", "bpf", "tracing"] {
            assert!(choose(&all_but(&[name])).is_err(), "{name}");
        }
    }
}
