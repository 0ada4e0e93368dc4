/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The state of the gate as a whole.
 *
 *   main.c     load and unload, the gate's state, the clock that supervises it
 *   hook.c     the redirected functions; tasks that must not wait; pages dirtied by a task
 *   gate.c     credits: who passes, who waits, who is granted; opens a device without progress
 *   device.c   backing devices, their dirty pages and setpoints
 *   group.c    weights by cgroup, and a group's account at a device
 *   control.c  /dev/justitia
 *   queue.h    the order of the waiters
 *   pace.h     the number of pages that may be granted now
 *   charge.h   the number of pages that a task has dirtied
 *
 * Each header declares what its C file offers to the others.
 *
 * Locks, outermost first: jg_mutex (settings; groups and devices come and go), devices_lock (a slot is
 * claimed), jg_device.lock (queue and accounts; the timer takes it in softirq, so everywhere else takes it
 * with _bh). RCU protects groups, members and the claim on a device slot against readers in the hook.
 */
#ifndef JUSTITIA_MAIN_H
#define JUSTITIA_MAIN_H

#include <linux/atomic.h>
#include <linux/jiffies.h>
#include <linux/mutex.h>

#include "abi.h"

struct pid;

struct jg_state {
	int open_reason;		/* JUSTITIA_OPEN_* or 0: closed */
	unsigned long deadline;		/* of the heartbeat, jiffies */
	struct justitia_config config;	/* written with jg_mutex by jg_configure() */
	u64 background, freerun;	/* pages; 0: unknown */
	u64 least, most, setpoint;	/* pages; the setpoint lies between the two; 0: unknown */
	u32 heaviest;			/* weight */
	u32 groups;
	bool enabled;
	bool pinned;			/* holds a module reference for tasks that may be inside */
	struct pid *holder;		/* process that holds the device; jg_mutex, compared without it */
	unsigned long thresholds_at;	/* jiffies; when the thresholds were read */
	bool insertion;			/* which function is redirected; set once, before the redirection */
	u64 heartbeats, heartbeats_lost;
	atomic64_t devices_refused;
};

extern struct jg_state jg;
extern struct mutex jg_mutex;

/* True while the gate is closed. Any context. */
static inline bool jg_closed(void)
{
	return !READ_ONCE(jg.open_reason) && time_before(jiffies, READ_ONCE(jg.deadline));
}

/* With jg_mutex; may sleep. */
void jg_set_enabled(bool enabled);
void jg_configure(const struct justitia_config *config);
void jg_decide_open(void);
void jg_forget(void);
void jg_put_away(void);

#endif
