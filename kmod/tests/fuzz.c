// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Queue and model agree on any sequence of operations, decoded from bytes. Built with libFuzzer: `make -C
 * kmod fuzz` runs it for a minute, SECONDS=N for longer; `make check` runs it briefly.
 */
#include "model.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
	static struct model m;

	model_start(&m);
	play(&m, bytes, length);
	return 0;
}
