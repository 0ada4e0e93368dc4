// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * A model check of the shell: every interleaving of a few threads, run on the real code.
 *
 * The real jq_wait(), jq_pump() and queue run as coroutines. They can be interrupted wherever another thread
 * could see a difference: before the lock is taken, between a grant and its wake-up, between a waiter's check
 * for a grant and its announcement to sleep, and between that and sleeping. The choices (which thread
 * continues, whether a sleeper times out, is killed or wakes spuriously) determine a run. All sequences of
 * choices are tried, depth first, by replay. The model is sequentially consistent; torture.c under
 * ThreadSanitizer covers weaker ordering.
 *
 * Usage: explore [WAITERS [PREEMPTIONS]] (2, 3). With 2 and 1000 it tries all interleavings, in some minutes.
 *
 * Sleeping is modeled after the kernel: a task announces that it will sleep, then checks once more. A wake-up
 * after the announcement makes the sleep return at once.
 *
 * Checked in every run: no granted waiter sleeps forever (no lost wake-up); no other thread touches a frame
 * once its wait has returned; the pages that the pump granted are those that the waits received; a waiter
 * that was not granted is no longer in the queue; every thread ends.
 */
#include <stdbool.h>
#include <string.h>
#include <ucontext.h>

#include "check.h"

#define JQ_SHELL
struct jq_sleeper {
	int thread;
	bool asleep;		/* announced its sleep, and nobody has woken it since */
};
#include "../queue.h"

#define THREADS 4
#define DEPTH 200

/* ---- the explorer ---- */

static ucontext_t scheduler, contexts[THREADS];
static char stacks[THREADS][16384];
static enum { READY, SLEEPING, BLOCKED, ENDED } states[THREADS];
static int running, holder;
static int choices[DEPTH], limits[DEPTH], depth;
static unsigned long long runs, steps;
/* Switches away from a thread that could continue; a forced switch is free. */
static int preemptions, most_preemptions;

/* One of n, by the run's plan; a new choice starts with 0. */
static int choose(int n)
{
	CHECK(depth < DEPTH, "a run of more than %d choices", DEPTH);
	limits[depth] = n;
	return choices[depth++];
}

/* Advances to the next sequence of choices; false when all were tried. */
static bool advance(void)
{
	for (int i = depth - 1; i >= 0; i--) {
		if (++choices[i] < limits[i]) {
			memset(&choices[i + 1], 0, sizeof(choices) - sizeof(int) * (size_t)(i + 1));
			return true;
		}
	}
	return false;
}

static void interrupted(void)
{
	int self = running;

	swapcontext(&contexts[self], &scheduler);
}

/* ---- the world of the shell ---- */

static struct jq_queue queue;
static struct jq_group groups[2];
static bool framed[THREADS];	/* the thread's waiter is alive */
static u64 given, received;
static int spurious;		/* spurious wake-ups still to come */

static void jq_lock(struct jq_queue *q)
{
	(void)q;
	interrupted();
	while (holder >= 0) {
		states[running] = BLOCKED;
		interrupted();
	}
	holder = running;
}

static void jq_unlock(struct jq_queue *q)
{
	(void)q;
	CHECK(holder == running, "unlocked by another");
	holder = -1;
	for (int i = 0; i < THREADS; i++)
		if (states[i] == BLOCKED)
			states[i] = READY;
}

static void jq_wake(struct jq_waiter *w)
{
	CHECK(holder == running, "woken without the lock");
	/* Marked, not yet woken: a waiter that looks now sees its grant and must not leave. */
	interrupted();
	CHECK(framed[w->sleeper.thread], "a frame that is gone was touched");
	w->sleeper.asleep = false;
	states[w->sleeper.thread] = READY;
}

static enum jq_wakeup jq_park(struct jq_waiter *w, u64 deadline)
{
	(void)deadline;
	interrupted();
	w->sleeper.asleep = true;
	if (jq_granted(w)) {
		w->sleeper.asleep = false;
		return JQ_WOKEN;
	}
	interrupted();
	if (w->sleeper.asleep) {
		/* A wake-up ends this sleep, or one of these. The queue does not distinguish a time-out from
		 * a signal, so some threads get the one and some the other. */
		switch (choose(spurious ? 3 : 2)) {
		case 1:
			return running % 2 ? JQ_TIMED_OUT : JQ_KILLED;
		case 2:
			spurious--;
			return JQ_WOKEN;
		}
		states[running] = SLEEPING;
		interrupted();
	}
	return JQ_WOKEN;
}

static void waiter(int thread)
{
	struct jq_waiter w;
	enum jq_end end;

	memset(&w, 0, sizeof(w));
	w.sleeper.thread = thread;
	framed[thread] = true;
	jq_lock(&queue);
	jq_enqueue(&queue, &groups[thread % 2], &w, 2);
	jq_unlock(&queue);
	end = jq_wait(&queue, &w, 0);
	framed[thread] = false;
	for (struct jq_waiter *other = queue.oldest; other; other = other->younger)
		CHECK(other != &w, "it left and is still in the queue");
	CHECK((end == JQ_END_GRANTED) == (w.state == JQ_GRANTED), "the end contradicts the state");
	received += end == JQ_END_GRANTED ? w.cost : 0;
	memset(&w, 0x5a, sizeof(w));
}

/* Grants one at a time until no waiter is left. */
static void pump(int thread)
{
	bool others = true;

	(void)thread;
	while (others) {
		jq_lock(&queue);
		given += 2 - (u64)jq_pump(&queue, 2);
		jq_unlock(&queue);
		others = false;
		for (int i = 1; i < THREADS; i++)
			others |= states[i] != ENDED;
		/* A round matters only when something waits; until then the pump sleeps. If the waiter has
		 * left by the time the pump has the lock, that is a round of its own. */
		if (others && !queue.length) {
			states[0] = SLEEPING;
			interrupted();
		}
	}
}

static void thread_main(int thread)
{
	thread ? waiter(thread) : pump(thread);
	states[thread] = ENDED;
	interrupted();
}

/* One run. A thread can continue unless it sleeps or is blocked on a held lock. */
static void run(int threads)
{
	volatile bool begun = false;

	depth = 0;
	preemptions = 0;
	holder = -1;
	given = received = 0;
	spurious = 1;
	jq_queue_init(&queue);
	jq_group_init(&groups[0], 100);
	jq_group_init(&groups[1], 800);
	for (int i = 0; i < THREADS; i++) {
		states[i] = i < threads ? READY : ENDED;
		framed[i] = false;
		getcontext(&contexts[i]);
		contexts[i].uc_stack.ss_sp = stacks[i];
		contexts[i].uc_stack.ss_size = sizeof(stacks[i]);
		contexts[i].uc_link = &scheduler;
		makecontext(&contexts[i], (void (*)(void))thread_main, 1, i);
	}
	for (;;) {
		int ready[THREADS], count = 0;
		bool pumps = states[0] == SLEEPING;

		for (int i = 1; i < threads; i++) {
			if (states[i] == READY)
				ready[count++] = i;
			/* The last waiter has ended: the pump may notice. */
			pumps &= states[i] == ENDED;
		}
		if (states[0] == SLEEPING && (queue.length || pumps))
			states[0] = READY;
		if (states[0] == READY)
			ready[count++] = 0;
		if (!count)
			break;
		if (states[running] == READY && preemptions == most_preemptions && begun) {
			/* goes on */
		} else {
			int next = ready[count > 1 ? choose(count) : 0];

			preemptions += begun && states[running] == READY && next != running;
			running = next;
		}
		begun = true;
		steps++;
		swapcontext(&scheduler, &contexts[running]);
	}
	for (int i = 0; i < threads; i++)
		CHECK(states[i] == ENDED, "thread %d sleeps for ever", i);
	CHECK(given == received, "%llu pages given, %llu received", (unsigned long long)given,
	      (unsigned long long)received);
	CHECK(!queue.length && !queue.root && !queue.oldest && !queue.youngest, "somebody is left");
	runs++;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) + 1 : 3;

	most_preemptions = argc > 2 ? atoi(argv[2]) : 3;

	CHECK(threads >= 2 && threads <= THREADS, "1 to %d waiters", THREADS - 1);
	do
		run(threads);
	while (advance());
	printf("explore: %d waiters and a pump, up to %d preemptions: %llu interleavings, %llu steps\n",
	       threads - 1, most_preemptions, runs, steps);
	return 0;
}
