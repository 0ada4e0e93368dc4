/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * How many pages may be granted at a device now.
 *
 * Three numbers, in 1/256 pages:
 *   budget  setpoint - (dirty + in flight + credits not yet dirtied). Counted now and then; between two
 *           counts it grows by what leaves the device, as that is known, and shrinks by what is granted.
 *   pace    the limit of the rate between the background threshold and the setpoint: what leaves, times
 *           (1 + budget / room). JP_FREE below the background threshold, and while nothing is known.
 *   due     what groups have a right to over the setpoint. Writers that nobody can order (kernel
 *           threads, block devices, tasks without a weight) may hold the device there for ever; those
 *           with a weight then share what leaves with them by weight. Zero without such writers.
 * What may be granted is the smaller of budget and pace, but not less than what is due.
 *
 * Units: a rate is in 1/256 pages for each jiffy. Pure: the module and tests/pace.c compile it.
 */
#ifndef JUSTITIA_PACE_H
#define JUSTITIA_PACE_H

#include "queue.h"

#ifdef __KERNEL__
#include <linux/math64.h>
#else
#define S64_MAX INT64_MAX
static inline u64 div64_u64(u64 a, u64 b)
{
	return a / b;
}
#endif

#define JP_FREE S64_MAX
/* Pace that was not used is kept for so many jiffies. */
#define JP_KEPT 2
/* Parts of which jp_rates.share counts. */
#define JP_WHOLE 1024u

struct jp_rates {
	u64 leaves;		/* written, or dropped with deleted files; 0: not known */
	s64 room;		/* pages between the background threshold and the setpoint */
	u32 share;		/* of JP_WHOLE: what is due to groups of what leaves */
};

struct jp_budget {
	s64 budget;
	s64 pace;
	s64 due;
};

/* What is kept of a rate: of JP_KEPT jiffies, and what waits for the next grant to be whole. */
static inline s64 jp_kept(s64 kept, u64 rate, u64 elapsed, u32 cost)
{
	u64 most = rate * JP_KEPT + ((u64)cost << 8);
	s64 now = kept + (s64)(rate * (elapsed < JP_KEPT ? elapsed : JP_KEPT));

	return now < (s64)most ? now : (s64)most;
}

/* `elapsed` jiffies have passed. `counted`: the budget was counted just now. `cost` is the next grant's, or
 * a batch. */
static inline void jp_pass(struct jp_budget *b, const struct jp_rates *r, u64 elapsed, bool counted, u32 cost)
{
	s64 room = r->room << 8;
	u64 rate = r->leaves;

	if (!counted)
		b->budget += (s64)(rate * elapsed);
	b->due = r->share ? jp_kept(b->due, div64_u64(rate * r->share, JP_WHOLE), elapsed, cost) : 0;
	if (!rate || b->budget >= room) {
		b->pace = JP_FREE;
		return;
	}
	if (b->budget > 0)
		rate += div64_u64(rate * (u64)(b->budget >> 8), (u64)r->room);
	b->pace = jp_kept(b->pace == JP_FREE ? 0 : b->pace, rate, elapsed, cost);
}

/* Pages that may be granted. */
static inline s64 jp_available(const struct jp_budget *b)
{
	s64 now = b->pace < b->budget ? b->pace : b->budget;

	return (now > b->due ? now : b->due) >> 8;
}

/* So many pages were granted. */
static inline void jp_take(struct jp_budget *b, u32 pages)
{
	s64 taken = (s64)pages << 8;

	b->budget -= taken;
	if (b->pace != JP_FREE)
		b->pace -= taken;
	b->due = b->due > taken ? b->due - taken : 0;
}

/* Follows a count of pages by one part of the way; in 1/256 pages for each time it is called. */
static inline u64 jp_smoothed(u64 rate, s64 pages, u64 part)
{
	u64 now = pages > 0 ? (u64)pages * 256 : 0;

	return rate ? rate + div64_u64(now, part) - div64_u64(rate, part) : now;
}

/* What is due to groups of this weight all together: with writers that nobody orders, who count as one
 * more group of weight `others`, their share. Nothing while those take less than half of theirs: then
 * the device comes back below its setpoint. Both rates in the same unit. */
static inline u32 jp_share(u64 weights, u32 others, u64 outside_rate, u64 leaves)
{
	if (!weights || outside_rate * 2 * (weights + others) <= leaves * others)
		return 0;
	return (u32)div64_u64(weights * JP_WHOLE, weights + others);
}

#endif
