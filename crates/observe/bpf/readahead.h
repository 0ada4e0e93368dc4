/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A task's state in the readahead code, and the pages that readahead fetched, by open file.
 *
 * A read that misses calls readahead with the range it asked for. During that call the task's state holds the
 * range, and each page that comes in is either one that was asked for (missed) or one that was fetched ahead.
 * Pages fetched ahead are remembered with the open file, as one bit per page in blocks of 64. When such a
 * page is asked for the first time, it is neither hit nor miss, and its bit is cleared.
 *
 * A read must not pay for that when nothing was fetched ahead. A file that never read ahead is therefore not
 * looked up at all. Before a block is looked up, one byte of a table tells whether it can hold anything. Two
 * blocks that share a byte may hide each other: a few pages of readahead then count as hits. The same may
 * happen when two threads read one open file at the same time.
 *
 * Units: page indexes; ranges are [lo, hi).
 */
#ifndef JUSTITIA_READAHEAD_H
#define JUSTITIA_READAHEAD_H

#include "identity.h"
#include "reuse.h"

#define BLOCK_BITS 6
#define BLOCK (1ull << BLOCK_BITS)
/* Blocks of one call that are looked at, at most. Pages fetched ahead lie at its start. */
#define MAX_BLOCKS 64

struct range {
	__u64 lo;
	__u64 hi;
};

/* State of a task within a call; all zero most of the time. */
struct doing {
	/* Owner of the place: thread group and thread; 0: free. Means nothing in the map. */
	__u64 thread;
	/* The open file it reads ahead for; 0: none. Only compared, and used as a key. */
	__u64 file;
	__u64 mapping;
	/* Pages that its read asked for. */
	struct range asked;
	/* The current run of pages that came in without being asked for. */
	struct range ahead;
	/* The current run of pages that came in and were asked for. */
	struct range missed;
	/* In direct reclaim since (ns); 0: not. */
	__u64 reclaiming_since;
	/* Asleep for memory.high since (ns); 0: not. */
	__u64 throttled_since;
	__u64 reclaimed_in_throttle;
	/* Address of a fault that has to be tried again with more locks held; 0: none. */
	__u64 retried_address;
	/* In a file system's fault handler: readahead is then not that of a read. */
	__u32 faulting;
};

/*
 * The low bits of a thread's number select a place for its state. If another thread has the place, the state
 * is in a map, which costs several times as much. A place is given back when there is nothing to remember. A
 * thread that ends in the middle of something keeps its place: a later thread with the same low bits is
 * slower, but still right.
 *
 * Not task storage: that allocates memory, which is not possible here on every machine (Linux 7 needs
 * cmpxchg16b for it).
 */
#define PLACES 4096
/* In a section of its own, which user space makes shorter. */
static struct doing places[PLACES] SEC(".bss.places");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct doing);
} doing SEC(".maps");

/* Number of threads that read ahead, by the low bits of the thread's number. Others need no lookup. */
static __u32 busy[PLACES];

struct block_key {
	__u64 file;
	__u64 block;
};

/* Pages fetched ahead and not yet asked for. */
struct block {
	__u64 pages;
	__u64 since_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct block_key);
	__type(value, struct block);
} prefetched SEC(".maps");

/* struct file * -> when it first read ahead. Older blocks are of an earlier file at that address. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, __u64);
} readers SEC(".maps");

/* Nonzero if `prefetched` may hold a block with this hash. */
#define GATES 32768
static volatile __u8 gates[GATES];

static __always_inline __u32 *busy_with(__u64 thread)
{
	return &busy[thread % PLACES];
}

static __always_inline struct doing *place_of(__u64 thread)
{
	return &places[thread & settings.place_mask];
}

/* This thread's state, if it has one. */
static __always_inline struct doing *doing_of(__u64 thread)
{
	struct doing *place = place_of(thread);

	if (place->thread == thread)
		return place;
	return bpf_map_lookup_elem(&doing, &thread);
}

static __always_inline struct doing *doing_now(void)
{
	return doing_of(bpf_get_current_pid_tgid());
}

/* The current task's state, created if there is none. */
static __always_inline struct doing *doing_new(void)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct doing *task = doing_of(thread), none = {};
	struct doing *place = place_of(thread);

	if (task)
		return task;
	if (!__sync_val_compare_and_swap(&place->thread, 0, thread))
		return place;
	bpf_map_update_elem(&doing, &thread, &none, BPF_NOEXIST);
	task = bpf_map_lookup_elem(&doing, &thread);
	if (!task)
		lose_event();
	return task;
}

/* Something ended: gives the place back if there is nothing else to remember. */
static __always_inline void done_with(struct doing *task)
{
	__u64 thread = task->thread;

	/* All other fields must be seen as zero before the place is seen as free: this swap orders them. */
	if (!task->file && !task->reclaiming_since && !task->throttled_since &&
	    !task->retried_address && !task->faulting)
		__sync_val_compare_and_swap(&task->thread, thread, 0);
}

static __always_inline volatile __u8 *gate(__u64 file, __u64 block)
{
	return &gates[hash(lower_half(file) + block * 0x9e3779b97f4a7c15ull) >> 49];
}

/* The bits of [lo, hi) that lie in this block. */
static __always_inline __u64 bits_of(__u64 block, __u64 lo, __u64 hi)
{
	__u64 first = block << BLOCK_BITS;
	__u64 from = lo > first ? lo - first : 0;
	__u64 to = hi < first + BLOCK ? hi - first : BLOCK;

	if (from >= to)
		return 0;
	return (~0ull >> (BLOCK - (to - from))) << from;
}

static __always_inline __u64 ones(__u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555ull;
	bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return bits * 0x0101010101010101ull >> 56;
}

/* True if a block is of an earlier file at this address, or may have been used unseen. */
static __always_inline bool is_stale(struct block *block, __u64 file)
{
	__u64 *first = bpf_map_lookup_elem(&readers, &file);

	return (first && block->since_ns < *first) || block->since_ns < control.readahead_since_ns;
}

/* Removes the pages [lo, hi) from those fetched ahead; returns how many of them there were. */
static __noinline __u64 take(__u64 file, __u64 lo, __u64 hi)
{
	struct block_key key = { .file = file, .block = lo >> BLOCK_BITS };
	__u64 taken = 0;

	for (int i = 0; i < MAX_BLOCKS; i++, key.block++) {
		volatile __u8 *some = gate(file, key.block);
		struct block *block;
		__u64 bits;

		if (key.block << BLOCK_BITS >= hi)
			break;
		if (!*some)
			continue;
		block = bpf_map_lookup_elem(&prefetched, &key);
		if (!block) {
			*some = 0;
			continue;
		}
		if (is_stale(block, file)) {
			block->pages = 0;
			continue;
		}
		bits = block->pages & bits_of(key.block, lo, hi);
		taken += ones(bits);
		block->pages &= ~bits;
		if (!block->pages) {
			*some = 0;
			bpf_map_delete_elem(&prefetched, &key);
		}
	}
	return taken;
}

/* Remembers that the pages [lo, hi) were fetched ahead. */
static __noinline int put(__u64 file, __u64 lo, __u64 hi)
{
	struct block_key key = { .file = file, .block = lo >> BLOCK_BITS };
	__u64 now = bpf_ktime_get_ns();

	for (int i = 0; i < MAX_BLOCKS; i++, key.block++) {
		struct block *block;
		__u64 bits;

		if (key.block << BLOCK_BITS >= hi)
			break;
		bits = bits_of(key.block, lo, hi);
		block = bpf_map_lookup_elem(&prefetched, &key);
		if (block) {
			if (is_stale(block, file))
				block->pages = 0;
			block->pages |= bits;
			block->since_ns = now;
		} else {
			struct block fetched = { .pages = bits, .since_ns = now };

			if (bpf_map_update_elem(&prefetched, &key, &fetched, BPF_ANY))
				lose_event();
		}
		*gate(file, key.block) = 1;
	}
	return 0;
}

/* A read entered the readahead code. */
static __always_inline void readahead_begins(struct readahead_control *ractl, unsigned long wanted)
{
	struct file *file = ractl->file;
	__u64 key = (__u64)file;
	struct doing *task;

	/* Readahead for something other than the file's contents, such as directories of ext4. */
	if (!file || ractl->mapping != file->f_mapping || !mine())
		return;
	task = doing_new();
	if (!task || task->faulting)
		return;
	if (!task->file)
		__sync_fetch_and_add(busy_with(bpf_get_current_pid_tgid()), 1);
	task->file = key;
	task->mapping = (__u64)ractl->mapping;
	task->asked.lo = ractl->_index;
	task->asked.hi = ractl->_index + wanted;
	task->ahead.lo = task->ahead.hi = 0;
	task->missed.lo = task->missed.hi = 0;
	/* This file never read ahead, so known blocks are of an earlier file at this address. */
	if (!ractl->ra->size) {
		__u64 now = bpf_ktime_get_ns();

		bpf_map_update_elem(&readers, &key, &now, BPF_ANY);
	}
}

static __always_inline void readahead_ends(void)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct doing *task;

	if (!*busy_with(thread))
		return;
	task = doing_of(thread);
	if (!task || !task->file)
		return;
	__sync_fetch_and_add(busy_with(thread), -1);
	/* A page that was fetched ahead, evicted since and is missed now counts as missed. */
	if (task->missed.hi)
		take(task->file, task->missed.lo, task->missed.hi);
	if (task->ahead.hi)
		put(task->file, task->ahead.lo, task->ahead.hi);
	task->file = 0;
	done_with(task);
}

/* Extends a run of pages of one kind. A gap ends the run. */
static __always_inline void extend(struct range *run, __u64 lo, __u64 hi, __u64 file, bool ahead)
{
	if (lo >= hi)
		return;
	if (run->hi == lo) {
		run->hi = hi;
		return;
	}
	if (run->hi && ahead)
		put(file, run->lo, run->hi);
	else if (run->hi)
		take(file, run->lo, run->hi);
	run->lo = lo;
	run->hi = hi;
}

/* The pages [lo, hi) came in. */
static __always_inline void pages_came(struct counters *count, struct address_space *mapping, __u64 lo,
				       __u64 hi)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct doing *task;
	__u64 from, to;

	add(&count->inserted_pages, hi - lo);
	if (!*busy_with(thread))
		return;
	task = doing_of(thread);
	if (!task || !task->file || task->mapping != (__u64)mapping)
		return;
	add(&count->fetched_pages, hi - lo);
	touch(count, mapping->host, lo, hi, FETCHED);
	/* The part that was asked for; if there is none, it is empty at one end. */
	from = task->asked.lo < lo ? lo : task->asked.lo > hi ? hi : task->asked.lo;
	to = task->asked.hi < from ? from : task->asked.hi > hi ? hi : task->asked.hi;
	if (to > from)
		add(&count->missed_pages, to - from);
	extend(&task->missed, from, to, task->file, 0);
	extend(&task->ahead, lo, from, task->file, 1);
	extend(&task->ahead, to, hi, task->file, 1);
}

/*
 * Size of the file's last readahead. Where the state is in a union, only a cast tells the verifier which
 * member is meant; it costs no instruction.
 */
static __always_inline unsigned int readahead_size(struct file *file)
{
	struct file_ra_state *state = &file->f_ra;

	if (bpf_ksym_exists(bpf_rdonly_cast))
		state = bpf_rdonly_cast(state, bpf_core_type_id_kernel(struct file_ra_state));
	return state->size;
}

/* Number of the pages [lo, hi) that a read asked for and the file's own readahead had fetched. */
static __always_inline __u64 first_use(struct file *file, __u64 lo, __u64 hi)
{
	if (!readahead_size(file))
		return 0;
	/* Most calls stay within a block. */
	if (lo >> BLOCK_BITS == (hi - 1) >> BLOCK_BITS && !*gate((__u64)file, lo >> BLOCK_BITS))
		return 0;
	return take((__u64)file, lo, hi);
}

#endif
