/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Delays that widen races, and checks whether they were lost; for a module that a test builds (JUSTITIA_TEST)
 */
#include <linux/delay.h>
#include <linux/percpu-refcount.h>

/* Slots are freed after this. */
#define FORGOTTEN (HZ / 2)

/* A look at a bdi_writeback whose cgroup is being removed takes longer than the removal. The counters of one that
 * is freed meanwhile are gone: the pointer is NULL. */
#define jg_inject_before_sum(wb) do { \
	if (percpu_ref_is_dying(&(wb)->refcnt)) \
		mdelay(50); \
	WARN_ON_ONCE(!(wb)->stat[WB_WRITEBACK].counters); \
} while (0)

/* Busy devices are looked at to the end as well, where the newest cgroups are. */
#define jg_inject_visit_all() true

/* Time for a task to find a device while it is being forgotten. */
#define jg_inject_forget() msleep(300)
