/* SPDX-License-Identifier: GPL-2.0 */
/* Backing devices: slots, page counts, setpoints. */
#ifndef JUSTITIA_DEVICE_H
#define JUSTITIA_DEVICE_H

#include <linux/atomic.h>
#include <linux/backing-dev.h>
#include <linux/compiler.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/types.h>

/* Part of each waiter. Only gate.c uses the queue's shell; it defines JQ_SHELL. */
#define JQ_SLEEPER
struct jq_sleeper {
	struct task_struct *task;
	struct inode *inode;		/* the file it writes */
	u64 alone;			/* jiffies until which it may wait while others want the inode */
};
#include "queue.h"
#include "pace.h"

#define JG_DEVICES 64

/* Pages of a bdi_writeback, without the deltas of the CPUs. The kernel adds to the counter unmarked. */
static inline s64 jg_wb_stat(struct bdi_writeback *wb, enum wb_stat_item item)
{
	return data_race(wb_stat(wb, item));
}

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
	u64 bdi_id;			/* 0: free. Set last: jg_device_taken(), jg_device_of() */
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

extern struct jg_device jg_devices[JG_DEVICES];

/* True if the slot has a device. The fields that begin() sets are then visible, with which this pairs. */
static inline bool jg_device_taken(const struct jg_device *device)
{
	return smp_load_acquire(&device->bdi_id);
}

void jg_devices_init(void);
struct jg_device *jg_device_of(struct backing_dev_info *bdi);
struct jg_counts jg_device_count(struct jg_device *device);
bool jg_device_rests(struct jg_device *device);
bool jg_devices_in_use(void);
void jg_devices_order(void);
void jg_devices_look(void);
void jg_devices_forget(void);
bool jg_read_thresholds(void);

#endif
