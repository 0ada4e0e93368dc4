/* SPDX-License-Identifier: GPL-2.0 */
/* Groups with a weight, and their accounts at devices. */
#ifndef JUSTITIA_GROUP_H
#define JUSTITIA_GROUP_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/refcount.h>
#include <linux/types.h>

#include "device.h"
#include "queue.h"

struct jg_group;
struct justitia_member;

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

struct jg_group *jg_group_of_current(void);
struct jg_member *jg_member_of(struct jg_group *group, struct jg_device *device);
void jg_group_put(struct jg_group *group);
int jg_group_set(u64 id, u32 weight);
void jg_groups_forget(void);
void jg_groups_retire(void);
u32 jg_group_weight(u64 id);
void jg_members_drop(struct jg_device *device);
u32 jg_members_list(struct justitia_member *to, u32 capacity);

#endif
