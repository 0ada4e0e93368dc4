/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations that the parts of the module share.
 *
 *   main.c     load and unload, the gate's state, the clock that supervises it
 *   hook.c     the redirected functions; who must not wait; pages dirtied by a task
 *   gate.c     credits: who passes, who waits, who is granted; opens a device without progress
 *   device.c   backing devices, their dirty pages and setpoints
 *   group.c    weights by cgroup, and a group's account at a device
 *   control.c  /dev/justitia
 *   queue.h    the order of the waiters
 *   pace.h     how many pages may be granted now
 *   charge.h   how many pages a task has dirtied
 *
 * Locks, outermost first: jg_mutex (settings; groups and devices come and go), devices_lock (a slot is
 * claimed), jg_device.lock (queue and accounts; the timer takes it in softirq, so everywhere else takes it
 * with _bh). RCU protects groups, members and the claim on a device slot against readers in the hook.
 */
#ifndef JUSTITIA_H
#define JUSTITIA_H

#include <linux/atomic.h>
#include <linux/backing-dev.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/timer.h>

#include "abi.h"

/* Only gate.c uses the queue's shell; it defines JQ_SHELL. */
#define JQ_SLEEPER
struct jq_sleeper {
	struct task_struct *task;
	struct inode *inode;		/* the file it writes */
	u64 alone;			/* jiffies until which it may wait while others want the inode */
};
#include "queue.h"
#include "pace.h"

#define JG_DEVICES 64
#define JG_GROUPS_MAX 8192
/* Writers of a light group wait longer than those of the heaviest, up to this factor. */
#define JG_TIMEOUT_FACTOR 10

#undef pr_fmt
#define pr_fmt(fmt) "justitia: " fmt

struct jg_group;

/* A group's account at a device. */
struct jg_member {
	struct jq_group q;		/* device lock */
	struct jg_group *group;
	struct jg_device *device;
	atomic_long_t pool;		/* pages granted and not yet dirtied; negative: owed */
	atomic64_t pages;
	struct list_head node;		/* in jg_device.members, device lock */
	bool dead;			/* device lock: no new waiters */
	s64 swept_pages;		/* pages at the last check for unused credits */
	s64 looked_pages;		/* pages at the clock's last look */
	u64 waits;
	u64 wait_ns;
	u64 timed_out;
	struct rcu_head rcu;
};

struct jg_group {
	u64 id;
	u32 weight;
	refcount_t refs;
	struct hlist_node node;		/* jg_mutex; read under RCU */
	struct jg_group *next_hidden;	/* jg_mutex, once it is removed */
	struct jg_member *members[JG_DEVICES];
	struct rcu_head rcu;
};

/* A device's progress at one time. */
struct jg_progress {
	unsigned long at;		/* jiffies */
	u64 turn;			/* grants of its queue */
	s64 left;			/* jg_left() */
};

/* Pages of a device, over all its bdi_writebacks. */
struct jg_counts {
	u64 dirty, writeback;
	u64 dirtied, written;		/* since the device appeared */
	u32 visited;			/* bdi_writebacks */
};

/* Pages that have left the device since it appeared: written, or dropped with deleted files. */
static inline s64 jg_left(const struct jg_counts *pages)
{
	return (s64)(pages->dirtied - pages->dirty - pages->writeback);
}

struct jg_device {
	u64 bdi_id;			/* 0: free. Set last, read under RCU */
	struct backing_dev_info *bdi;	/* a reference */
	int slot;
	atomic_t users;			/* tasks between leaving RCU and their last look */
	spinlock_t lock;
	/* The lock protects everything below. */
	struct jq_queue queue;
	struct timer_list timer;
	struct list_head members;
	unsigned long stamp;		/* jiffies of the last look */
	unsigned long count_at;		/* when its pages are counted again */
	unsigned long every;		/* jiffies from one count to the next */
	struct jp_budget budget;
	struct jp_rates rates;		/* written by the clock, per jiffy */
	struct jg_counts pages;		/* at the last count */
	u64 unspent;
	unsigned long sweep_at;
	unsigned long stuck_since;	/* jiffies; over the setpoint with nothing in flight; 0: not stuck */
	struct jg_progress hung;	/* at the start of the first of the waits without progress */
	unsigned long rests_at;		/* next check whether nothing is in flight */
	bool rests;
	unsigned long open_until;
	bool open;
	struct task_struct *holder;	/* of the turn to insert; compared only */
	u64 timed_out, killed, opened;
	u64 longest_wait_ns;
	/* Written by the clock only. */
	u64 setpoint;			/* read with READ_ONCE */
	unsigned long looked_at;	/* jiffies */
	struct jg_counts looked;	/* its pages at the clock's last look */
	u64 rate;			/* written, in 1/256 pages per look, smoothed over seconds */
	u64 drained;			/* written or dropped, same unit, smoothed over less than a second */
	u64 outside;			/* dirtied by tasks that are not charged, same unit */
	unsigned long used_at;		/* jiffies of the last call, written by the hook */
};

struct jg_state {
	int open_reason;		/* JUSTITIA_OPEN_* or 0: closed */
	unsigned long deadline;		/* of the heartbeat, jiffies */
	struct justitia_config config;
	u64 background, freerun, setpoint;	/* pages; 0: unknown */
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
extern struct jg_device jg_devices[JG_DEVICES];

/* Whether the gate is closed now. Any context. */
static inline bool jg_closed(void)
{
	return !READ_ONCE(jg.open_reason) && time_before(jiffies, READ_ONCE(jg.deadline));
}

/* main.c. With jg_mutex; may sleep. */
void jg_set_enabled(bool enabled);
void jg_decide_open(void);
void jg_set_config(const struct justitia_config *config);
void jg_forget(void);
void jg_put_away(void);

/* hook.c. May sleep. */
int jg_hook_attach(void);
void jg_hook_detach(void);
bool jg_hook_empty(void);
u64 jg_hook_calls(bool passed);

/* gate.c */
int jg_admit(struct address_space *mapping, long pages, bool nowait, u32 *waited);
struct jg_device *jg_turn_begin(struct address_space *mapping, long pages);
void jg_turn_end(struct jg_device *device);
void jg_let_everybody_go(struct jg_device *device);
void jg_let_group_go(struct jg_member *member);
void jg_tick(struct timer_list *timer);
void jg_refresh(struct jg_device *device);

/* device.c */
void jg_devices_init(void);
struct jg_device *jg_device_of(struct backing_dev_info *bdi);
struct jg_counts jg_device_count(struct jg_device *device);
bool jg_device_rests(struct jg_device *device);
bool jg_devices_in_use(void);
void jg_devices_order(void);
void jg_devices_look(void);
void jg_devices_forget(void);
bool jg_read_thresholds(void);

/* group.c */
struct jg_group *jg_group_of_current(void);
struct jg_member *jg_member_of(struct jg_group *group, struct jg_device *device);
void jg_group_put(struct jg_group *group);
int jg_group_set(u64 id, u32 weight);
void jg_groups_forget(void);
void jg_groups_retire(void);
u32 jg_group_weight(u64 id);
void jg_members_drop(struct jg_device *device);
u32 jg_members_list(struct justitia_member *to, u32 capacity);

/* control.c */
int jg_control_init(void);
void jg_control_exit(void);

#endif
