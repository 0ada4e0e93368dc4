/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The queue's shell on POSIX threads: a mutex, and a condition variable for each sleeper. */
#ifndef JUSTITIA_TESTS_SHELL_H
#define JUSTITIA_TESTS_SHELL_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#define JQ_SHELL
struct jq_sleeper {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool woken;
	int killed;		/* atomic: stands for a signal */
};
#include "../queue.h"

struct gate {
	struct jq_queue queue;	/* first: cast between the two */
	pthread_mutex_t lock;
};

static void jq_lock(struct jq_queue *q)
{
	pthread_mutex_lock(&((struct gate *)q)->lock);
}

static void jq_unlock(struct jq_queue *q)
{
	pthread_mutex_unlock(&((struct gate *)q)->lock);
}

static u64 now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (u64)now.tv_sec * 1000000000ull + (u64)now.tv_nsec;
}

static void sleeper_init(struct jq_waiter *w)
{
	pthread_mutex_init(&w->sleeper.mutex, NULL);
	pthread_cond_init(&w->sleeper.cond, NULL);
	w->sleeper.woken = false;
	w->sleeper.killed = 0;
}

static enum jq_wakeup jq_park(struct jq_waiter *w, u64 deadline)
{
	struct timespec until = { (time_t)(deadline / 1000000000ull), (long)(deadline % 1000000000ull) };
	struct jq_sleeper *s = &w->sleeper;
	enum jq_wakeup why = JQ_WOKEN;

	pthread_mutex_lock(&s->mutex);
	while (!s->woken && why == JQ_WOKEN) {
		if (pthread_cond_timedwait(&s->cond, &s->mutex, &until))
			why = JQ_TIMED_OUT;
	}
	s->woken = false;
	pthread_mutex_unlock(&s->mutex);
	return __atomic_load_n(&s->killed, __ATOMIC_ACQUIRE) ? JQ_KILLED : why;
}

static void jq_wake(struct jq_waiter *w)
{
	struct jq_sleeper *s = &w->sleeper;

	pthread_mutex_lock(&s->mutex);
	s->woken = true;
	pthread_cond_signal(&s->cond);
	pthread_mutex_unlock(&s->mutex);
}

#endif
