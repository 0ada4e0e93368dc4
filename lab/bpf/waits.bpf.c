// SPDX-License-Identifier: GPL-2.0
/*
 * Time of the load's tasks in a window, by state and place: on a CPU, waiting for one, blocked, spinning.
 *
 * Each task has one state at a time. The scheduler's tracepoints move it to the next state, and the time in
 * between is added to its place. The times of a task therefore add up to the window, except for tasks that
 * did not switch before it began. A place is the state and, if the task was blocked, the kernel stack at
 * that moment; user space interprets the stacks.
 *
 *   RUNNING --switched out, preempted--> RUNNABLE --switched in--> RUNNING
 *   RUNNING --switched out, asleep-----> BLOCKED --woken--> RUNNABLE
 *
 * Spinning is counted separately, and is part of RUNNING: it is the time in the slow path of queued
 * spinlocks. The tracepoint lock:contention_begin would miss the first waiter, who spins on the pending bit,
 * and with two CPUs there is no other.
 *
 * Context: tracepoints with the run queue's lock held; fentry and fexit wherever the kernel takes a spinlock,
 * on exit with that lock held. Maps are preallocated. The programs at the slow path do nothing while another
 * one runs on their CPU, because the lock may be one of our own maps'.
 */
#include <task.h>
#include "record.h"

char LICENSE[] SEC("license") = "GPL";

struct qspinlock;

const volatile struct settings settings = {};

/* A section of its own, so that user space can write it as a map with one entry. */
struct control control SEC(".data.control") = {};

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, FRAMES * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct place);
	__type(value, struct spent);
} places SEC(".maps");

/* Thread -> what it does; only threads of the load. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct state);
} states SEC(".maps");

/* One for each context that can interrupt another; queued spinlocks have the same number of nodes per CPU. */
#define CONTEXTS 4

struct spinning {
	struct {
		__u64 lock;
		__u64 since_ns;
	} on[CONTEXTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct spinning);
} spinning SEC(".maps");

/* Number of our programs that run on a CPU. With more CPUs than this, CPUs share a counter and some spinning
 * is missed. */
#define MAX_CPUS 512
static __u32 inside[MAX_CPUS];

static __always_inline volatile __u32 *mine(void)
{
	return &inside[bpf_get_smp_processor_id() & (MAX_CPUS - 1)];
}

static __always_inline bool is_of_the_load(struct task_struct *task)
{
	struct cgroup *cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	__u64 ancestors = (__u64)cgroup + bpf_core_field_offset(cgroup->ancestors);
	struct cgroup *ancestor = NULL;
	__u32 level = settings.level;

	if (BPF_CORE_READ(cgroup, level) < (int)level)
		return false;
	bpf_probe_read_kernel(&ancestor, sizeof(ancestor),
			      (void *)(ancestors + level * sizeof(ancestor)));
	return BPF_CORE_READ(ancestor, kn, id) == settings.cgroup;
}

static __always_inline __s32 stack_now(void *ctx)
{
	long stack = bpf_get_stackid(ctx, &stacks, 0);

	return stack < 0 ? NO_STACK : stack;
}

/* Adds the part of this time that is in the window. */
static __always_inline void spend(enum doing doing, __s32 stack, __u64 from, __u64 to)
{
	struct place place = { .stack = stack, .doing = doing };
	struct spent none = {}, *spent;

	if (from < control.begin_ns)
		from = control.begin_ns;
	if (to > control.end_ns)
		to = control.end_ns;
	if (from >= to)
		return;
	spent = bpf_map_lookup_elem(&places, &place);
	if (!spent) {
		bpf_map_update_elem(&places, &place, &none, BPF_NOEXIST);
		spent = bpf_map_lookup_elem(&places, &place);
	}
	if (!spent) {
		__sync_fetch_and_add(&control.lost, 1);
		return;
	}
	/* An interrupt may spin on this CPU in between. */
	__sync_fetch_and_add(&spent->ns, to - from);
	__sync_fetch_and_add(&spent->times, 1);
}

static __always_inline void goes_to(struct state *state, enum doing doing, __s32 stack, __u64 now)
{
	spend(state->doing, state->stack, state->since_ns, now);
	state->since_ns = now;
	state->stack = stack;
	state->doing = doing;
}

static __always_inline void leaves(void *ctx, struct task_struct *task, bool asleep, __u64 now)
{
	enum doing doing = asleep ? BLOCKED : RUNNABLE;
	__s32 stack = asleep ? stack_now(ctx) : NO_STACK;
	struct state first = { .since_ns = now, .stack = stack, .doing = doing };
	__u32 thread = task->pid;
	struct state *state = bpf_map_lookup_elem(&states, &thread);

	if (state)
		goes_to(state, doing, stack, now);
	else if (bpf_map_update_elem(&states, &thread, &first, BPF_NOEXIST))
		__sync_fetch_and_add(&control.lost, 1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempted, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	volatile __u32 *running = mine();
	struct state *state;
	__u32 thread;
	__u64 now;

	if (control.stopped)
		return 0;
	*running += 1;
	now = bpf_ktime_get_ns();
	if (is_of_the_load(prev))
		leaves(ctx, prev, !preempted && prev_state, now);
	thread = next->pid;
	state = bpf_map_lookup_elem(&states, &thread);
	if (state)
		goes_to(state, RUNNING, NO_STACK, now);
	*running -= 1;
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(woken, struct task_struct *task)
{
	volatile __u32 *running = mine();
	__u32 thread = task->pid;
	struct state *state;

	if (control.stopped)
		return 0;
	*running += 1;
	state = bpf_map_lookup_elem(&states, &thread);
	/* A task on its way to sleep has not left its CPU yet. */
	if (state && state->doing == BLOCKED)
		goes_to(state, RUNNABLE, NO_STACK, bpf_ktime_get_ns());
	*running -= 1;
	return 0;
}

SEC("fentry/native_queued_spin_lock_slowpath")
int BPF_PROG(spin_begins, struct qspinlock *lock)
{
	struct spinning *spins;
	__u32 zero = 0;

	if (control.stopped || *mine())
		return 0;
	spins = bpf_map_lookup_elem(&spinning, &zero);
	if (!spins || !is_of_the_load(bpf_get_current_task_btf()))
		return 0;
	for (int i = 0; i < CONTEXTS; i++) {
		/* A slot whose end was missed is reused when its lock is taken again. */
		if (spins->on[i].lock && spins->on[i].lock != (__u64)lock)
			continue;
		spins->on[i].since_ns = bpf_ktime_get_ns();
		spins->on[i].lock = (__u64)lock;
		return 0;
	}
	__sync_fetch_and_add(&control.lost, 1);
	return 0;
}

SEC("fexit/native_queued_spin_lock_slowpath")
int BPF_PROG(spin_ends, struct qspinlock *lock)
{
	volatile __u32 *running = mine();
	struct spinning *spins;
	__u64 now, since = 0;
	__u32 zero = 0;

	if (control.stopped || *running)
		return 0;
	spins = bpf_map_lookup_elem(&spinning, &zero);
	if (!spins)
		return 0;
	for (int i = 0; i < CONTEXTS; i++) {
		if (spins->on[i].lock != (__u64)lock)
			continue;
		since = spins->on[i].since_ns;
		spins->on[i].lock = 0;
		break;
	}
	if (!since)
		return 0;
	*running += 1;
	now = bpf_ktime_get_ns();
	if (now > control.begin_ns && since < control.end_ns)
		spend(SPINNING, stack_now(ctx), since, now);
	*running -= 1;
	return 0;
}
