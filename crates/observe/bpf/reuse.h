/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reuse times of sampled pages, from which user space computes a curve of hit ratios for each group.
 *
 * The sample is spatial: a hash of the file and the number of a block of 16 pages decide whether the block
 * is in its group's sample. A read outside the sample costs the hash, and a multiplication and a comparison
 * for each block. For each page in the sample, asked_at holds the time of the group's last access; the next
 * access counts the page's age in a histogram.
 *
 * Time is the group's own: each sampled access is one tick, so an idle group's pages do not age. A page
 * that two groups use is a separate page for each.
 *
 * asked_at is direct-mapped. A page that evicts another one from its place counts the other's age as lost;
 * user space treats lost pages like pages that are still in the table (censored observations).
 *
 * Units: ages in ticks; bins are eighths of an octave.
 */
#ifndef JUSTITIA_REUSE_H
#define JUSTITIA_REUSE_H

#include "identity.h"

#define SAMPLE_BITS 4

/*
 * In counters.sample: the group misses nearly all that it asks for, so its accesses are the pages that its
 * reads fetch. These are seen also while no program runs behind reads.
 */
#define SAMPLE_MISSES 0x100

enum access {
	ASKED,
	FETCHED,
	WRITTEN,
};

/*
 * Until Linux 6.5, the callers of a write advanced its position. The series that ended this removed this
 * member.
 */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct___old {
	void *backing_dev_info;
};
#pragma clang attribute pop

/* Histograms of groups with a curve, by the group's number in counters.sample. User space sizes the map. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reuse);
} reuses SEC(".maps");

/* time << 32 | number of the group << 24 | tag; 0: free. User space sizes the map. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} asked_at SEC(".maps");

#define TAG_MASK 0xffffffull

static __always_inline __u64 mix(__u64 number)
{
	number = hash(number);
	return hash(number ^ number >> 32);
}

/*
 * The position of a block between 0 and 1, in 1/2^32; a block is in the sample if its position is below the
 * sampling rate. Multiples of the golden ratio spread evenly, so the sample has almost exactly its share of
 * each file's blocks. With a random hash the share would vary, and all sizes of the curve would be wrong by
 * as much.
 */
static __always_inline __u32 lot_of(__u64 file, __u64 block)
{
	return (__u32)(file >> 32) + (__u32)block * 0x9e3779b9u;
}

static __always_inline __u32 bin_of(__u32 age)
{
	__u64 scaled = (__u64)age << 3;
	__u32 octave = 0;

	if (!age)
		return 0;
	if (age >= 1u << (REUSE_BINS / 8))
		return REUSE_BINS - 1;
	for (__u32 step = 16; step; step >>= 1) {
		if (age >> octave >> step)
			octave += step;
	}
	return octave * 8 + (scaled >> octave & 7);
}

/* Counts an age in one of a group's histograms, unless the page was last seen before observation began. */
static __always_inline bool count_age(struct reuse *reuse, __u32 *bins, __u32 seen, __u32 now)
{
	__u32 bin = bin_of(now - seen);

	if ((__s32)(seen - *(volatile __u32 *)&reuse->since) <= 0)
		return 0;
	if (bin < REUSE_BINS)
		__sync_fetch_and_add(&bins[bin], 1);
	return 1;
}

/* A group accessed a page of its sample. A global function: the verifier checks it once, not per caller. */
__noinline int touch_page(__u32 group, __u64 page, __u32 writes)
{
	struct reuse *reuse = bpf_map_lookup_elem(&reuses, &group), *other;
	__u64 key = mix(page + group);
	__u32 at = key & settings.asked_mask;
	__u64 *place = bpf_map_lookup_elem(&asked_at, &at);
	__u64 tag = (__u64)group << 24 | (key >> 40 & TAG_MASK);
	__u64 old;
	__u32 now;

	if (!reuse || !place)
		return 0;
	now = __sync_fetch_and_add(&reuse->clock, 1) + 1;
	if (!writes)
		add(&reuse->reads, 1);
	old = __sync_lock_test_and_set(place, (__u64)now << 32 | tag);
	if ((__u32)old == (__u32)tag) {
		count_age(reuse, writes ? reuse->by_writes : reuse->by_reads, old >> 32, now);
		return 0;
	}
	group = (__u32)old >> 24;
	other = bpf_map_lookup_elem(&reuses, &group);
	if (old && other)
		count_age(other, other->lost, old >> 32, other->clock);
	return 0;
}

struct touched {
	__u64 file;
	/* Pages. */
	__u64 lo;
	__u64 hi;
	/* The first page of the range in the current block. */
	__u64 first;
	__u32 below;
	__u32 group;
	__u32 writes;
};

/* The nth page of the range in the current block. */
static long touch_nth(__u32 nth, struct touched *touched)
{
	touch_page(touched->group, touched->file + touched->first + nth, touched->writes);
	return 0;
}

/* The pages of [lo, hi) in the nth block of the range. */
static long touch_block(__u32 nth, struct touched *touched)
{
	__u64 block = (touched->lo >> SAMPLE_BITS) + nth;
	__u64 end = (block + 1) << SAMPLE_BITS;

	if (lot_of(touched->file, block) >= touched->below)
		return 0;
	touched->first = block << SAMPLE_BITS;
	if (touched->first < touched->lo)
		touched->first = touched->lo;
	if (end > touched->hi)
		end = touched->hi;
	bpf_loop(end - touched->first, touch_nth, touched, 0);
	return 0;
}

/* A group accessed the pages [lo, hi) of a file. */
static __always_inline void touch(struct counters *count, struct inode *inode, __u64 lo, __u64 hi,
				  enum access access)
{
	__u64 sample = *(volatile __u64 *)&count->sample;
	struct touched touched;

	if (!sample || access == (sample & SAMPLE_MISSES ? ASKED : FETCHED))
		return;
	touched.file = ((__u64)inode->i_generation << 32) + inode->i_sb->s_dev;
	touched.file = mix(touched.file ^ (__u64)inode->i_ino << 16);
	touched.below = sample >> 32;
	if (lo >> SAMPLE_BITS == (hi - 1) >> SAMPLE_BITS &&
	    lot_of(touched.file, lo >> SAMPLE_BITS) >= touched.below)
		return;
	touched.lo = lo;
	touched.hi = hi;
	touched.first = 0;
	touched.group = (__u32)sample & 0xff;
	touched.writes = access == WRITTEN;
	bpf_loop(((hi - 1) >> SAMPLE_BITS) - (lo >> SAMPLE_BITS) + 1, touch_block, &touched, 0);
}

/* A write completed. With `callers_move`, its position is still that of its start. */
static __always_inline void touch_written(struct counters *count, struct kiocb *iocb, __u64 bytes,
					  bool callers_move)
{
	__u32 shift = settings.page_shift;
	__u64 start = iocb->ki_pos;

	if (!callers_move)
		start -= bytes;
	touch(count, iocb->ki_filp->f_inode, start >> shift, ((start + bytes - 1) >> shift) + 1, WRITTEN);
}

#endif
