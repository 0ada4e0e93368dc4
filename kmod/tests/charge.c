// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The pages that a task is charged, compared with those that it dirties. The counters are those of the kernel,
 * as balance_dirty_pages() keeps them.
 *
 * The task writes through the page cache and past it in random turns. A call of the redirected function
 * follows each buffered write, as in the module's hook.
 */
#include "check.h"
#include "../charge.h"

struct task {
	struct jc_counts now;		/* the kernel's counters */
	struct jc_counts settled;	/* the hook's copy */
	u64 dirtied, charged;
	u32 pause;			/* pages after which the kernel checks */
	u32 looked_at;			/* pages written when a call last came to the hook */
	u32 quiet;			/* pages written after that, up to which calls go straight to the original */
	bool others;			/* other tasks run on the CPU */
};

/* The kernel's part of the call: checks, and resets. */
static void original(struct task *t, u32 jiffies, unsigned long long *seed)
{
	bool early = t->others && draw(seed) % 256 == 0;	/* all tasks of the CPU have dirtied many pages */

	if (t->others && draw(seed) % 64 == 0)
		t->now.dirtied += (u32)(draw(seed) % 8);	/* left behind by an exited task */
	if (t->now.dirtied < t->pause && !early)
		return;
	t->now.dirtied = 0;
	t->now.looked = jiffies;
	t->pause = 8 + (u32)(draw(seed) % 300);
}

static void hook(struct task *t, u32 jiffies, unsigned long long *seed)
{
	u32 pending;

	if (t->now.written - t->looked_at < t->quiet) {
		original(t, jiffies, seed);
		return;
	}
	pending = jc_pending(t->settled, t->now);
	if (pending >= JC_CHUNK) {
		t->charged += pending;
		pending = 0;
	}
	t->settled.written = t->now.written - pending;
	original(t, jiffies, seed);
	t->settled.dirtied = t->now.dirtied - pending;
	t->settled.looked = t->now.looked;
	t->looked_at = t->now.written;
	t->quiet = jc_quiet(pending, t->now.dirtied, t->pause);
}

/* `direct`: pages per write past the cache, after each `every`th buffered write; `folio`: most pages per
 * write. */
static struct task play(unsigned long long seed, u32 direct, u32 every, u32 folio, bool others)
{
	struct task t = { .now = { .written = 0u - 5000, .dirtied = 7 }, .pause = 32, .others = others };

	t.settled = t.now;
	for (u32 i = 0; i < 200000; i++) {
		u32 pages = 1 + (u32)(draw(&seed) % folio);

		t.now.written += pages;
		t.now.dirtied += pages;
		t.dirtied += pages;
		hook(&t, i / 20, &seed);
		if (direct && i % every == 0)
			t.now.written += direct;
	}
	return t;
}

/* Two of the kernel's checks in one jiffy look like one, so a few pages may be missing. */
static void what_is_dirtied_is_charged(void)
{
	for (unsigned long long seed = 1; seed <= 20; seed++) {
		struct task t = play(seed, 0, 1, seed % 2 ? 1 : 16, seed % 3);

		CHECK(t.charged <= t.dirtied && t.charged > t.dirtied / 1000 * 995, "seed %llu: %llu of %llu",
		      seed, (unsigned long long)t.charged, (unsigned long long)t.dirtied);
	}
}

static void what_goes_past_the_cache_is_not_charged(bool others, double least, double most)
{
	static const u32 direct[] = { 1, 4, 16, 256, 51200 };

	for (int i = 0; i < 5; i++) {
		for (u32 every = 1; every <= 64; every *= 8) {
			for (u32 folio = 1; folio <= 16; folio *= 16) {
				struct task t = play(7, direct[i], every, folio, others);
				double ratio = (double)t.charged / (double)t.dirtied;

				CHECK(ratio > least && ratio < most, "%u past the cache after %u of up to %u: %.3f",
				      direct[i], every, folio, ratio);
			}
		}
	}
}

enum { MOST = 250, EACH = 100, WHILE = 2500 };

/* A task is charged `charges` times, `think` jiffies apart. Each time it would wait EACH jiffies, and waits
 * as long as the module allows. `new_write` and `fault` say what it is in at each charge. Returns the jiffies
 * waited. */
static u32 wait_for(int charges, u32 think, bool new_write, bool fault)
{
	struct jc_wait then = { 0 };
	u32 now = 0u - 300, write = 7, all = 0;

	for (int i = 0; i < charges; i++) {
		u32 waited = jc_waited(then, write, fault, now, WHILE), wait;

		wait = waited >= MOST ? 0 : MOST - waited < EACH ? MOST - waited : EACH;
		now += wait;
		all += wait;
		then.write = write;
		then.waited = waited + wait;
		if (wait)
			then.ended = now;
		write += new_write;
		now += think;
	}
	return all;
}

static void a_wait_is_bounded_for_a_write_and_not_for_each_charge_in_it(void)
{
	CHECK(wait_for(1000, 1, false, false) == MOST, "one large write");
	CHECK(wait_for(1000, 1, true, false) == 1000 * EACH, "each charge in a write of its own");
	CHECK(wait_for(1000, 1, false, true) == 1000 * EACH, "each charge in a fault of its own");
	/* Calls without a count: the same amount in each while. */
	CHECK(wait_for(10000, 1, false, false) >= 3 * MOST, "a worker is not let off for ever");
	CHECK(wait_for(10000, 1, false, false) <= 10000 / WHILE * 2 * MOST, "a worker is bounded too");
}

int main(void)
{
	a_wait_is_bounded_for_a_write_and_not_for_each_charge_in_it();
	what_is_dirtied_is_charged();
	what_goes_past_the_cache_is_not_charged(false, 0.9999, 1.0001);
	what_goes_past_the_cache_is_not_charged(true, 0.999, 1.08);
	puts("charge: dirtied pages are charged, and only those; a write waits once");
	return 0;
}
