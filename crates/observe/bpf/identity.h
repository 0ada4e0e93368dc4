/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Maps a cgroup to the slot of the watched group that it belongs to: itself or its nearest watched ancestor.
 * Three steps, each cheaper than the next:
 *
 *   last[cpu]   what this CPU resolved last: no helper call
 *   resolved    what any CPU resolved lately
 *   watched     looked up for the cgroup and each of its ancestors
 *
 * Invariants: IDs of cgroups are never reused, so an answer is right as long as the generation is the same.
 * User space changes `watched` first and the generation after. A program reads the generation first, so it
 * may keep a new answer under an old generation, never an old answer under a new one.
 *
 * Context: any. Programs do not migrate, but one may be preempted by another on the same CPU.
 */
#ifndef JUSTITIA_IDENTITY_H
#define JUSTITIA_IDENTITY_H

#include "kernel.h"
#include "record.h"

/* Nobody watches this cgroup. */
#define NO_SLOT 0xfffu
/*
 * Beyond this number, CPUs share entries of last[]: slower, but still right, because both words hold the
 * cgroup's ID.
 */
#define MAX_CPUS 512

const volatile struct settings settings = {};

/* A section of its own, so that user space can read and write it as a map with one entry. */
struct control control SEC(".data.control") = {};

/* User space sizes it: slots times lanes, a slot's lanes side by side. Read through mmap. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* cgroup id -> slot */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u32);
} watched SEC(".maps");

/* slot -> cgroup id; 0 while the slot is free. User space sizes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} groups SEC(".maps");

/* cgroup id -> slot << 32 | generation, one word so that it is never seen half-written */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, __u64);
} resolved SEC(".maps");

/*
 * slot << 52 | 20 bits of the generation << 32 | low half of the cgroup's ID. Both words hold the ID: if
 * preemption left a word of another cgroup, they disagree.
 */
struct last {
	__u64 cgroup;
	__u64 packed;
	/*
	 * Reads that the program behind filemap_read saw, of any group. Only that program writes this. CPUs
	 * that share the record, or a read that another one interrupts, may lose a count.
	 */
	__u64 reads;
	__u64 pad[5];
};
/* In a section of its own, which user space reads. */
struct last last[MAX_CPUS] SEC(".data.last") = {};

#define GENERATION_BITS 20
#define GENERATION_MASK ((1u << GENERATION_BITS) - 1)

static __always_inline void add(__u64 *counter, __u64 amount)
{
	/* Another program on this CPU may preempt us between load and store. */
	__sync_fetch_and_add(counter, amount);
}

static __always_inline void lose_event(void)
{
	__sync_fetch_and_add(&control.lost, 1);
}

/* The verifier allows no arithmetic on a pointer, but the copy of its lower half is a number. */
static __always_inline __u32 lower_half(__u64 pointer)
{
	__u32 low;

	asm volatile("%[low] = %[pointer]" : [low] "=w"(low) : [pointer] "w"((__u32)pointer));
	return low;
}

/* Slab objects differ in the middle bits; the multiplier spreads them over the upper ones. */
static __always_inline __u64 hash(__u64 number)
{
	return number * 0xff51afd7ed558ccdull;
}

/* State of a climb from a cgroup up to the root. */
struct climb {
	/* The array of its ancestors, itself last. */
	__u64 ancestors;
	__u32 level;
	__u32 slot;
};

/* Looks up the ancestor `up` levels above; returns 1 if it is watched. */
static long look_up(__u32 up, struct climb *climb)
{
	__u64 at = climb->ancestors + (__u64)(climb->level - up) * sizeof(struct cgroup *);
	struct cgroup *ancestor = NULL;
	__u32 *slot;
	__u64 id;

	bpf_probe_read_kernel(&ancestor, sizeof(ancestor), (void *)at);
	id = BPF_CORE_READ(ancestor, kn, id);
	slot = bpf_map_lookup_elem(&watched, &id);
	if (!slot)
		return 0;
	climb->slot = *slot;
	return 1;
}

/* The slot of the nearest watched ancestor, however deep tenants nest their cgroups. */
static __noinline __u32 nearest(struct cgroup *cgroup)
{
	struct climb climb = {
		.ancestors = (__u64)cgroup + bpf_core_field_offset(cgroup->ancestors),
		.level = BPF_CORE_READ(cgroup, level),
		.slot = NO_SLOT,
	};

	bpf_loop(climb.level + 1, look_up, &climb, 0);
	return climb.slot;
}

/* The slot of the cgroup with this ID. If `cgroup` is NULL, it is that of the current task. */
static __noinline __u32 resolve(__u64 id, struct cgroup *cgroup, __u32 generation)
{
	__u64 *known = bpf_map_lookup_elem(&resolved, &id);
	__u64 word;
	__u32 slot;

	if (known) {
		word = *(volatile __u64 *)known;
		if ((__u32)word == generation)
			return word >> 32;
	}
	if (!cgroup) {
		struct task_struct *task = bpf_get_current_task_btf();

		cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
		/* The task was moved since its id was taken. */
		if (BPF_CORE_READ(cgroup, kn, id) != id)
			return nearest(cgroup);
	}
	slot = nearest(cgroup);
	word = (__u64)slot << 32 | generation;
	bpf_map_update_elem(&resolved, &id, &word, BPF_ANY);
	return slot;
}

static __always_inline struct counters *counters_of(__u32 slot, __u32 cpu)
{
	__u32 index = slot * settings.lanes + (cpu & (settings.lanes - 1));

	/* NO_SLOT is beyond the end. */
	return bpf_map_lookup_elem(&counters, &index);
}

/* The slot of the current task's group. */
static __always_inline __u32 my_slot(__u32 cpu)
{
	__u32 generation = *(volatile __u32 *)&control.generation;
	__u64 id = bpf_get_current_cgroup_id();
	__u64 key = (__u64)(generation & GENERATION_MASK) << 32 | (__u32)id;
	volatile struct last *memory = &last[cpu % MAX_CPUS];
	__u64 packed = memory->packed;
	__u32 slot;

	if (memory->cgroup == id && (packed & ((1ull << 52) - 1)) == key) {
		slot = packed >> 52;
	} else {
		slot = resolve(id, NULL, generation);
		memory->cgroup = id;
		memory->packed = (__u64)slot << 52 | key;
	}
	return slot;
}

/* The record of this CPU's lane of the current task's group; NULL if nobody watches it. */
static __always_inline struct counters *mine(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return counters_of(my_slot(cpu), cpu);
}

/* The slot of the group that a page with this memcg_data is charged to. */
static __always_inline __u32 charged_to(__u64 data)
{
	__u32 generation = *(volatile __u32 *)&control.generation;
	struct mem_cgroup *memcg;
	struct cgroup *cgroup;

	data &= ~7ull;
	if (!data)
		return NO_SLOT;
	if (bpf_core_field_exists(((struct mem_cgroup_per_node *)0)->objcg))
		memcg = BPF_CORE_READ((struct obj_cgroup *)data, memcg);
	else
		memcg = (struct mem_cgroup *)data;
	cgroup = BPF_CORE_READ(memcg, css.cgroup);
	/* The memory controller of cgroup v1 has ids of its own. */
	if (!cgroup || BPF_CORE_READ(cgroup, root, hierarchy_id) != 0)
		return NO_SLOT;
	return resolve(BPF_CORE_READ(cgroup, kn, id), cgroup, generation);
}

/* The record of this CPU's lane of the group that this page is charged to. */
static __always_inline struct counters *owners(struct folio *folio)
{
	if (!bpf_core_field_exists(folio->memcg_data))
		return NULL;
	return counters_of(charged_to(folio->memcg_data), bpf_get_smp_processor_id());
}

#endif
