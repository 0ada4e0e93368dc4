/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records that the programs and user space share. The Rust types are generated from these: there
 * is no second definition. Sizes are asserted on both sides.
 *
 * Units are in the names; a page is the kernel's base page.
 */
#ifndef JUSTITIA_RECORD_H
#define JUSTITIA_RECORD_H

/* Counts of one group by the CPUs of a lane; cumulative. Two cache lines, so that lanes share none. */
struct counters {
	__u64 read_bytes;
	__u64 write_bytes;
	/* Pages that buffered reads asked for. */
	__u64 asked_pages;
	/* Asked pages that were not there when the call asked. */
	__u64 missed_pages;
	/* Asked pages that the same open file's readahead had fetched, when first asked for. */
	__u64 readahead_pages;
	/* Pages that reads had to fetch: missed, and fetched ahead. */
	__u64 fetched_pages;
	/* Pages that reads and faults brought into the page cache; at the tracepoint, also those of writes. */
	__u64 inserted_pages;
	/* Pages charged to the group and evicted by reclaim. */
	__u64 evicted_pages;
	__u64 mmap_faults;
	__u64 mmap_major_faults;
	__u64 reclaim_ns;
	__u64 throttled_ns;
	/*
	 * Bytes that read-like system calls of threads returned, from any source: the kernel's own count, as
	 * of the last run of the iterator over threads.
	 */
	__u64 rchar;
	/* Written by user space, the same in each lane: sampling rate in 1/2^32 << 32 | SAMPLE_MISSES | the
	 * group's number in `reuses`; 0: no sample. */
	__u64 sample;
	__u64 reserved[2];
};
_Static_assert(sizeof(struct counters) == 128, "two cache lines");

/* Settings that user space writes before the programs are loaded. */
struct settings {
	/* Records of a slot, side by side, each shared by some of the CPUs; a power of two. */
	__u32 lanes;
	__u32 page_shift;
	/* Places of threads, less one; a power of two less one. */
	__u32 place_mask;
	/* Right shift from a hash to the number of a set of files. */
	__u32 set_shift;
	/* Entries of asked_at less one: a power of two less one. */
	__u32 asked_mask;
};

/* The record that both sides write while the programs run. */
struct control {
	/* Goes up after each change of the watched groups; what was resolved before is stale. */
	__u32 generation;
	/* Leaves of 64 pages that a look at one shared file may take. */
	__u32 leaves;
	/* Events that could not be counted because a map was full or memory short. */
	__u64 lost;
	/* Threads that started later (ns) are counted from their start, others from the first look. */
	__u64 threads_since_ns;
	/* Pages fetched ahead before this (ns) may have been used unseen. */
	__u64 readahead_since_ns;
};

/* Eighths of an octave, from one tick on; the last bin has all older ages. */
#define REUSE_BINS 192

/* Reuse times of the sampled pages of one group. Counts only grow. */
struct reuse {
	/* Sampled accesses: the group's ticks. */
	__u64 clock;
	/* Sampled accesses that were reads. */
	__u64 reads;
	/* Written by user space: observation began after this tick. */
	__u32 since;
	__u32 reserved;
	/* Pages asked for again by reads, by age. */
	__u32 by_reads[REUSE_BINS];
	/* Pages asked for again by writes, by age. */
	__u32 by_writes[REUSE_BINS];
	/* Pages evicted from asked_at, by age. */
	__u32 lost[REUSE_BINS];
};
_Static_assert(sizeof(struct reuse) == 24 + 3 * 4 * REUSE_BINS, "read as words");

#define USERS 8
#define HOLDERS 8

/* A file that several groups use: written once for each such file, when user space asks. */
struct shared_file {
	/* IDs of the groups that use it; 0: none. */
	__u64 users[USERS];
	/* Page cache of the whole file. */
	__u64 resident_pages;
	/* Pages of it that were looked at. */
	__u64 seen_pages;
	/* The pages looked at that are charged to the groups in these slots. */
	struct holder {
		__u64 slot;
		__u64 pages;
	} held[HOLDERS];
};
_Static_assert(sizeof(struct shared_file) == 208, "read as words");

#endif
