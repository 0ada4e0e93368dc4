/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The ABI of /dev/justitia; docs/gate.md explains it.
 *
 * All structures have the same layout on every architecture, contain no padding and change only together with
 * JUSTITIA_GATE_VERSION. A reserved field must be zero (otherwise EINVAL). One process at a time may hold the
 * device open for writing (EBUSY). The gate is closed only while that process holds it and sends heartbeats;
 * closing the file opens the gate and drops weights and settings. Any process that may open the device for
 * reading (root) may query it.
 */
#ifndef JUSTITIA_ABI_H
#define JUSTITIA_ABI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define JUSTITIA_GATE_VERSION 1

/* Order of the queue (queue.h). */
#define JUSTITIA_FIFO 0
#define JUSTITIA_AGING 1
#define JUSTITIA_STRIDE 2

#define JUSTITIA_LENGTHS 12

/* Why the gate is open (lets everybody pass); 0: closed. */
#define JUSTITIA_OPEN_DISABLED 1	/* nobody enabled it */
#define JUSTITIA_OPEN_HEARTBEAT 2	/* no heartbeat in time */
#define JUSTITIA_OPEN_THRESHOLDS 3	/* the kernel's dirty thresholds are not known */

struct justitia_info {
	__u32 version;
	__u32 open_reason;
	__u32 groups;			/* with a weight */
	__u32 devices;			/* that hold a slot */
	__u64 background_pages;		/* the kernel's thresholds; 0: not known */
	__u64 freerun_pages;
	__u64 setpoint_pages;		/* of all devices together */
	__u64 calls;			/* to the redirected function while the gate was closed */
	__u64 passed;			/* of these, passed: must not wait, or group without weight */
	__u64 heartbeats;
	__u64 heartbeats_lost;
	__u64 devices_refused;		/* calls for devices that got no slot */
};

struct justitia_group {
	__u64 cgroup_id;
	__u32 weight;			/* 1..10000; 0 deletes */
	__u32 reserved;
};

struct justitia_config {
	__u32 order;
	__u32 aging;			/* N, 0..10000; 0: the highest weight always goes next */
	__u32 lag_pages;		/* catch-up of a group of weight 100, up to 2^20 */
	__u32 setpoint_permille;	/* from the background threshold (0) to the limit (1000): 1..999 */
	__u32 batch_pages;		/* pages per grant, 1..4096 */
	__u32 timeout_ms;		/* longest wait in the group with the highest weight, 10..10000 */
	__u32 heartbeat_ms;		/* 100..60000 */
	__u32 reserved;
};

struct justitia_device {
	__u64 bdi_id;
	__u32 major;			/* 0:0: the device has no number */
	__u32 minor;
	__u64 setpoint_pages;
	__u64 dirty_pages;
	__u64 writeback_pages;
	__u64 unspent_pages;
	__s64 budget_pages;
	__u64 enqueued;
	__u64 granted;
	__u64 reordered;
	__u64 timed_out;
	__u64 killed;
	__u64 opened;			/* times it was opened because it made no progress */
	__u64 longest_wait_ns;
	__u32 waiting;
	__u32 longest_queue;
	__u64 lengths[JUSTITIA_LENGTHS];	/* queue length after each arrival: 1, 2-3, 4-7, ... */
};

struct justitia_member {
	__u64 cgroup_id;
	__u64 bdi_id;
	__u32 weight;
	__u32 waiting;
	__u64 pages;			/* dirtied */
	__u64 waits;
	__u64 wait_ns;
	__u64 timed_out;
};

/* The kernel stores up to `capacity` records at `buffer` and sets `count` to the number that exist. */
struct justitia_list {
	__u64 buffer;
	__u32 capacity;
	__u32 count;
};

#define JUSTITIA_IOC_INFO _IOR('J', 1, struct justitia_info)
#define JUSTITIA_IOC_DEVICES _IOWR('J', 2, struct justitia_list)
#define JUSTITIA_IOC_MEMBERS _IOWR('J', 3, struct justitia_list)
#define JUSTITIA_IOC_GET_CONFIG _IOR('J', 4, struct justitia_config)
/* These need the device open for writing. */
#define JUSTITIA_IOC_SET_CONFIG _IOW('J', 5, struct justitia_config)
#define JUSTITIA_IOC_SET_GROUP _IOW('J', 6, struct justitia_group)
#define JUSTITIA_IOC_ENABLE _IOW('J', 7, __u32)
#define JUSTITIA_IOC_HEARTBEAT _IO('J', 8)

#endif
