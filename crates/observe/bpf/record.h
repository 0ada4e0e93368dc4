/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records that the programs and user space share. The Rust types are generated from these: there
 * is no second definition. Sizes are asserted on both sides.
 *
 * Units are in the names; a page is the kernel's base page.
 */
#ifndef JUSTITIA_RECORD_H
#define JUSTITIA_RECORD_H

/* What the CPUs of a lane counted of one group. Cumulative; two cache lines, so that lanes never share one. */
struct counters {
	__u64 read_bytes;
	__u64 write_bytes;
	/* Pages that buffered reads asked for. */
	__u64 asked_pages;
	/* Of those, pages that were not there when the call asked. */
	__u64 missed_pages;
	/* Of those, pages that the same open file's readahead had fetched, asked for first. */
	__u64 readahead_pages;
	/* Pages that reads had to fetch: missed, and fetched ahead. */
	__u64 fetched_pages;
	/* Pages that reads and faults brought into the page cache; at the tracepoint, also those of writes. */
	__u64 inserted_pages;
	/* Pages charged to the group that reclaim took. */
	__u64 evicted_pages;
	__u64 mmap_faults;
	__u64 mmap_major_faults;
	__u64 reclaim_ns;
	__u64 throttled_ns;
	/* Bytes that read-like system calls of threads returned, of whatever: the kernel's own count, as far
	 * as the iterator over threads has looked. */
	__u64 rchar;
	__u64 reserved[3];
};
_Static_assert(sizeof(struct counters) == 128, "two cache lines");

/* What user space decides before the programs are loaded. */
struct settings {
	/* Records of a slot, side by side, each for some of the CPUs; a power of two. */
	__u32 lanes;
	__u32 page_shift;
	/* Places of threads, less one; a power of two less one. */
	__u32 place_mask;
	/* Bits of a hash that are left out where it tells a set of files. */
	__u32 set_shift;
};

/* What both sides write while the programs run. */
struct control {
	/* Goes up after each change of the watched groups; what was resolved before is stale. */
	__u32 generation;
	/* Leaves of 64 pages that a look at one shared file may take. */
	__u32 leaves;
	/* Events that could not be counted because a map was full or memory short. */
	__u64 lost;
	/* Threads that started later (ns) are counted from their start, others from the first look. */
	__u64 threads_since_ns;
	/* What readahead fetched before (ns) may have been used unseen. */
	__u64 readahead_since_ns;
};

#define USERS 8
#define HOLDERS 8

/* A file that several groups use: one of these for each, when user space asks. */
struct shared_file {
	/* Ids of the groups that use it; 0: none. */
	__u64 users[USERS];
	/* Page cache of the whole file, and how much of it was looked at. */
	__u64 resident_pages;
	__u64 seen_pages;
	/* Of that, what is charged to the groups in these slots. */
	struct holder {
		__u64 slot;
		__u64 pages;
	} held[HOLDERS];
};
_Static_assert(sizeof(struct shared_file) == 208, "read as words");

#endif
