// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The groups' share of a device that others write to as well, in a simulation by jiffies.
 *
 * A disk cleans DRAIN pages per jiffy while more than the background threshold are dirty. Groups always wait,
 * in the module's own queue. Writers outside dirty all that the kernel's throttle lets them, up to `hold`
 * pages in total. The real jp_ functions decide what is granted.
 */
#include "check.h"
#include "../pace.h"

#define GROUPS 4
#define DRAIN 41		/* 40 MB/s at 250 jiffies a second */
#define BACKGROUND 20000
#define SETPOINT 27500
#define LIMIT 40000
#define JIFFIES 50000

struct result {
	double inside;		/* share of what was drained */
	double share[GROUPS];
	s64 most;		/* dirty, in the second half */
};

struct scene {
	s64 hold;		/* pages that writers outside keep dirty; 0: none outside */
	u32 cost;		/* of a grant */
	int every;		/* jiffies from one count to the next */
	s64 begin;		/* dirty pages at the start */
	u32 others;		/* weight of those outside */
};

static const u32 weights[GROUPS] = { 100, 200, 400, 800 };

static struct result play(struct scene scene)
{
	struct jp_rates rates = { .room = SETPOINT - BACKGROUND };
	struct jp_budget budget = { 0 };
	struct jq_group groups[GROUPS];
	struct jq_waiter waiters[GROUPS][4];
	struct result result = { 0 };
	u64 drained = 0, left = 0, outside = 0, seen_left = 0, seen_outside = 0, rate = 0, others = 0;
	s64 dirty = scene.begin;
	struct jq_queue q;

	jq_queue_init(&q);
	for (int i = 0; i < GROUPS; i++) {
		jq_group_init(&groups[i], weights[i]);
		for (int k = 0; k < 4; k++)
			jq_enqueue(&q, &groups[i], &waiters[i][k], scene.cost);
	}
	for (int now = 0; now < JIFFIES; now++) {
		bool counted = now % scene.every == 0;
		struct jq_waiter *w;

		if (dirty > BACKGROUND) {
			dirty -= DRAIN;
			left += DRAIN;
			drained += now >= JIFFIES / 2 ? DRAIN : 0;
		}
		if (scene.hold > dirty) {
			outside += (u64)(scene.hold - dirty);
			dirty = scene.hold;
		}
		/* The clock looks every 200 ms, as the module's does. */
		if (now % 50 == 49) {
			rate = jp_smoothed(rate, (s64)(left - seen_left), 4);
			others = jp_smoothed(others, (s64)(outside - seen_outside), 16);
			rates.leaves = rate / 50;
			rates.share = jp_share(1500, scene.others, others, rate);
			seen_left = left;
			seen_outside = outside;
		}
		if (counted)
			budget.budget = (SETPOINT - dirty) * 256;
		jp_pass(&budget, &rates, 1, counted, scene.cost);
		while ((w = jq_peek(&q)) && jp_available(&budget) >= (s64)w->cost) {
			struct jq_group *g = w->group;

			jq_grant(&q);
			jp_take(&budget, w->cost);
			dirty += w->cost;
			if (now >= JIFFIES / 2) {
				result.inside += w->cost;
				result.share[g - groups] += w->cost;
			}
			jq_enqueue(&q, g, w, scene.cost);
		}
		if (now >= JIFFIES / 2 && dirty > result.most)
			result.most = dirty;
	}
	result.inside /= (double)drained;
	return result;
}

static void check_ratios(struct result r)
{
	for (int i = 1; i < GROUPS; i++) {
		double seen = r.share[i] / r.share[0], wanted = weights[i] / (double)weights[0];

		CHECK(seen > wanted * 0.97 && seen < wanted * 1.03, "weight %u has %.2f of weight 100's",
		      weights[i], seen);
	}
}

/* Writers that cannot be ordered hold the device above its setpoint forever: groups have their share, by
 * weight, of what leaves. */
static void writers_outside_do_not_starve_those_inside(void)
{
	static const u32 others[] = { 100, 1500 };
	static const u32 costs[] = { 32, 512 };

	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < 2; k++) {
			struct result r = play((struct scene){ .hold = LIMIT - 2000, .cost = costs[k],
							      .every = 1, .begin = LIMIT, .others = others[i] });
			double wanted = 1500.0 / (1500 + others[i]);

			CHECK(r.inside > wanted * 0.95 && r.inside < wanted * 1.03,
			      "grants of %u: %.3f of what leaves beside weight %u", costs[k], r.inside, others[i]);
			check_ratios(r);
		}
	}
}

/* Nobody outside: groups have all that leaves, however seldom it is counted, and the setpoint holds. */
static void alone_they_have_all_and_keep_the_setpoint(void)
{
	static const int every[] = { 1, 4, 32 };
	static const u32 costs[] = { 32, 512 };

	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < 2; k++) {
			struct result r = play((struct scene){ .cost = costs[k], .every = every[i],
							      .begin = LIMIT, .others = 100 });

			CHECK(r.inside > 0.99 && r.inside < 1.01, "counted each %d jiffies: %.3f of what leaves",
			      every[i], r.inside);
			CHECK(r.most < SETPOINT + 2 * 512, "counted each %d jiffies: %lld dirty", every[i],
			      (long long)r.most);
			check_ratios(r);
		}
	}
}

/* Outside writers that write less than a share do not keep the device from its setpoint. */
static void a_trickle_outside_is_no_reason_to_pass_the_setpoint(void)
{
	CHECK(!jp_share(1500, 100, 300, 10000), "a trickle");
	CHECK(!jp_share(0, 100, 10000, 10000), "nobody inside");
	CHECK(jp_share(100, 100, 10000, 10000) == JP_WHOLE / 2, "half and half");
}

int main(void)
{
	writers_outside_do_not_starve_those_inside();
	alone_they_have_all_and_keep_the_setpoint();
	a_trickle_outside_is_no_reason_to_pass_the_setpoint();
	puts("pace: groups have their share beside writers that nobody orders");
	return 0;
}
