/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The weighted wait queue: which waiter goes next.
 *
 * Waiters belong to groups, and a group has a weight. The kernel module and all tests in kmod/tests compile
 * this same header; there is no second copy.
 *
 * Units: a cost is in pages, a weight is 1..10000, a turn is one grant. No floating point, no 64-bit
 * division, no allocation: waiters live on their stacks, groups with their owner.
 *
 * Orders
 *   fifo    First come, first served.
 *   aging   Algorithm 1 of the Justitia paper (MSST 2020): the highest weight goes next, and every
 *           waiter that is passed over gains N (100). All waiters gain alike, so only arrivals change
 *           who is first. The order by (weight + N * turns waited), highest first, equals the order by
 *           (turn of arrival * N - weight), lowest first: earliest deadline first with deadline =
 *           arrival - weight / N turns. A waiter's key never changes, so no waiter is updated.
 *           It follows that weight 800 is at most seven turns ahead of weight 100, whatever the
 *           number of waiters n: the ratio of their shares tends to 1 as n grows. N = 0 is the paper's
 *           arm without aging: the highest weight always goes next, and others may starve.
 *   stride  Start-time fair queueing: a group has a virtual time that advances by cost / weight with
 *           every grant, and the group that is furthest behind goes next. Shares of groups that
 *           always wait are proportional to weight. The queue's virtual time V is the latest start
 *           that was granted. It never passes a waiting group, so nobody starves. A group that
 *           returns is lifted to V - lag: being idle earns at most `lag`.
 * Within a group the oldest waiter goes first in every order. A group is therefore ordered by its oldest
 * waiter, and the queue is a heap of groups (pairing heap: insertion O(1), removal O(log n) amortized, no
 * recursion).
 *
 * Wrapping: keys are compared by the sign of their difference. Live keys are less than 2^63 apart: a
 * turn moves V by at most JQ_COST_MAX * JQ_STRIDE_ONE = 2^42, and a group that was away for more than
 * JQ_STALE_TURNS = 2^20 turns starts at V.
 *
 * Context and ordering rules
 *   Every function here needs the caller's lock of this queue, except jq_granted() and jq_wait().
 *   A waiter belongs to the queue from jq_enqueue() until jq_grant(), jq_release() or jq_cancel().
 *   A granted waiter still belongs to the granter until the lock is dropped. It may be woken after it
 *   was marked, because the waiter takes the lock once more before its frame goes away (jq_wait()).
 *   A grant is therefore never lost: a simultaneous time-out or signal finds it already made.
 *
 * jq_wait() and jq_pump() are the shell around this. They exist when JQ_SHELL is defined. The including file
 * then defines, before it includes this header,
 *   struct jq_sleeper                 what waking needs; part of each waiter (a file of the same program
 *                                     that does not use the shell defines JQ_SLEEPER instead)
 * and also defines
 *   void jq_lock(struct jq_queue *), void jq_unlock(struct jq_queue *)
 *   enum jq_wakeup jq_park(struct jq_waiter *, u64 deadline)
 *                                     sleeps unless already jq_granted(); called without the lock.
 *                                     A jq_wake() that comes before it sleeps must not be lost. May
 *                                     return JQ_WOKEN spuriously.
 *   void jq_wake(struct jq_waiter *)  called with the lock, after the waiter was granted
 */
#ifndef JUSTITIA_QUEUE_H
#define JUSTITIA_QUEUE_H

#ifdef __KERNEL__
#include <linux/compiler.h>
#include <linux/types.h>
#include <asm/barrier.h>
#define jq_load_acquire(p) smp_load_acquire(p)
#define jq_store_release(p, v) smp_store_release(p, v)
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;
#define jq_load_acquire(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define jq_store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#endif

#define JQ_WEIGHT_MIN 1u
#define JQ_WEIGHT_MAX 10000u
#define JQ_COST_MAX (1u << 16)
#define JQ_AGING_DEFAULT 100u
#define JQ_AGING_MAX 10000u
#define JQ_STRIDE_ONE (1u << 26)
#define JQ_STALE_TURNS (1u << 20)
/* Catch-up of a group of weight 100, in pages. */
#define JQ_LAG_DEFAULT 1024u
#define JQ_LAG_MAX (1u << 20)
/* Bins of the histogram of queue lengths: 1, 2-3, 4-7, ... */
#define JQ_LENGTHS 12

enum jq_order { JQ_FIFO, JQ_AGING, JQ_STRIDE };
enum jq_state { JQ_AWAY, JQ_WAITING, JQ_GRANTED };
enum jq_wakeup { JQ_WOKEN, JQ_TIMED_OUT, JQ_KILLED };
enum jq_end { JQ_END_GRANTED, JQ_END_TIMED_OUT, JQ_END_KILLED };

struct jq_group;

struct jq_waiter {
	struct jq_waiter *next;		/* in its group, towards the youngest */
	struct jq_waiter *prev;
	struct jq_waiter *younger;	/* in the queue, of all groups */
	struct jq_waiter *older;
	struct jq_group *group;
	u64 seq;			/* of arrival, unique */
	u64 turn;			/* of arrival */
	u32 cost;
	int state;			/* enum jq_state; read without the lock by jq_granted() */
#if defined(JQ_SHELL) || defined(JQ_SLEEPER)
	struct jq_sleeper sleeper;
#endif
};

struct jq_group {
	struct jq_group *child;		/* heap: first child */
	struct jq_group *sibling;	/* heap: next child of the same parent */
	struct jq_group *back;		/* heap: previous sibling, or the parent of a first child */
	u64 key;			/* heap: lowest first, then the older waiter */
	struct jq_waiter *first;
	struct jq_waiter *last;
	u64 vtime;
	u64 seen_turn;			/* when vtime was last valid */
	u32 weight;
	u32 stride;			/* JQ_STRIDE_ONE / weight */
	u32 waiting;
	bool known;			/* vtime is valid */
};

struct jq_stats {
	u64 enqueued;
	u64 granted;
	u64 cancelled;
	u64 reordered;			/* grants that passed over an older waiter */
	u64 lengths[JQ_LENGTHS];	/* after each arrival, the new waiter included */
	u32 longest;
};

struct jq_queue {
	struct jq_group *root;		/* the heap of waiting groups */
	struct jq_waiter *oldest;
	struct jq_waiter *youngest;
	u64 seq;
	u64 turn;
	u64 vtime;			/* V */
	u64 lag;			/* in virtual time */
	u32 aging;			/* N */
	u32 length;
	enum jq_order order;
	struct jq_stats stats;
};

static inline u64 jq_virtual(u32 pages, u32 stride)
{
	return (u64)pages * stride;
}

static inline void jq_queue_init(struct jq_queue *q)
{
	*q = (struct jq_queue){ .order = JQ_STRIDE, .aging = JQ_AGING_DEFAULT };
	q->lag = jq_virtual(JQ_LAG_DEFAULT, JQ_STRIDE_ONE / 100);
}

static inline u32 jq_clamp(u32 value, u32 min, u32 max)
{
	return value < min ? min : value > max ? max : value;
}

static inline void jq_group_init(struct jq_group *g, u32 weight)
{
	weight = jq_clamp(weight, JQ_WEIGHT_MIN, JQ_WEIGHT_MAX);
	*g = (struct jq_group){ .weight = weight, .stride = JQ_STRIDE_ONE / weight };
}

/* True once the waiter was granted: without the lock a hint, with it reliable. */
static inline bool jq_granted(const struct jq_waiter *w)
{
	return jq_load_acquire(&w->state) == JQ_GRANTED;
}

/* ---- the heap ---- */

static inline bool jq_before(const struct jq_group *a, const struct jq_group *b)
{
	if (a->key != b->key)
		return (s64)(a->key - b->key) < 0;
	return (s64)(a->first->seq - b->first->seq) < 0;
}

/* Merges two roots. */
static inline struct jq_group *jq_meld(struct jq_group *a, struct jq_group *b)
{
	struct jq_group *low;

	if (!a || !b)
		return a ? a : b;
	low = jq_before(a, b) ? a : b;
	b = low == a ? b : a;
	b->sibling = low->child;
	if (low->child)
		low->child->back = b;
	b->back = low;
	low->child = b;
	low->sibling = NULL;
	low->back = NULL;
	return low;
}

/* Merges the children of a removed root: pairs from the left, then all from the right. */
static inline struct jq_group *jq_meld_children(struct jq_group *child)
{
	struct jq_group *pairs = NULL, *root = NULL, *next;

	while (child) {
		struct jq_group *a = child, *b = child->sibling;

		next = b ? b->sibling : NULL;
		a->sibling = a->back = NULL;
		if (b)
			b->sibling = b->back = NULL;
		a = jq_meld(a, b);
		a->sibling = pairs;
		pairs = a;
		child = next;
	}
	for (; pairs; pairs = next) {
		next = pairs->sibling;
		pairs->sibling = NULL;
		root = jq_meld(root, pairs);
	}
	return root;
}

static inline void jq_heap_remove(struct jq_queue *q, struct jq_group *g)
{
	struct jq_group *rest = jq_meld_children(g->child);

	if (q->root == g) {
		q->root = rest;
	} else {
		if (g->back->child == g)
			g->back->child = g->sibling;
		else
			g->back->sibling = g->sibling;
		if (g->sibling)
			g->sibling->back = g->back;
		q->root = jq_meld(q->root, rest);
	}
	g->child = g->sibling = g->back = NULL;
}

static inline u64 jq_key(const struct jq_queue *q, const struct jq_group *g)
{
	switch (q->order) {
	case JQ_AGING:
		return g->first->turn * q->aging - g->weight;
	case JQ_STRIDE:
		return g->vtime;
	default:
		return g->first->seq;
	}
}

static inline void jq_heap_insert(struct jq_queue *q, struct jq_group *g)
{
	g->key = jq_key(q, g);
	q->root = jq_meld(q->root, g);
}

/* ---- arrivals and departures ---- */

/* Virtual time of a group that returns: not before V - lag; V for a new group. */
static inline void jq_lift(struct jq_queue *q, struct jq_group *g)
{
	u64 floor = q->vtime - q->lag;

	if (!g->known || q->turn - g->seen_turn > JQ_STALE_TURNS)
		g->vtime = q->vtime;
	else if ((s64)(g->vtime - floor) < 0)
		g->vtime = floor;
	g->known = true;
	g->seen_turn = q->turn;
}

static inline void jq_enqueue(struct jq_queue *q, struct jq_group *g, struct jq_waiter *w, u32 cost)
{
	u32 bin = 0, length;

	w->group = g;
	w->cost = jq_clamp(cost, 1, JQ_COST_MAX);
	w->seq = q->seq++;
	w->turn = q->turn;
	w->next = w->younger = NULL;
	w->prev = g->last;
	w->older = q->youngest;
	jq_store_release(&w->state, JQ_WAITING);
	if (q->youngest)
		q->youngest->younger = w;
	else
		q->oldest = w;
	q->youngest = w;
	if (g->last)
		g->last->next = w;
	else
		g->first = w;
	g->last = w;
	if (!g->waiting++) {
		jq_lift(q, g);
		jq_heap_insert(q, g);
	}
	q->length++;
	q->stats.enqueued++;
	if (q->length > q->stats.longest)
		q->stats.longest = q->length;
	for (length = q->length; length > 1 && bin < JQ_LENGTHS - 1; length >>= 1)
		bin++;
	q->stats.lengths[bin]++;
}

/* Removes a waiter from its lists. The caller maintains the heap. */
static inline void jq_unlink(struct jq_queue *q, struct jq_waiter *w)
{
	struct jq_group *g = w->group;

	if (w->older)
		w->older->younger = w->younger;
	else
		q->oldest = w->younger;
	if (w->younger)
		w->younger->older = w->older;
	else
		q->youngest = w->older;
	if (w->prev)
		w->prev->next = w->next;
	else
		g->first = w->next;
	if (w->next)
		w->next->prev = w->prev;
	else
		g->last = w->prev;
	g->waiting--;
	g->seen_turn = q->turn;
	q->length--;
}

/* The next waiter; NULL: nobody waits. */
static inline struct jq_waiter *jq_peek(const struct jq_queue *q)
{
	return q->root ? q->root->first : NULL;
}

/* Grants the next waiter and returns it; NULL: nobody waits. The caller wakes it. */
static inline struct jq_waiter *jq_grant(struct jq_queue *q)
{
	struct jq_waiter *w = jq_peek(q);
	struct jq_group *g;

	if (!w)
		return NULL;
	g = w->group;
	if (q->oldest != w)
		q->stats.reordered++;
	jq_heap_remove(q, g);
	q->turn++;
	if ((s64)(g->vtime - q->vtime) > 0)
		q->vtime = g->vtime;
	g->vtime += jq_virtual(w->cost, g->stride);
	jq_unlink(q, w);
	if (g->waiting)
		jq_heap_insert(q, g);
	q->stats.granted++;
	jq_store_release(&w->state, JQ_GRANTED);
	return w;
}

/* Removes a waiter that was not granted. */
static inline void jq_cancel(struct jq_queue *q, struct jq_waiter *w)
{
	struct jq_group *g = w->group;

	/* Only a group's oldest waiter represents it in the heap. */
	if (g->first == w) {
		jq_heap_remove(q, g);
		jq_unlink(q, w);
		if (g->waiting)
			jq_heap_insert(q, g);
	} else {
		jq_unlink(q, w);
	}
	q->stats.cancelled++;
	jq_store_release(&w->state, JQ_AWAY);
}

/* Lets a waiter go without a turn: to it this looks like a grant. The caller wakes it. */
static inline void jq_release(struct jq_queue *q, struct jq_waiter *w)
{
	jq_cancel(q, w);
	jq_store_release(&w->state, JQ_GRANTED);
}

/* Charges a group for pages that it took without a grant. */
static inline void jq_charge(struct jq_queue *q, struct jq_group *g, u32 pages)
{
	if (g->waiting)
		jq_heap_remove(q, g);
	else
		jq_lift(q, g);
	g->vtime += jq_virtual(jq_clamp(pages, 0, JQ_COST_MAX), g->stride);
	if (g->waiting)
		jq_heap_insert(q, g);
}

/* Refunds pages that a group was granted and did not use. */
static inline void jq_refund(struct jq_queue *q, struct jq_group *g, u32 pages)
{
	if (g->waiting)
		jq_heap_remove(q, g);
	g->vtime -= jq_virtual(jq_clamp(pages, 0, JQ_COST_MAX), g->stride);
	if (g->waiting)
		jq_heap_insert(q, g);
}

static inline void jq_set_weight(struct jq_queue *q, struct jq_group *g, u32 weight)
{
	if (g->waiting)
		jq_heap_remove(q, g);
	g->weight = jq_clamp(weight, JQ_WEIGHT_MIN, JQ_WEIGHT_MAX);
	g->stride = JQ_STRIDE_ONE / g->weight;
	if (g->waiting)
		jq_heap_insert(q, g);
}

/* Changes the order, also while waiters are queued. Virtual times stay: grants under another order were paid
 * for too. `aging` is N, `lag` the catch-up of a group of weight 100, in pages. */
static inline void jq_set_order(struct jq_queue *q, enum jq_order order, u32 aging, u32 lag)
{
	struct jq_group *all = NULL, *g;

	while ((g = q->root)) {
		jq_heap_remove(q, g);
		g->sibling = all;
		all = g;
	}
	q->order = order;
	q->aging = jq_clamp(aging, 0, JQ_AGING_MAX);
	q->lag = jq_virtual(jq_clamp(lag, 0, JQ_LAG_MAX), JQ_STRIDE_ONE / 100);
	while ((g = all)) {
		all = g->sibling;
		g->sibling = NULL;
		if (order == JQ_STRIDE && (s64)(g->vtime - (q->vtime - q->lag)) < 0)
			g->vtime = q->vtime - q->lag;
		jq_heap_insert(q, g);
	}
}

#ifdef JQ_SHELL
static void jq_lock(struct jq_queue *q);
static void jq_unlock(struct jq_queue *q);
static enum jq_wakeup jq_park(struct jq_waiter *w, u64 deadline);
static void jq_wake(struct jq_waiter *w);

/* Grants while the budget lasts; returns the rest. With the lock. If the next waiter asks for more than there
 * is, nobody passes it: others would take its pages forever. */
static inline s64 jq_pump(struct jq_queue *q, s64 budget)
{
	struct jq_waiter *w;

	while ((w = jq_peek(q)) && budget >= (s64)w->cost) {
		budget -= w->cost;
		jq_wake(jq_grant(q));
	}
	return budget;
}

/* Waits for the grant of an enqueued waiter, until `deadline` in the caller's time. Without the lock.
 * Sleeps. */
static inline enum jq_end jq_wait(struct jq_queue *q, struct jq_waiter *w, u64 deadline)
{
	enum jq_wakeup why = JQ_WOKEN;
	enum jq_end end = JQ_END_GRANTED;

	while (why == JQ_WOKEN && !jq_granted(w))
		why = jq_park(w, deadline);
	jq_lock(q);
	if (!jq_granted(w)) {
		jq_cancel(q, w);
		end = why == JQ_KILLED ? JQ_END_KILLED : JQ_END_TIMED_OUT;
	}
	jq_unlock(q);
	return end;
}
#endif /* JQ_SHELL */
#endif /* JUSTITIA_QUEUE_H */
