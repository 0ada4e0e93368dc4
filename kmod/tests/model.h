/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The queue against a naive model of it, under any sequence of operations.
 *
 * The model is the definition, taken literally. Waiters are in an array, and the next one is found by looking
 * at all of them. Aging adds N to every waiter that was passed over, as in the paper's algorithm 1. Virtual
 * times are 128 bits wide and never wrap, while the queue's start just before they do. play() decodes its
 * operations from bytes, so that a generator and a fuzzer can both drive it. After every operation the whole
 * structure of the queue is checked.
 */
#ifndef JUSTITIA_TESTS_MODEL_H
#define JUSTITIA_TESTS_MODEL_H

#include "check.h"
#include "../queue.h"

#define GROUPS 6
#define WAITERS 24

typedef __int128 wide;

struct model {
	struct jq_queue q;
	struct jq_group groups[GROUPS];
	struct jq_waiter waiters[WAITERS];
	/* The model's own state. */
	bool waits[WAITERS];
	long arrival[WAITERS];
	wide priority[WAITERS];		/* weight + N for every turn passed over */
	wide vtime[GROUPS], v, lag;
	bool known[GROUPS];
	long arrivals;
};

/* Start of the queue's virtual time: soon to wrap. */
#define START (0 - ((u64)1 << 40))

static inline void model_start(struct model *m)
{
	*m = (struct model){ 0 };
	jq_queue_init(&m->q);
	m->q.vtime = START;
	m->v = (wide)START;
	m->lag = m->q.lag;
	for (int i = 0; i < GROUPS; i++)
		jq_group_init(&m->groups[i], 100u << i);
}

static inline int group_of(const struct model *m, int i)
{
	return (int)(m->waiters[i].group - m->groups);
}

/* True if waiter a goes before waiter b, by the definition of the order. */
static inline bool model_before(const struct model *m, int a, int b)
{
	wide x, y;

	switch (m->q.order) {
	case JQ_AGING:
		x = m->priority[b];
		y = m->priority[a];
		break;
	case JQ_STRIDE:
		x = m->vtime[group_of(m, a)];
		y = m->vtime[group_of(m, b)];
		break;
	default:
		x = y = 0;
	}
	return x != y ? x < y : m->arrival[a] < m->arrival[b];
}

static inline int model_next(const struct model *m)
{
	int best = -1;

	for (int i = 0; i < WAITERS; i++)
		if (m->waits[i] && (best < 0 || model_before(m, i, best)))
			best = i;
	return best;
}

static inline bool model_group_waits(const struct model *m, int g)
{
	for (int i = 0; i < WAITERS; i++)
		if (m->waits[i] && group_of(m, i) == g)
			return true;
	return false;
}

static inline void model_lift(struct model *m, int g)
{
	if (!m->known[g])
		m->vtime[g] = m->v;
	else if (m->vtime[g] < m->v - m->lag)
		m->vtime[g] = m->v - m->lag;
	m->known[g] = true;
}

static inline int count_heap(const struct jq_group *g, const struct jq_group *back, bool first)
{
	int count = 0;

	for (; g; back = g, g = g->sibling, first = false) {
		CHECK(g->back == back, "a group does not know who is before it");
		CHECK(g->waiting && g->first && g->last, "a group in the heap for which nobody waits");
		if (first || count)
			count += 1 + count_heap(g->child, g, true);
	}
	return count;
}

/* The lists, the counters and the heap agree with the model. */
static inline void check_structure(const struct model *m)
{
	int waiting = 0, listed = 0, groups = 0;
	const struct jq_waiter *w;

	for (int i = 0; i < WAITERS; i++) {
		waiting += m->waits[i];
		CHECK(m->waits[i] == (m->waiters[i].state == JQ_WAITING), "state of waiter %d", i);
	}
	for (w = m->q.oldest; w; w = w->younger) {
		listed++;
		CHECK(!w->younger || w->younger->older == w, "the list of all is torn");
		CHECK(!w->younger || w->younger->seq > w->seq, "the list of all is out of order");
	}
	CHECK(waiting == listed && (u32)waiting == m->q.length, "%d wait, %d listed", waiting, listed);
	for (int g = 0; g < GROUPS; g++) {
		u32 members = 0;

		for (w = m->groups[g].first; w; w = w->next) {
			members++;
			CHECK(w->next || m->groups[g].last == w, "the list of group %d is torn", g);
		}
		CHECK(members == m->groups[g].waiting, "group %d", g);
		groups += members > 0;
	}
	if (m->q.root)
		CHECK(!m->q.root->sibling, "the root has a sibling");
	CHECK(count_heap(m->q.root, NULL, true) == groups, "%d groups wait", groups);
	CHECK(m->q.stats.enqueued == m->q.stats.granted + m->q.stats.cancelled + m->q.length,
	      "waiters come from nowhere");
}

static inline void play_enqueue(struct model *m, int i, int g, u32 cost)
{
	if (m->waits[i])
		return;
	if (!model_group_waits(m, g))
		model_lift(m, g);
	jq_enqueue(&m->q, &m->groups[g], &m->waiters[i], cost);
	m->waits[i] = true;
	m->arrival[i] = m->arrivals++;
	m->priority[i] = m->groups[g].weight;
}

static inline void play_grant(struct model *m)
{
	int best = model_next(m), g;
	bool overtakes = false;
	u64 reordered = m->q.stats.reordered;
	struct jq_waiter *w = jq_grant(&m->q);

	CHECK(w == (best < 0 ? NULL : &m->waiters[best]), "granted %d, should be %d",
	      w ? (int)(w - m->waiters) : -1, best);
	if (!w)
		return;
	g = group_of(m, best);
	m->waits[best] = false;
	for (int i = 0; i < WAITERS; i++) {
		if (!m->waits[i])
			continue;
		m->priority[i] += m->q.aging;
		overtakes |= m->arrival[i] < m->arrival[best];
	}
	if (m->vtime[g] > m->v)
		m->v = m->vtime[g];
	m->vtime[g] += (wide)w->cost * m->groups[g].stride;
	CHECK(m->q.stats.reordered == reordered + overtakes, "who was passed over");
	CHECK(m->q.vtime == (u64)m->v && m->groups[g].vtime == (u64)m->vtime[g], "virtual times");
}

static inline void play_weight(struct model *m, int g, u32 weight)
{
	u32 before = m->groups[g].weight;

	jq_set_weight(&m->q, &m->groups[g], weight);
	for (int i = 0; i < WAITERS; i++)
		if (m->waits[i] && group_of(m, i) == g)
			m->priority[i] += (wide)m->groups[g].weight - before;
}

/* Another order, or other constants. A new N revalues what waiters have gained so far. */
static inline void play_order(struct model *m, enum jq_order order, u32 aging, u32 lag)
{
	jq_set_order(&m->q, order, aging, lag);
	m->lag = m->q.lag;
	for (int i = 0; i < WAITERS; i++)
		if (m->waits[i])
			m->priority[i] = (wide)m->groups[group_of(m, i)].weight +
					 (wide)(m->q.turn - m->waiters[i].turn) * m->q.aging;
	for (int g = 0; g < GROUPS; g++)
		if (order == JQ_STRIDE && model_group_waits(m, g) && m->vtime[g] < m->v - m->lag)
			m->vtime[g] = m->v - m->lag;
}

/* Decodes operations from bytes, four each. */
static inline void play(struct model *m, const unsigned char *bytes, size_t length)
{
	for (; length >= 4; bytes += 4, length -= 4) {
		int i = bytes[1] % WAITERS, g = bytes[2] % GROUPS;

		switch (bytes[0] % 16) {
		case 0: case 1: case 2: case 3: case 4: case 5: case 6:
			play_enqueue(m, i, g, bytes[3]);
			break;
		case 7: case 8: case 9: case 10: case 11:
			play_grant(m);
			break;
		case 12:
			if (m->waits[i]) {
				jq_cancel(&m->q, &m->waiters[i]);
				m->waits[i] = false;
			}
			break;
		case 13:
			play_weight(m, g, bytes[3] * 40u);
			break;
		case 14:
			if (bytes[1] & 1) {
				jq_refund(&m->q, &m->groups[g], bytes[3]);
				m->vtime[g] -= (wide)bytes[3] * m->groups[g].stride;
				break;
			}
			if (!model_group_waits(m, g))
				model_lift(m, g);
			jq_charge(&m->q, &m->groups[g], bytes[3]);
			m->vtime[g] += (wide)bytes[3] * m->groups[g].stride;
			break;
		default:
			play_order(m, bytes[1] % 3, bytes[2] * 2u, bytes[3] * 64u);
		}
		check_structure(m);
	}
	while (m->q.length)
		play_grant(m);
	check_structure(m);
}

#endif
