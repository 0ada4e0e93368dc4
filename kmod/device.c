// SPDX-License-Identifier: GPL-2.0
/*
 * Backing devices: their dirty pages, and the setpoint of each.
 *
 * The setpoint of all devices together lies between the kernel's background threshold, above which flushers
 * write, and its limit, above which the kernel stops writers: near the limit, because a page that is deleted
 * while dirty need not be written. Above the freerun ceiling ((background + limit) / 2) the kernel throttles
 * the writers that the gate does not order. Each dirty page at a device that the gate does not serve therefore
 * lowers the setpoint by two, down to a level below the freerun ceiling. The thresholds are the kernel's own, from
 * /proc/vmstat, because the functions behind them are not exported. The file is opened on behalf of the
 * process that holds the gate, never by a worker, which may have no root directory. Each device used in the
 * last seconds gets a part of the setpoint in proportion to its writeout rate, as the kernel divides its own
 * limit, and about as slowly (some 3 s). A device that has not written yet gets a sixteenth, or all if it is
 * the only one.
 *
 * Pages are counted over the device's bdi_writebacks (one per cgroup), without the per-CPU deltas of their
 * counters. The totals are part of the bdi_writeback, which is freed under RCU. The per-CPU deltas are freed
 * earlier, so reading them takes a reference.
 */
#include <linux/backing-dev.h>
#include <linux/cgroup.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/math64.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/vmstat.h>

#include "device.h"
#include "gate.h"
#include "group.h"
#include "main.h"

/* A test that builds the module includes tests/inject.h before this file. */
#ifndef JUSTITIA_TEST
#define jg_inject_before_sum(wb) do { } while (0)
#define jg_inject_visit_all() false
#define jg_inject_forget() do { } while (0)
#endif

/* An unused device loses its part of the setpoint after IDLE, and its slot after FORGOTTEN. */
#define IDLE (2 * HZ)
#ifndef FORGOTTEN
#define FORGOTTEN (60 * HZ)
#endif
/* Runs of the clock per second. */
#define LOOKS 5

struct jg_device jg_devices[JG_DEVICES];
static DEFINE_SPINLOCK(devices_lock);

void jg_devices_init(void)
{
	int i;

	for (i = 0; i < JG_DEVICES; i++) {
		struct jg_device *device = &jg_devices[i];

		device->slot = i;
		spin_lock_init(&device->lock);
		timer_setup(&device->timer, jg_tick, 0);
		INIT_LIST_HEAD(&device->members);
		jq_queue_init(&device->queue);
	}
}

static void begin(struct jg_device *device, struct backing_dev_info *bdi, bool alone)
{
	spin_lock_bh(&device->lock);
	jq_queue_init(&device->queue);
	jq_set_order(&device->queue, READ_ONCE(jg.config.order), READ_ONCE(jg.config.aging),
		     READ_ONCE(jg.config.lag_pages));
	device->bdi = bdi_get(bdi);
	device->stamp = jiffies - 1;
	device->count_at = jiffies;
	device->budget = (struct jp_budget){ .pace = JP_FREE };
	device->rates = (struct jp_rates){ 0 };
	device->sweep_at = jiffies;
	device->stuck_since = 0;
	device->hung = (struct jg_progress){ .at = jiffies };
	device->rests_at = jiffies;
	device->open = false;
	device->holder = NULL;
	device->timed_out = device->killed = device->opened = device->longest_wait_ns = 0;
	device->looked = (struct jg_counts){ 0 };
	device->rate = device->drained = device->outside = 0;
	device->used_at = jiffies;
	WRITE_ONCE(device->setpoint, READ_ONCE(jg.setpoint) / (alone ? 1 : 16));
	spin_unlock_bh(&device->lock);
	/* Pairs with the acquire in jg_device_of() and jg_device_taken(). */
	smp_store_release(&device->bdi_id, bdi->id);
}

/* The slot of a device, claimed if it has none; NULL when all are taken. Under RCU; does not sleep. */
struct jg_device *jg_device_of(struct backing_dev_info *bdi)
{
	struct jg_device *free = NULL, *found = NULL;
	bool alone = true;
	int i;

	for (i = 0; i < JG_DEVICES; i++)
		if (smp_load_acquire(&jg_devices[i].bdi_id) == bdi->id)
			return &jg_devices[i];
	spin_lock(&devices_lock);
	for (i = 0; i < JG_DEVICES && !found; i++) {
		if (jg_devices[i].bdi == bdi) {
			found = &jg_devices[i];
			/* It may be on its way out, and must not get a second slot. */
			if (READ_ONCE(found->bdi_id) != bdi->id) {
				spin_unlock(&devices_lock);
				return NULL;
			}
		} else if (jg_devices[i].bdi)
			alone = false;
		else if (!free)
			free = &jg_devices[i];
	}
	if (!found && free) {
		begin(free, bdi, alone);
		found = free;
	}
	spin_unlock(&devices_lock);
	if (!found)
		atomic64_inc(&jg.devices_refused);
	return found;
}

/* Any context; under RCU or with a reference to the device. */
struct jg_counts jg_device_count(struct jg_device *device)
{
	struct jg_counts pages = { 0 };
	struct bdi_writeback *wb;

	rcu_read_lock();
	list_for_each_entry_rcu(wb, &device->bdi->wb_list, bdi_node) {
		pages.dirty += jg_wb_stat(wb, WB_RECLAIMABLE);
		pages.writeback += jg_wb_stat(wb, WB_WRITEBACK);
		pages.dirtied += jg_wb_stat(wb, WB_DIRTIED);
		pages.written += jg_wb_stat(wb, WB_WRITTEN);
		pages.visited++;
	}
	rcu_read_unlock();
	return pages;
}

/* Exact number of pages that a bdi_writeback has in flight; 0 if it is being released. Under RCU. */
static s64 in_flight(struct bdi_writeback *wb)
{
	s64 pages;

	/* The per-CPU counters are freed with the last reference, before the grace period. */
	if (!wb_tryget(wb))
		return 0;
	jg_inject_before_sum(wb);
	pages = wb_stat_sum(wb, WB_WRITEBACK);
	wb_put(wb);
	return pages;
}

/* True if nothing is in flight, exactly. The fast counts are off by some pages per CPU and cgroup; a few
 * nonexistent pages would then look like endless writeback. Any context. */
bool jg_device_rests(struct jg_device *device)
{
	struct bdi_writeback *wb;
	bool rests = true;

	rcu_read_lock();
	list_for_each_entry_rcu(wb, &device->bdi->wb_list, bdi_node) {
		if (jg_wb_stat(wb, WB_WRITEBACK) > wb_stat_error() || in_flight(wb))
			rests = false;
		if (!rests && !jg_inject_visit_all())
			break;
	}
	rcu_read_unlock();
	return rests;
}

/* Frees a device's slot unless somebody uses it. With jg_mutex. */
static bool forget(struct jg_device *device)
{
	u64 id = device->bdi_id;
	struct backing_dev_info *bdi = device->bdi;

	WRITE_ONCE(device->bdi_id, 0);
	/* After this, each task that found the slot has counted itself as a user or has left, and no new one
	 * finds it. */
	synchronize_rcu();
	jg_inject_forget();
	if (atomic_read(&device->users) || READ_ONCE(device->queue.length)) {
		smp_store_release(&device->bdi_id, id);
		return false;
	}
	timer_delete_sync(&device->timer);
	jg_members_drop(device);
	device->setpoint = 0;
	/* From here the slot is free. A new owner inspects it under devices_lock. */
	spin_lock(&devices_lock);
	device->bdi = NULL;
	spin_unlock(&devices_lock);
	bdi_put(bdi);
	return true;
}

/* Pages charged at a device since the last look; adds up the weights of the groups that were active. With
 * jg_mutex. */
static s64 look_at_members(struct jg_device *device, u64 *weights)
{
	struct jg_member *member;
	s64 charged = 0;

	spin_lock_bh(&device->lock);
	list_for_each_entry(member, &device->members, node) {
		s64 pages = atomic64_read(&member->pages);

		if (pages != member->looked_pages || member->q.waiting)
			*weights += READ_ONCE(member->group->weight);
		charged += pages - member->looked_pages;
		member->looked_pages = pages;
	}
	spin_unlock_bh(&device->lock);
	return charged;
}

static bool somebody_waits(struct jg_device *device)
{
	bool waits;

	spin_lock_bh(&device->lock);
	waits = device->queue.length;
	spin_unlock_bh(&device->lock);
	return waits;
}

/* Rates of pages that were written, left, or were dirtied by others since the last look. The sums lose the
 * counters of cgroups that went away; a negative difference counts as 0. With jg_mutex. */
static void look_at_speed(struct jg_device *device)
{
	struct jg_counts now = jg_device_count(device), before = device->looked;
	/* Idle flushers while writers wait say nothing about the device's speed. Counted as slowness, they
	 * would lower the setpoint, and below it the flushers idle even more. */
	bool rests = now.written == before.written && somebody_waits(device) && jg_device_rests(device);
	u64 weights = 0, leaves, others;
	s64 charged = look_at_members(device, &weights);

	/* Pages that left during a long pause are not the rate of one look. */
	if (before.written && !time_after(jiffies, device->looked_at + HZ)) {
		if (!rests)
			device->rate = jp_smoothed(device->rate, (s64)(now.written - before.written), 16);
		device->drained = jp_smoothed(device->drained, jg_left(&now) - jg_left(&before), 4);
		device->outside = jp_smoothed(device->outside,
					      (s64)(now.dirtied - before.dirtied) - charged, 16);
	}
	device->looked = now;
	device->looked_at = jiffies;
	leaves = div64_u64(device->drained * LOOKS, HZ);
	others = div64_u64(device->outside * LOOKS, HZ);
	spin_lock_bh(&device->lock);
	device->rates.leaves = leaves;
	device->rates.share = jp_share(weights, jg_group_weight(cgroup_id(&cgrp_dfl_root.cgrp)) ?: 100, others,
				       leaves);
	spin_unlock_bh(&device->lock);
}

/* True while the clock has work: a device was used within IDLE, or an unused one is to be forgotten. With
 * jg_mutex. */
bool jg_devices_in_use(void)
{
	int i;

	for (i = 0; i < JG_DEVICES; i++)
		if (jg_device_taken(&jg_devices[i]) &&
		    (!time_after(jiffies, READ_ONCE(jg_devices[i].used_at) + IDLE) ||
		     time_after(jiffies, READ_ONCE(jg_devices[i].used_at) + FORGOTTEN)))
			return true;
	return false;
}

/* Pages that are dirty or in flight. */
static u64 pages_of_all_devices(void)
{
	return global_node_page_state(NR_FILE_DIRTY) + global_node_page_state(NR_WRITEBACK);
}

/* Sets the setpoints from the pages that devices wrote since the last look, and frees unused slots. With
 * jg_mutex. */
void jg_devices_look(void)
{
	u64 all = 0, here = 0, dirty, setpoint = jg.most;
	int i, used = 0;

	for (i = 0; i < JG_DEVICES; i++) {
		struct jg_device *device = &jg_devices[i];

		if (!jg_device_taken(device))
			continue;
		if (!READ_ONCE(device->bdi->dev) || time_after(jiffies, READ_ONCE(device->used_at) + FORGOTTEN)) {
			forget(device);
			continue;
		}
		look_at_speed(device);
		if (time_after(jiffies, READ_ONCE(device->used_at) + IDLE))
			continue;
		all += device->rate;
		here += device->looked.dirty + device->looked.writeback;
		used++;
	}
	dirty = pages_of_all_devices();
	if (dirty > here)
		setpoint -= min(2 * (dirty - here), jg.most - jg.least);
	WRITE_ONCE(jg.setpoint, setpoint);
	for (i = 0; i < JG_DEVICES; i++) {
		struct jg_device *device = &jg_devices[i];
		u64 part = setpoint;

		if (!jg_device_taken(device))
			continue;
		if (used > 1 && all)
			part = div64_u64(setpoint * min(device->rate, all), all);
		part = max(part, setpoint / 16);
		spin_lock_bh(&device->lock);
		device->rates.room = div64_u64(part * (setpoint - jg.background), max(setpoint, 1ULL));
		WRITE_ONCE(device->setpoint, part);
		spin_unlock_bh(&device->lock);
	}
}

/* Applies the settings to every queue. With jg_mutex. */
void jg_devices_order(void)
{
	int i;

	for (i = 0; i < JG_DEVICES; i++) {
		spin_lock_bh(&jg_devices[i].lock);
		jq_set_order(&jg_devices[i].queue, jg.config.order, jg.config.aging, jg.config.lag_pages);
		spin_unlock_bh(&jg_devices[i].lock);
	}
}

/* With jg_mutex; the gate is open and the hook detached. */
void jg_devices_forget(void)
{
	int i;

	for (i = 0; i < JG_DEVICES; i++)
		if (jg_devices[i].bdi_id)
			WARN_ON_ONCE(!forget(&jg_devices[i]));
}

static u64 field(const char *text, const char *name)
{
	const char *at = strstr(text, name);
	unsigned long long value;

	if (!at || sscanf(at + strlen(name), "%llu", &value) != 1)
		return 0;
	return value;
}

/* Reads the thresholds and places the setpoint between them; it is 0 if they make no sense. With
 * jg_mutex, on behalf of the holder; sleeps. */
bool jg_read_thresholds(void)
{
	enum { ROOM = 16384 };
	u64 background = 0, limit = 0, freerun;
	char *text = kmalloc(ROOM, GFP_KERNEL);
	struct file *file;
	loff_t at = 0;
	ssize_t got = 0;

	if (!text)
		return jg.setpoint;
	file = filp_open("/proc/vmstat", O_RDONLY, 0);
	if (!IS_ERR(file)) {
		while (at < ROOM - 1 && (got = kernel_read(file, text + at, ROOM - 1 - at, &at)) > 0)
			;
		filp_close(file, NULL);
		text[at] = 0;
		background = field(text, "\nnr_dirty_background_threshold ");
		limit = field(text, "\nnr_dirty_threshold ");
	}
	kfree(text);
	freerun = (background + limit) / 2;
	jg.background = background;
	WRITE_ONCE(jg.freerun, freerun);
	jg.most = 0;
	if (background && freerun > background + 16)
		jg.most = background + div_u64((limit - background) * jg.config.setpoint_permille, 1000);
	jg.least = min(jg.most, (background + 3 * freerun) / 4);
	jg.thresholds_at = jiffies;
	WRITE_ONCE(jg.setpoint, clamp(jg.setpoint, jg.least, jg.most));
	return jg.most;
}
