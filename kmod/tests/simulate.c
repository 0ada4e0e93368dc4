// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The effect of the orders on shares and waits, in a deterministic simulation of one server.
 *
 * A customer waits, is granted one turn, thinks for a while and waits again. simulate without arguments
 * checks the claims of queue.h; `simulate table` prints what the paper's aging makes of weights.
 *
 * The closed form of aging. Let c be the turns between an arrival and its deadline being reached by
 * the front of the queue. A customer of weight w then returns every c - w/N turns, and all
 * together take one turn per turn:
 *
 *     sum over customers of 1 / (c - w_i/N) = 1
 *
 * which determines c, and with it the ratio of shares (c - w_min/N) / (c - w_max/N). With N = 100 and weights
 * 100..800 the ratio is 2.36 with 8 customers, 1.24 with 32, 1.06 with 128; the weights ask for 8. It is an
 * upper bound: ties go to the older, and customers that never think can fall into lockstep (with 8 classes
 * they take turns exactly, 1:1).
 */
#include <string.h>

#include "check.h"
#include "../queue.h"

#define CLASSES 8
#define CUSTOMERS 256

struct outcome {
	double share[CLASSES];		/* turns per customer of the class */
	u64 longest[CLASSES];		/* turns waited */
	u64 yielded;			/* most turns in which younger waiters passed over one */
};

struct customer {
	struct jq_waiter waiter;	/* first: cast between the two */
	int class;
	u64 back;			/* when it waits again */
	u64 overtaken;
	bool waits;
};

/* `think`: mean turns of thinking, uniform from 0 to twice that. */
static struct outcome simulate(enum jq_order order, u32 n_aging, const u32 *weights, int classes,
			       int customers, u64 think, u64 turns)
{
	static struct customer all[CUSTOMERS];
	struct jq_group groups[CLASSES];
	struct outcome outcome = { 0 };
	unsigned long long seed = 1;
	struct jq_queue q;

	memset(all, 0, sizeof(all));
	jq_queue_init(&q);
	jq_set_order(&q, order, n_aging, JQ_LAG_DEFAULT);
	for (int i = 0; i < classes; i++)
		jq_group_init(&groups[i], weights[i]);
	for (int i = 0; i < customers; i++)
		all[i].class = i * classes / customers;
	for (u64 now = 0; now < turns; now++) {
		struct customer *c;

		for (int i = 0; i < customers; i++) {
			if (all[i].waits || all[i].back > now)
				continue;
			jq_enqueue(&q, &groups[all[i].class], &all[i].waiter, 16);
			all[i].waits = true;
			all[i].overtaken = 0;
		}
		c = (struct customer *)jq_grant(&q);
		if (!c)
			continue;
		c->waits = false;
		c->back = now + 1 + (think ? draw(&seed) % (2 * think + 1) : 0);
		for (int i = 0; i < customers; i++)
			if (all[i].waits && all[i].waiter.seq < c->waiter.seq &&
			    ++all[i].overtaken > outcome.yielded)
				outcome.yielded = all[i].overtaken;
		/* The first tenth is warm-up. */
		if (now < turns / 10)
			continue;
		outcome.share[c->class] += 1;
		/* The turn is a count of grants; q.turn already includes this one. */
		if (q.turn - 1 - c->waiter.turn > outcome.longest[c->class])
			outcome.longest[c->class] = q.turn - 1 - c->waiter.turn;
	}
	for (int i = 0; i < classes; i++)
		outcome.share[i] *= (double)classes / customers;
	return outcome;
}

static const u32 eight[CLASSES] = { 100, 200, 300, 400, 500, 600, 700, 800 };

/* The root of the closed form, by bisection. */
static double closed_form(const u32 *weights, int classes, int customers, double n_aging)
{
	double low = weights[classes - 1] / n_aging, high = low + 2.0 * customers + 2;

	for (int i = 0; i < 200; i++) {
		double c = (low + high) / 2, rate = 0;

		for (int k = 0; k < classes; k++)
			rate += (double)customers / classes / (c - weights[k] / n_aging);
		*(rate > 1 ? &low : &high) = c;
	}
	return (low - weights[0] / n_aging) / (low - weights[classes - 1] / n_aging);
}

static double ratio(struct outcome o, int classes)
{
	return o.share[classes - 1] / o.share[0];
}

/* The paper's aging: weight 800 is at most seven turns ahead, and the ratio shrinks as the queue grows. */
static void aging_flattens(void)
{
	for (int n = 8; n <= 128; n *= 4) {
		double bound = closed_form(eight, CLASSES, n, 100);
		double seen = ratio(simulate(JQ_AGING, 100, eight, CLASSES, n, n / 4, 400000), CLASSES);

		CHECK(seen <= bound * 1.01, "n=%d: %.3f above the closed form's %.3f", n, seen, bound);
		CHECK(seen - 1 >= (bound - 1) * 0.7, "n=%d: %.3f far below %.3f", n, seen, bound);
	}
	/* One customer of weight 800 arrives behind many of weight 100: it passes those of the last seven
	 * turns. */
	struct jq_group low, high;
	struct jq_waiter many[40], one;
	struct jq_queue q;
	int before = 0;

	jq_queue_init(&q);
	jq_set_order(&q, JQ_AGING, 100, 0);
	jq_group_init(&low, 100);
	jq_group_init(&high, 800);
	for (int i = 0; i < 20; i++)
		jq_enqueue(&q, &low, &many[i], 1);
	for (int i = 20; i < 40; i++) {
		jq_grant(&q);
		jq_enqueue(&q, &low, &many[i], 1);
	}
	jq_enqueue(&q, &high, &one, 1);
	while (jq_grant(&q) != &one)
		before++;
	CHECK(before == 20 - 7, "it overtook %d of 20", 20 - before);
}

/* No N is right: the choice is between ignoring weights and starvation. */
static void no_constant_of_aging_is_right(void)
{
	double at_100 = ratio(simulate(JQ_AGING, 100, eight, CLASSES, 32, 8, 400000), CLASSES);
	double at_1 = ratio(simulate(JQ_AGING, 1, eight, CLASSES, 32, 8, 400000), CLASSES);

	CHECK(at_100 < 1.3, "%.2f", at_100);
	CHECK(at_1 > 12, "%.2f", at_1);
}

/* The paper's arm without aging: a lighter waiter goes only when no heavier one waits. */
static void without_aging_the_heaviest_always_goes_next(void)
{
	static const u32 two[2] = { 100, 800 };
	struct outcome o = simulate(JQ_AGING, 0, two, 2, 32, 0, 40000);

	CHECK(o.share[0] == 0, "weight 100 had %.0f turns while weight 800 waited", o.share[0]);
}

static void fifo_knows_no_weights(void)
{
	double seen = ratio(simulate(JQ_FIFO, 100, eight, CLASSES, 32, 8, 400000), CLASSES);

	CHECK(seen > 0.97 && seen < 1.03, "%.3f", seen);
}

/* Shares of groups that always wait are proportional to weight, whatever the length of the queue. */
static void stride_is_proportional(void)
{
	for (int n = 8; n <= 128; n *= 4) {
		struct outcome o = simulate(JQ_STRIDE, 100, eight, CLASSES, n, 0, 400000);

		for (int i = 1; i < CLASSES; i++) {
			double seen = o.share[i] / o.share[0];

			CHECK(seen > (i + 1) * 0.999 && seen < (i + 1) * 1.001, "n=%d class %d: %.4f", n, i,
			      seen);
		}
	}
}

/* Each waits at most until everybody else had their share: with k customers in its group, k * W / w turns,
 * one for every group, and the rounding error of JQ_STRIDE_ONE / weight. */
static void stride_starves_nobody(void)
{
	static const u32 uneven[CLASSES] = { 1, 1000, 1000, 1000, 1000, 1000, 1000, 10000 };

	for (int n = 8; n <= 64; n *= 2) {
		struct outcome o = simulate(JQ_STRIDE, 100, uneven, CLASSES, n, 0, 2000000);
		u64 sum = 0;

		for (int i = 0; i < CLASSES; i++)
			sum += uneven[i];
		for (int i = 0; i < CLASSES; i++) {
			u64 turns = (u64)(n / CLASSES) * (sum + uneven[i] - 1) / uneven[i];
			u64 bound = turns + turns / 5000 + CLASSES;

			CHECK(o.longest[i] <= bound, "n=%d weight %u waited %llu turns, bound %llu", n, uneven[i],
			      (unsigned long long)o.longest[i], (unsigned long long)bound);
		}
	}
}

/* A group that was away takes at most its lag at once, then its share. */
static void idleness_does_not_hoard(void)
{
	struct jq_group busy, idle;
	struct jq_waiter a, b;
	struct jq_queue q;
	u32 in_a_row = 0;

	jq_queue_init(&q);
	jq_set_order(&q, JQ_STRIDE, 100, 160);
	jq_group_init(&busy, 100);
	jq_group_init(&idle, 100);
	jq_enqueue(&q, &idle, &b, 16);
	jq_grant(&q);
	for (int i = 0; i < 100000; i++) {
		jq_enqueue(&q, &busy, &a, 16);
		jq_grant(&q);
	}
	jq_enqueue(&q, &busy, &a, 16);
	jq_enqueue(&q, &idle, &b, 16);
	for (; jq_grant(&q) == &b; in_a_row++)
		jq_enqueue(&q, &idle, &b, 16);
	CHECK(in_a_row >= 10 && in_a_row <= 12, "%u turns of 16 pages for a lag of 160", in_a_row);
}

static void table(void)
{
	puts("aging, N = 100, weights 100..800: ratio of shares of 800 and 100 (the weights ask for 8)");
	puts("waiters  closed form  with thinking  in step");
	for (int n = 8; n <= 128; n *= 2)
		printf("%7d  %11.3f  %13.3f  %7.3f\n", n, closed_form(eight, CLASSES, n, 100),
		       ratio(simulate(JQ_AGING, 100, eight, CLASSES, n, n / 4, 400000), CLASSES),
		       ratio(simulate(JQ_AGING, 100, eight, CLASSES, n, 0, 400000), CLASSES));
	puts("32 waiters, by N");
	for (u32 n_aging = 1; n_aging <= 1000; n_aging *= 10)
		printf("N = %4u  %13.3f\n", n_aging,
		       ratio(simulate(JQ_AGING, n_aging, eight, CLASSES, 32, 8, 400000), CLASSES));
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "table")) {
		table();
		return 0;
	}
	aging_flattens();
	no_constant_of_aging_is_right();
	without_aging_the_heaviest_always_goes_next();
	fifo_knows_no_weights();
	stride_is_proportional();
	stride_starves_nobody();
	idleness_does_not_hoard();
	puts("simulate: shares and waits are as claimed");
	return 0;
}
