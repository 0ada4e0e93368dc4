// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Threads that enqueue, time out, are killed, and change weights and orders concurrently.
 *
 * Built twice, with ThreadSanitizer and with AddressSanitizer: waiters live on stacks that go away as soon as
 * jq_wait() returns. Credits are conserved: the thread that waited for a page accounts for it.
 * Usage: torture [MILLISECONDS] (1500)
 */
#include <unistd.h>

#include "check.h"
#include "shell.h"

#define THREADS 12
#define GROUPS 4

static struct gate gate;
static struct jq_group groups[GROUPS];
static u64 granted_pages;	/* by the pump, under the gate's lock */
static u64 received_pages;	/* by those who waited, atomic */
static u64 ends[3];		/* atomic */
static int stop;
static struct jq_waiter *victim;	/* under the gate's lock */

static void *writer(void *argument)
{
	unsigned long long seed = (unsigned long long)(size_t)argument;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		u32 cost = 1 + draw(&seed) % 32;
		struct jq_waiter w;
		enum jq_end end;

		sleeper_init(&w);
		jq_lock(&gate.queue);
		jq_enqueue(&gate.queue, &groups[draw(&seed) % GROUPS], &w, cost);
		if (draw(&seed) % 8 == 0)
			victim = &w;
		jq_unlock(&gate.queue);
		end = jq_wait(&gate.queue, &w, now_ns() + draw(&seed) % 300000);
		jq_lock(&gate.queue);
		if (victim == &w)
			victim = NULL;
		jq_unlock(&gate.queue);
		if (end == JQ_END_GRANTED)
			__atomic_fetch_add(&received_pages, cost, __ATOMIC_RELAXED);
		__atomic_fetch_add(&ends[end], 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *pump(void *argument)
{
	unsigned long long seed = 77;

	(void)argument;
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		s64 budget = (s64)(draw(&seed) % 200);

		jq_lock(&gate.queue);
		granted_pages += (u64)(budget - jq_pump(&gate.queue, budget));
		jq_unlock(&gate.queue);
		usleep(draw(&seed) % 100);
	}
	return NULL;
}

static void *meddler(void *argument)
{
	unsigned long long seed = 99;

	(void)argument;
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		jq_lock(&gate.queue);
		switch (draw(&seed) % 4) {
		case 0:
			jq_set_order(&gate.queue, draw(&seed) % 3, 100, 1024);
			break;
		case 1:
			jq_set_weight(&gate.queue, &groups[draw(&seed) % GROUPS], draw(&seed) % 11000);
			break;
		case 2:
			jq_charge(&gate.queue, &groups[draw(&seed) % GROUPS], draw(&seed) % 64);
			break;
		default:
			if (victim) {
				__atomic_store_n(&victim->sleeper.killed, 1, __ATOMIC_RELEASE);
				jq_wake(victim);
			}
		}
		jq_unlock(&gate.queue);
		usleep(draw(&seed) % 200);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned milliseconds = argc > 1 ? (unsigned)atoi(argv[1]) : 1500;
	pthread_t threads[THREADS + 2];

	jq_queue_init(&gate.queue);
	pthread_mutex_init(&gate.lock, NULL);
	for (int i = 0; i < GROUPS; i++)
		jq_group_init(&groups[i], 100u << i);
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, writer, (void *)(i + 1));
	pthread_create(&threads[THREADS], NULL, pump, NULL);
	pthread_create(&threads[THREADS + 1], NULL, meddler, NULL);
	usleep(milliseconds * 1000);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < THREADS + 2; i++)
		pthread_join(threads[i], NULL);
	CHECK(granted_pages == received_pages, "%llu granted, %llu received",
	      (unsigned long long)granted_pages, (unsigned long long)received_pages);
	CHECK(!gate.queue.length && !gate.queue.root && !gate.queue.oldest, "somebody still waits");
	CHECK(gate.queue.stats.granted == ends[JQ_END_GRANTED], "a grant was lost");
	for (int i = 0; i < 3; i++)
		CHECK(ends[i], "no wait ended like %d", i);
	printf("torture: %llu granted, %llu timed out, %llu killed\n", (unsigned long long)ends[0],
	       (unsigned long long)ends[1], (unsigned long long)ends[2]);
	return 0;
}
