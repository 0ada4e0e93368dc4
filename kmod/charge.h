/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * How many pages a task has dirtied since it was charged last, and how long it has waited for them.
 *
 * The kernel counts twice what a task dirties. `written` (ioac.write_bytes, in pages) goes on for ever, but has
 * in it what the task writes past the page cache (O_DIRECT). `dirtied` (nr_dirtied) has only dirtied pages, but
 * is set back when the kernel looks whether to throttle, which `looked` (dirty_paused_when) tells; pages that
 * tasks left behind which are gone may be added to it. All of them go round.
 *
 * Not each call of the kernel's looks here: a call before which fewer than JC_CHUNK pages were written goes
 * straight on, and the counts may be set back in it.
 *
 * A wait is bounded for a write(2), in which a task may be charged often. Which one it is in the kernel's count of
 * those that ended tells (ioac.syscw). Page faults are no part of one. Where the kernel does not count (io_uring's
 * workers, splice), waits less than a while apart are taken for one write's.
 *
 * Pure: the module and tests/charge.c compile it.
 */
#ifndef JUSTITIA_CHARGE_H
#define JUSTITIA_CHARGE_H

#include "queue.h"

/* So many pages are charged at once, at least. */
#define JC_CHUNK 16u

/* The counts of a task at one time. */
struct jc_counts {
	u32 written, dirtied, looked;
};

/* Of the pages written between two times, those that were dirtied: exactly, but for JC_CHUNK - 1 that were
 * written past the cache, for each time that the count was set back. */
static inline u32 jc_pending(struct jc_counts then, struct jc_counts now)
{
	u32 written = now.written - then.written, dirtied = now.dirtied - then.dirtied;

	if ((int)dirtied < 0 || now.looked != then.looked) {
		/* Set back in a call that went straight on: before it came fewer than JC_CHUNK. */
		u32 before = written > now.dirtied ? written - now.dirtied : 0;

		dirtied = now.dirtied + (before < JC_CHUNK ? before : JC_CHUNK - 1);
	}
	dirtied = written < dirtied ? written : dirtied;
	/* So many between two calls are another task's, for which this one was taken. */
	return dirtied < JQ_COST_MAX ? dirtied : JC_CHUNK;
}

/* What a task has waited, in jiffies. */
struct jc_wait {
	u32 write;		/* writes that had ended */
	u32 waited;		/* in the one after them */
	u32 ended;		/* when the last wait did */
};

/* Jiffies waited already in the write that a task is in; `fault`: it is in none. */
static inline u32 jc_waited(struct jc_wait then, u32 write, bool fault, u32 now, u32 a_while)
{
	return fault || then.write != write || now - then.ended > a_while ? 0 : then.waited;
}

#endif
