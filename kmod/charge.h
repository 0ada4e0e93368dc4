/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The number of pages that a task has dirtied since its last charge, and the time that it has waited for
 * them.
 *
 * The kernel has two counters for the pages that a task dirties. `written` (ioac.write_bytes, in pages) is
 * never reset, but includes writes past the page cache (O_DIRECT). `dirtied` (nr_dirtied) counts dirtied
 * pages only. The kernel resets it when it checks whether to throttle, which changes `looked`
 * (dirty_paused_when), and may add pages that exited tasks left behind. All three wrap.
 *
 * Not every call of the kernel's function gets here. A call goes straight to the original while fewer than
 * JC_CHUNK pages were written and the task has not dirtied `pause` pages (nr_dirtied_pause), at which the
 * kernel resets the counter. The kernel may also reset it earlier: a CPU has dirtied many pages, or the
 * device is over its limit.
 *
 * A wait is bounded per write(2), and one write(2) may be charged many times. The kernel's count of finished
 * writes (ioac.syscw) identifies the write. For io_uring's workers, where the kernel does not count, the file's
 * time of modification does: a write sets it once, before it dirties a page, and its clock ticks in every wait.
 * (A write(2) does not need it, and a shared mapping can change it meanwhile.) Page faults belong to no write.
 * Where nothing identifies the write (splice, FMODE_NOCMTIME), waits less than a while apart count as those of
 * one.
 *
 * Pure: the module and tests/charge.c compile it.
 */
#ifndef JUSTITIA_CHARGE_H
#define JUSTITIA_CHARGE_H

#include "queue.h"

/* Smallest charge, in pages. */
#define JC_CHUNK 16u

/* A task's counters at one time. */
struct jc_counts {
	u32 written, dirtied, looked;
};

/* The pages among those written between two times that were dirtied. Exact, except that for each early reset
 * of the counter up to JC_CHUNK - 1 pages written past the cache are included. */
static inline u32 jc_pending(struct jc_counts then, struct jc_counts now)
{
	u32 written = now.written - then.written, dirtied = now.dirtied - then.dirtied;

	if ((int)dirtied < 0 || now.looked != then.looked) {
		/* Reset in a call that went straight to the original: fewer than JC_CHUNK pages came before
		 * it. */
		u32 before = written > now.dirtied ? written - now.dirtied : 0;

		dirtied = now.dirtied + (before < JC_CHUNK ? before : JC_CHUNK - 1);
	}
	dirtied = written < dirtied ? written : dirtied;
	/* A larger number between two calls means that the entry was another task's. */
	return dirtied < JQ_COST_MAX ? dirtied : JC_CHUNK;
}

/* The pages that a task may write before one of its calls has to get here. `pending`: pages not charged yet,
 * fewer than JC_CHUNK; `dirtied`: the kernel's count. */
static inline u32 jc_quiet(u32 pending, u32 dirtied, u32 pause)
{
	u32 left = dirtied < pause ? pause - dirtied : 0;

	return left < JC_CHUNK - pending ? left : JC_CHUNK - pending;
}

/* A task's wait, in jiffies. */
struct jc_wait {
	u32 write;		/* identifies the write */
	u32 waited;		/* in that write */
	u32 ended;		/* end of the last wait */
};

/* Jiffies that a task has already waited in its current write; `fault`: it is in no write. */
static inline u32 jc_waited(struct jc_wait then, u32 write, bool fault, u32 now, u32 a_while)
{
	return fault || then.write != write || now - then.ended > a_while ? 0 : then.waited;
}

#endif
