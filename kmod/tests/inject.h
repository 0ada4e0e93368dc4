/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Delays where a race is, and looks whether it was lost: for a module that a test builds (JUSTITIA_TEST).
 */
#include <linux/delay.h>

/* Slots go back after this. */
#define FORGOTTEN (HZ / 2)

/* A bdi_writeback whose counters are freed here gave them no pointer any more. */
#define jg_inject_before_sum(wb) do { \
	mdelay(2); \
	WARN_ON_ONCE(!(wb)->stat[WB_WRITEBACK].counters); \
} while (0)

/* Time for somebody to come to a device while it is being forgotten. */
#define jg_inject_forget() msleep(300)
