/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records that the programs and user space share. The Rust types are generated from these definitions. Times
 * are nanoseconds of the monotonic clock.
 */
#ifndef JUSTITIA_LAB_RECORD_H
#define JUSTITIA_LAB_RECORD_H

/* Frames kept of a stack, innermost first. */
#define FRAMES 48

/* There is no stack, or the kernel did not provide one. */
#define NO_STACK (-1)

/* State of a task. */
enum doing {
	/* On a CPU, spinning included. */
	RUNNING = 1,
	/* Could run, but no CPU is free. */
	RUNNABLE = 2,
	BLOCKED = 3,
	/* On a CPU, spinning on a spinlock. */
	SPINNING = 4,
};

/* A task's state, its beginning, and the kernel stack if the task is blocked. */
struct state {
	__u64 since_ns;
	__s32 stack;
	enum doing doing;
};

/* Key: a state of tasks, and the kernel stack. */
struct place {
	__s32 stack;
	enum doing doing;
};

/* Total duration, and number of times. */
struct spent {
	__u64 ns;
	__u64 times;
};

/* Settings that user space makes before the programs are loaded. */
struct settings {
	/* Tasks in this cgroup and below it are profiled. */
	__u64 cgroup;
	/* Its depth; the root is 0. */
	__u32 level;
	__u32 reserved;
};

/* Shared state that both sides write while the programs run. */
struct control {
	/* Only time in this window counts. */
	__u64 begin_ns;
	__u64 end_ns;
	/* The programs do nothing from now on. */
	__u64 stopped;
	/* Waits that found no room in a map. */
	__u64 lost;
};

#endif
