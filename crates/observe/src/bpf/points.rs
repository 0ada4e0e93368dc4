//! Kernel functions and tracepoints to which programs attach, and the need for each.

/// A kind of place to attach to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A kernel function, in the named module if there is one.
    Function(Option<&'static str>),
    Tracepoint,
    /// An iterator, which user space runs over all objects of a kind when it wants to.
    Iterator,
}

type Programs = &'static [&'static str];

/// A place to attach to.
#[derive(Debug)]
pub(crate) struct Point {
    /// The function or tracepoint.
    pub(crate) target: &'static str,
    pub(crate) kind: Kind,
    /// Programs of `observe.bpf.c` that attach there.
    pub(crate) programs: Programs,
    /// The fentry tier cannot do without it.
    pub(crate) required: bool,
    /// The cost of its absence.
    pub(crate) cost: &'static str,
    /// A function that tells the same at less cost, where programs can attach to it.
    pub(crate) cheaper: Option<&'static str>,
}

impl Point {
    const fn new(
        kind: Kind,
        target: &'static str,
        programs: Programs,
        cost: &'static str,
    ) -> Point {
        Point {
            target,
            kind,
            programs,
            required: false,
            cost,
            cheaper: None,
        }
    }

    const fn required(mut self) -> Point {
        self.required = true;
        self
    }

    const fn unless(mut self, cheaper: &'static str) -> Point {
        self.cheaper = Some(cheaper);
        self
    }

    const fn in_module(mut self, module: &'static str) -> Point {
        self.kind = Kind::Function(Some(module));
        self
    }
}

const fn function(target: &'static str, programs: Programs, cost: &'static str) -> Point {
    Point::new(Kind::Function(None), target, programs, cost)
}

const fn tracepoint(target: &'static str, programs: Programs, cost: &'static str) -> Point {
    Point::new(Kind::Tracepoint, target, programs, cost)
}

const fn iterator(target: &'static str, programs: Programs, cost: &'static str) -> Point {
    Point::new(Kind::Iterator, target, programs, cost)
}

const READS: &str = "pages that reads ask for, hits and misses are not counted";
const INSERTED: &str = "pages brought into the page cache are not counted";
const EVICTED: &str = "evictions are not counted";
const SHARED: &str = "files that several groups use are not known";
const SAMPLED: &str = "each read is counted, at its full cost";
const THROTTLED: &str = "time asleep above memory.high is not counted";
const RECLAIM: &str = "time in direct reclaim is not counted";
const MEMCG_RECLAIM: &str = "time in reclaim for a group's own limit is not counted";

/// Every place, required ones first.
pub(crate) const POINTS: &[Point] = &[
    function("filemap_read", &["filemap_read"], READS).required(),
    function(
        "generic_perform_write",
        &["generic_perform_write"],
        "bytes that ext4, f2fs and most other file systems write are not counted",
    )
    .required(),
    function(
        "page_cache_sync_ra",
        &["page_cache_sync_ra", "page_cache_sync_ra_end"],
        READS,
    )
    .required(),
    function(
        "page_cache_async_ra",
        &["page_cache_async_ra", "page_cache_async_ra_end"],
        READS,
    )
    .required(),
    tracepoint("mm_filemap_add_to_page_cache", &["page_added"], INSERTED)
        .required()
        .unless("read_pages"),
    function("read_pages", &["pages_read"], INSERTED),
    function(
        "filemap_read_folio",
        &["folio_read"],
        "pages that reads fetch without readahead, as at a memory limit, count as hits",
    ),
    tracepoint(
        "mm_filemap_delete_from_page_cache",
        &["page_removed"],
        EVICTED,
    )
    .unless("__filemap_remove_folio"),
    function("__filemap_remove_folio", &["folio_removed"], EVICTED),
    function(
        "filemap_fault",
        &["filemap_fault", "filemap_fault_end"],
        "faults on mapped files are not counted, and their readahead counts as that of reads",
    ),
    function(
        "filemap_splice_read",
        &["filemap_splice_read"],
        "bytes read by sendfile and splice are not counted, unless they pass filemap_read",
    ),
    function(
        "iomap_file_buffered_write",
        &["iomap_file_buffered_write"],
        "bytes that XFS writes are not counted",
    ),
    function(
        "btrfs_buffered_write",
        &["btrfs_buffered_write"],
        "bytes that Btrfs writes are not counted (it is not loaded, or CAP_SYS_ADMIN is missing)",
    )
    .in_module("btrfs"),
    function(
        "fuse_perform_write",
        &["fuse_perform_write"],
        "bytes that FUSE writes through are not counted (it is not loaded, or CAP_SYS_ADMIN is missing)",
    )
    .in_module("fuse"),
    function(
        "netfs_perform_write",
        &["netfs_perform_write"],
        "bytes that 9p, AFS and CIFS write are not counted (netfs is not loaded, or CAP_SYS_ADMIN is missing)",
    )
    .in_module("netfs"),
    tracepoint(
        "mm_vmscan_direct_reclaim_begin",
        &["direct_reclaim"],
        RECLAIM,
    ),
    tracepoint(
        "mm_vmscan_direct_reclaim_end",
        &["direct_reclaim_end"],
        RECLAIM,
    ),
    tracepoint(
        "mm_vmscan_memcg_reclaim_begin",
        &["memcg_reclaim"],
        MEMCG_RECLAIM,
    ),
    tracepoint(
        "mm_vmscan_memcg_reclaim_end",
        &["memcg_reclaim_end"],
        MEMCG_RECLAIM,
    ),
    function(
        "security_file_open",
        &["file_opened"],
        "shared files that are not kept open are not known",
    ),
    iterator("task_file", &["files_open"], SHARED),
    iterator("task_vma", &["files_mapped"], SHARED),
    iterator("bpf_map_elem", &["files_shared"], SHARED),
    iterator("task", &["threads_read"], SAMPLED),
    tracepoint("sched_process_exit", &["thread_ends"], SAMPLED),
    // A kernel has one of these two.
    function(
        "__mem_cgroup_handle_over_high",
        &["over_high", "over_high_end"],
        THROTTLED,
    ),
    function(
        "mem_cgroup_handle_over_high",
        &["over_high_old", "over_high_old_end"],
        THROTTLED,
    ),
];
