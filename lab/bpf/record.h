/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records that the programs and user space share. The Rust types are generated from these: there is no
 * second definition. Times are nanoseconds of the monotonic clock.
 */
#ifndef JUSTITIA_LAB_RECORD_H
#define JUSTITIA_LAB_RECORD_H

/* Frames that are kept of a stack, the innermost first. */
#define FRAMES 48

/* No stack was taken: there is none to take, or the kernel did not give one. */
#define NO_STACK (-1)

/* What a task does. */
enum doing {
	/* On a CPU, spinning included. */
	RUNNING = 1,
	/* Could run, and no CPU is free. */
	RUNNABLE = 2,
	/* Waits for something. */
	BLOCKED = 3,
	/* On a CPU, for a spinlock. */
	SPINNING = 4,
};

/* Since when a task does what; for what is blocked, where. */
struct state {
	__u64 since_ns;
	__s32 stack;
	enum doing doing;
};

/* What tasks did, and where. */
struct place {
	__s32 stack;
	enum doing doing;
};

/* For how long, and how often. */
struct spent {
	__u64 ns;
	__u64 times;
};

/* What user space decides before the programs are loaded. */
struct settings {
	/* Tasks in this cgroup and below it are looked at. */
	__u64 cgroup;
	/* How deep it is; the root is 0. */
	__u32 level;
	__u32 reserved;
};

/* What both sides write while the programs run. */
struct control {
	/* Only time between these counts. */
	__u64 begin_ns;
	__u64 end_ns;
	/* The programs do nothing any more. */
	__u64 stopped;
	/* Waits that found no room. */
	__u64 lost;
};

#endif
