// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The cost of ordering: the queue, in each order, against a FIFO MCS lock with parked waiters.
 *
 * Each thread takes its turn, holds it for a moment and queues again. In both queues the waiter parks on a
 * futex, and the thread that ends its turn wakes the next. The MCS queue is one atomic exchange and has no
 * weights; the weighted queue takes a lock around its heap. Run with `make -C kmod bench`.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define JQ_SHELL
struct jq_sleeper {
	int woken;
};
#include "../queue.h"

static long futex(int *word, int op, int value)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void wait_for(int *word)
{
	while (!__atomic_load_n(word, __ATOMIC_ACQUIRE))
		futex(word, FUTEX_WAIT, 0);
}

static void post(int *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	futex(word, FUTEX_WAKE, 1);
}

/* ---- the weighted queue ---- */

static struct jq_queue queue;
static struct jq_group *groups;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool taken;

static void jq_lock(struct jq_queue *q)
{
	(void)q;
	pthread_mutex_lock(&lock);
}

static void jq_unlock(struct jq_queue *q)
{
	(void)q;
	pthread_mutex_unlock(&lock);
}

static enum jq_wakeup jq_park(struct jq_waiter *w, u64 deadline)
{
	(void)deadline;
	wait_for(&w->sleeper.woken);
	return JQ_WOKEN;
}

static void jq_wake(struct jq_waiter *w)
{
	post(&w->sleeper.woken);
}

static void weighted_turn(int thread)
{
	struct jq_waiter w = { 0 };

	jq_lock(&queue);
	jq_enqueue(&queue, &groups[thread], &w, 1);
	if (!taken) {
		taken = true;
		jq_pump(&queue, 1);
	}
	jq_unlock(&queue);
	jq_wait(&queue, &w, 0);
}

static void weighted_end(void)
{
	jq_lock(&queue);
	taken = jq_pump(&queue, 1) == 0;
	jq_unlock(&queue);
}

/* ---- the MCS queue ---- */

struct mcs {
	struct mcs *next;
	int woken;
};

static struct mcs *tail;

static void mcs_turn(struct mcs *self)
{
	struct mcs *before;

	self->next = NULL;
	self->woken = 0;
	before = __atomic_exchange_n(&tail, self, __ATOMIC_ACQ_REL);
	if (!before)
		return;
	__atomic_store_n(&before->next, self, __ATOMIC_RELEASE);
	wait_for(&self->woken);
}

static void mcs_end(struct mcs *self)
{
	struct mcs *expected = self, *next = __atomic_load_n(&self->next, __ATOMIC_ACQUIRE);

	if (!next) {
		if (__atomic_compare_exchange_n(&tail, &expected, NULL, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			return;
		while (!(next = __atomic_load_n(&self->next, __ATOMIC_ACQUIRE)))
			sched_yield();
	}
	post(&next->woken);
}

/* ---- the measurement ---- */

static enum { MCS, WEIGHTED } kind;
static int rounds;

static void *taker(void *argument)
{
	int thread = (int)(size_t)argument;
	volatile int work = 0;

	for (int i = 0; i < rounds; i++) {
		struct mcs self;

		kind == MCS ? mcs_turn(&self) : weighted_turn(thread);
		while (work++ % 64)
			;
		kind == MCS ? mcs_end(&self) : weighted_end();
	}
	return NULL;
}

static double measure(int threads)
{
	pthread_t ids[1024];
	struct timespec begin, end;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (int i = 0; i < threads; i++)
		pthread_create(&ids[i], NULL, taker, (void *)(size_t)i);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &end);
	return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
	       (double)threads / rounds;
}

int main(void)
{
	static const char *const names[] = { "fifo", "aging", "stride" };

	puts("nanoseconds per turn; best of three");
	puts("threads      mcs     fifo    aging   stride");
	for (int threads = 1; threads <= 256; threads *= 4) {
		printf("%7d", threads);
		rounds = 200000 / threads;
		groups = calloc((size_t)threads, sizeof(*groups));
		for (int column = -1; column < (int)(sizeof(names) / sizeof(*names)); column++) {
			double best = 1e30;

			for (int i = 0; i < 3; i++) {
				double took;

				kind = column < 0 ? MCS : WEIGHTED;
				taken = false;
				jq_queue_init(&queue);
				jq_set_order(&queue, column < 0 ? JQ_FIFO : (enum jq_order)column, 100, 0);
				for (int g = 0; g < threads; g++)
					jq_group_init(&groups[g], 100u * (1 + (u32)g % 8));
				took = measure(threads);
				best = took < best ? took : best;
			}
			printf(" %8.0f", best);
		}
		putchar('\n');
		free(groups);
	}
	return 0;
}
