/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The number of pages that may be granted at a device now.
 *
 * Three amounts, in 1/256 pages:
 *   budget  setpoint - (dirty + in flight + credits not yet dirtied). Counted now and then; between two
 *           counts it grows by the pages estimated to leave the device, and shrinks by those granted.
 *   pace    limits the rate between the background threshold and the setpoint: what leaves, times
 *           (1 + budget / room). JP_FREE below the background threshold, and while the rate is unknown.
 *   due     what groups are entitled to above the setpoint. Writers that cannot be ordered (kernel
 *           threads, block devices, tasks without a weight) may hold the device there forever; groups
 *           then share with them, by weight, what leaves. Zero without such writers.
 * The smaller of budget and pace may be granted, but not less than what is due.
 *
 * Units: a rate is in 1/256 pages per jiffy. Pure: the module and tests/pace.c compile it.
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
/* Unused pace is kept for this many jiffies. */
#define JP_KEPT 2
/* Denominator of jp_rates.share. */
#define JP_WHOLE 1024u

struct jp_rates {
	u64 leaves;		/* written, or dropped with deleted files; 0: unknown */
	s64 room;		/* pages between the background threshold and the setpoint */
	u32 share;		/* of JP_WHOLE: the groups' share of what leaves */
};

struct jp_budget {
	s64 budget;
	s64 pace;
	s64 due;
};

/* A saved-up rate, capped at JP_KEPT jiffies plus the next grant, which must fit as a whole. */
static inline s64 jp_kept(s64 kept, u64 rate, u64 elapsed, u32 cost)
{
	u64 most = rate * JP_KEPT + ((u64)cost << 8);
	s64 now = kept + (s64)(rate * (elapsed < JP_KEPT ? elapsed : JP_KEPT));

	return now < (s64)most ? now : (s64)most;
}

/* Advances by `elapsed` jiffies. `counted`: the budget was just counted. `cost`: the next grant's, or a
 * batch. */
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

/* Accounts for granted pages. */
static inline void jp_take(struct jp_budget *b, u32 pages)
{
	s64 taken = (s64)pages << 8;

	b->budget -= taken;
	if (b->pace != JP_FREE)
		b->pace -= taken;
	b->due = b->due > taken ? b->due - taken : 0;
}

/* Exponential smoothing: moves by 1/part toward a count of pages; in 1/256 pages per call. */
static inline u64 jp_smoothed(u64 rate, s64 pages, u64 part)
{
	u64 now = pages > 0 ? (u64)pages * 256 : 0;

	return rate ? rate + div64_u64(now, part) - div64_u64(rate, part) : now;
}

/* The share due to groups with this total weight. Writers that cannot be ordered count as one more group of
 * weight `others`. Zero while they take less than half of their share, because the device then returns below
 * its setpoint. Both rates are in the same unit. */
static inline u32 jp_share(u64 weights, u32 others, u64 outside_rate, u64 leaves)
{
	if (!weights || outside_rate * 2 * (weights + others) <= leaves * others)
		return 0;
	return (u32)div64_u64(weights * JP_WHOLE, weights + others);
}

#endif
