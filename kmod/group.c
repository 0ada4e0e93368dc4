// SPDX-License-Identifier: GPL-2.0
/*
 * Weights by cgroup id, and a group's account at each device it writes to.
 *
 * A writer belongs to the nearest ancestor of its cgroup (including that cgroup) that has a weight; without
 * one it passes freely. The weight of the root cgroup applies to every writer without another. Groups are
 * looked up by id, never by path: a cgroup that is created anew is another one.
 */
#include <linux/cgroup.h>
#include <linux/hashtable.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "abi.h"
#include "device.h"
#include "gate.h"
#include "group.h"
#include "main.h"

#define JG_GROUPS_MAX 8192

static DEFINE_HASHTABLE(groups, 10);
/* Removed, perhaps still in use. With jg_mutex. */
static struct jg_group *hidden;

/* Under RCU. */
static struct jg_group *find(u64 id)
{
	struct jg_group *group;

	hash_for_each_possible_rcu(groups, group, node, id)
		if (group->id == id)
			return group;
	return NULL;
}

/* The group of the current task; NULL: it passes. Under RCU. */
struct jg_group *jg_group_of_current(void)
{
	struct cgroup *cgroup;

	for (cgroup = task_dfl_cgroup(current); cgroup; cgroup = cgroup_parent(cgroup)) {
		struct jg_group *group = find(cgroup_id(cgroup));

		if (group)
			return group;
	}
	return NULL;
}

/* The group's account at a device, created if there is none; NULL: no memory. Under RCU. */
struct jg_member *jg_member_of(struct jg_group *group, struct jg_device *device)
{
	struct jg_member **place = &group->members[device->slot];
	struct jg_member *member = READ_ONCE(*place), *other;

	if (member)
		return member;
	member = kzalloc(sizeof(*member), GFP_NOWAIT | __GFP_NOWARN);
	if (!member)
		return NULL;
	member->group = group;
	member->device = device;
	INIT_LIST_HEAD(&member->node);
	spin_lock_bh(&device->lock);
	other = READ_ONCE(*place);
	if (!other) {
		jq_group_init(&member->q, READ_ONCE(group->weight));
		list_add(&member->node, &device->members);
		smp_store_release(place, member);
	}
	spin_unlock_bh(&device->lock);
	if (other) {
		kfree(member);
		member = other;
	}
	return member;
}

void jg_group_put(struct jg_group *group)
{
	int i;

	if (!refcount_dec_and_test(&group->refs))
		return;
	for (i = 0; i < JG_DEVICES; i++)
		if (group->members[i])
			kfree_rcu(group->members[i], rcu);
	kfree_rcu(group, rcu);
}

static void find_heaviest(void)
{
	struct jg_group *group;
	u32 heaviest = 0;
	int bucket;

	hash_for_each(groups, bucket, group, node)
		heaviest = max(heaviest, group->weight);
	WRITE_ONCE(jg.heaviest, heaviest);
}

/* The weight of a cgroup; 0: none. Any context. */
u32 jg_group_weight(u64 id)
{
	struct jg_group *group;
	u32 weight;

	rcu_read_lock();
	group = find(id);
	weight = group ? READ_ONCE(group->weight) : 0;
	rcu_read_unlock();
	return weight;
}

/* New lookups no longer find the group. With jg_mutex. */
static void hide(struct jg_group *group)
{
	hash_del_rcu(&group->node);
	jg.groups--;
	group->next_hidden = hidden;
	hidden = group;
}

/* Retires all removed groups after one common grace period, after which nobody opens another account. Their
 * waiters pass; a task that still holds a reference finds the account dead. With jg_mutex; sleeps. */
void jg_groups_retire(void)
{
	struct jg_group *group;
	int i;

	if (!hidden)
		return;
	synchronize_rcu();
	while ((group = hidden)) {
		hidden = group->next_hidden;
		for (i = 0; i < JG_DEVICES; i++)
			if (group->members[i])
				jg_let_group_go(group->members[i]);
		jg_group_put(group);
	}
}

static void change(struct jg_group *group, u32 weight)
{
	int i;

	WRITE_ONCE(group->weight, weight);
	for (i = 0; i < JG_DEVICES; i++) {
		struct jg_device *device = &jg_devices[i];
		struct jg_member *member;

		spin_lock_bh(&device->lock);
		member = group->members[i];
		if (member)
			jq_set_weight(&device->queue, &member->q, weight);
		spin_unlock_bh(&device->lock);
	}
}

/* Sets or changes a weight; weight 0 removes the group. With jg_mutex; sleeps. */
int jg_group_set(u64 id, u32 weight)
{
	struct jg_group *group;
	int error = 0;

	if (!id || weight > JQ_WEIGHT_MAX)
		return -EINVAL;
	rcu_read_lock();
	group = find(id);
	rcu_read_unlock();
	if (!weight) {
		if (!group)
			return -ENOENT;
		hide(group);
		/* Together with all others that are removed meanwhile. */
		jg_put_away();
	} else if (group) {
		change(group, weight);
	} else if (jg.groups >= JG_GROUPS_MAX) {
		error = -ENOSPC;
	} else {
		group = kzalloc(sizeof(*group), GFP_KERNEL);
		if (!group)
			return -ENOMEM;
		group->id = id;
		group->weight = weight;
		refcount_set(&group->refs, 1);
		hash_add_rcu(groups, &group->node, id);
		jg.groups++;
	}
	find_heaviest();
	return error;
}

/* With jg_mutex; sleeps. */
void jg_groups_forget(void)
{
	struct jg_group *group;
	struct hlist_node *next;
	int bucket;

	hash_for_each_safe(groups, bucket, next, group, node)
		hide(group);
	jg_groups_retire();
	find_heaviest();
}

/* Closes all accounts at a device that is no longer used. With jg_mutex. */
void jg_members_drop(struct jg_device *device)
{
	struct jg_member *member, *next;

	spin_lock_bh(&device->lock);
	list_for_each_entry_safe(member, next, &device->members, node) {
		list_del_init(&member->node);
		WRITE_ONCE(member->group->members[device->slot], NULL);
		kfree_rcu(member, rcu);
	}
	spin_unlock_bh(&device->lock);
}

/* Lists accounts of groups that have a weight; returns how many there are. With jg_mutex. */
u32 jg_members_list(struct justitia_member *to, u32 capacity)
{
	struct jg_group *group;
	u32 count = 0;
	int bucket, i;

	hash_for_each(groups, bucket, group, node) {
		for (i = 0; i < JG_DEVICES; i++) {
			struct jg_device *device = &jg_devices[i];
			struct jg_member *member;

			spin_lock_bh(&device->lock);
			member = group->members[i];
			if (member && count < capacity)
				to[count] = (struct justitia_member){
					.cgroup_id = group->id,
					.bdi_id = READ_ONCE(device->bdi_id),
					.weight = group->weight,
					.waiting = member->q.waiting,
					.pages = atomic64_read(&member->pages),
					.waits = member->waits,
					.wait_ns = member->wait_ns,
					.timed_out = member->timed_out,
				};
			count += member != NULL;
			spin_unlock_bh(&device->lock);
		}
	}
	return count;
}
