/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Delays that widen races, and checks whether they were lost; for a module that a test builds (JUSTITIA_TEST)
 */
#include <linux/delay.h>

/* Slots are freed after this. */
#define FORGOTTEN (HZ / 2)

/* The counters of a bdi_writeback that is freed here are gone: the pointer is NULL. */
#define jg_inject_before_sum(wb) do { \
	mdelay(2); \
	WARN_ON_ONCE(!(wb)->stat[WB_WRITEBACK].counters); \
} while (0)

/* Time for a task to find a device while it is being forgotten. */
#define jg_inject_forget() msleep(300)
