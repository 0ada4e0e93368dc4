/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Shared by the tests of the queue: a check that aborts the program, and a small generator of random
 * numbers. */
#ifndef JUSTITIA_TESTS_CHECK_H
#define JUSTITIA_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition, ...)							\
	do {									\
		if (!(condition)) {						\
			fprintf(stderr, "%s:%d: not so: %s: ", __FILE__, __LINE__, #condition); \
			fprintf(stderr, __VA_ARGS__);				\
			fputc('\n', stderr);					\
			abort();						\
		}								\
	} while (0)

/* splitmix64 */
static inline unsigned long long draw(unsigned long long *seed)
{
	unsigned long long z = (*seed += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

#endif
