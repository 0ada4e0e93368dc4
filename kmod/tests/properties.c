// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The queue follows its definition in random sequences of operations.
 *
 * Usage: properties [SEEDS]: plays that many sequences (2000) against the model. A failure names its seed.
 */
#include <signal.h>
#include <unistd.h>

#include "model.h"

static unsigned long long seed;

static void tell_seed(int number)
{
	fprintf(stderr, "properties: with seed %llu\n", seed);
	signal(number, SIG_DFL);
	raise(number);
}

int main(int argc, char **argv)
{
	static struct model m;
	static unsigned char bytes[4 * 400];
	unsigned long long seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;

	signal(SIGABRT, tell_seed);
	for (seed = 1; seed <= seeds; seed++) {
		unsigned long long state = seed;
		size_t length = 4 * (1 + draw(&state) % 400);

		for (size_t i = 0; i < length; i++)
			bytes[i] = (unsigned char)draw(&state);
		model_start(&m);
		/* Half of the runs change the order on the way; the others keep the one they start with. */
		play_order(&m, seed % 3, JQ_AGING_DEFAULT, JQ_LAG_DEFAULT);
		if (seed % 2)
			for (size_t i = 0; i < length; i += 4)
				if (bytes[i] % 16 == 15)
					bytes[i]--;
		play(&m, bytes, length);
	}
	printf("properties: %llu sequences agree with the model\n", seeds);
	return 0;
}
