/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bytes that threads read, by the kernel's own count (task->ioac.rchar), while no program runs behind each
 * read.
 *
 * User space runs the iterator now and then; a thread that ends is counted once more at its end. Each look
 * swaps the thread's count of the last look for the present one, so each byte is counted once, whoever looks.
 * signal->ioac is not used: the totals of a child that was waited for land there in its parent.
 *
 * A thread counts for the group it is in when it is looked at.
 */
#ifndef JUSTITIA_THREADS_H
#define JUSTITIA_THREADS_H

#include "identity.h"

struct thread {
	__u64 start_ns;
	__u64 rchar;
};

/* Thread ID -> its count at the last look; only for threads of watched groups. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline void look_at(struct task_struct *task)
{
	__u32 generation = *(volatile __u32 *)&control.generation;
	struct cgroup *cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	__u32 slot = resolve(BPF_CORE_READ(cgroup, kn, id), cgroup, generation);
	struct counters *count = counters_of(slot, bpf_get_smp_processor_id());
	struct thread now = { .start_ns = task->start_time, .rchar = task->ioac.rchar };
	__u32 id = task->pid;
	struct thread *seen;
	__u64 before;

	if (!count)
		return;
	seen = bpf_map_lookup_elem(&threads, &id);
	if (seen && seen->start_ns == now.start_ns) {
		before = __sync_lock_test_and_set(&seen->rchar, now.rchar);
	} else {
		before = now.start_ns > control.threads_since_ns ? 0 : now.rchar;
		/* Counted at once it would be counted again at each look. */
		if (bpf_map_update_elem(&threads, &id, &now, BPF_ANY)) {
			lose_event();
			return;
		}
	}
	if (now.rchar > before)
		add(&count->rchar, now.rchar - before);
}

SEC("iter/task")
int threads_read(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task && !(task->flags & PF_EXITING))
		look_at(task);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(thread_ends, struct task_struct *task)
{
	__u32 id = task->pid;

	look_at(task);
	bpf_map_delete_elem(&threads, &id);
	return 0;
}

#endif
