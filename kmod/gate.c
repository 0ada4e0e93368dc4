// SPDX-License-Identifier: GPL-2.0
/*
 * Credits: who passes, who waits, who is granted.
 *
 * A group has a pool of credits at each device, in pages. Its writers take from the pool what they have
 * dirtied. A writer that finds the pool short waits in the device's queue for a batch. The amount that may be
 * granted is
 *
 *     budget = setpoint - (dirty + in flight) - credits granted and not yet dirtied
 *
 * counted while somebody waits (there is no hook where writeback completes): every jiffy, or less often with
 * many groups. Between two counts, the pages known to leave the device are added. While the budget lasts,
 * nobody waits.
 *
 * Budget comes in bursts (a commit of the journal stops all writers while the device continues). Nobody waits
 * in a burst, so nobody is ordered. Between the background threshold and the setpoint a pace therefore limits
 * the rate (pace.h). Like the kernel's own position control, it holds the device at the setpoint. Below the
 * background threshold, where the flushers are idle and no page need leave, there is no limit.
 *
 * Writers that cannot be made to wait may hold the device above its setpoint forever. Groups then share the
 * pages that leave the device by weight; those writers together count as one more group.
 *
 * A writer waits under locks of its caller: the inode's, and the file system's against a freeze. The wait is
 * therefore bounded per write(2), not per charge; it is short when others want the inode; and it ends when
 * the file system is about to be frozen. A writer that passes this way is charged all the same.
 *
 * A device opens by itself when it makes no progress. Above the setpoint with nothing in flight, one writer
 * per jiffy is let through until the flusher, by the kernel's own measure, has enough pages to start. After
 * STUCK of that the device opens for a second. It also opens after HUNG of waits that timed out while nobody
 * was granted and no page left. A single time-out lets only that writer pass, and its group pays for what it
 * takes. A slow device must not open too easily: its writers quickly fill the dirty limit of all devices.
 * Credits unused for RESTS are returned.
 *
 * With the hook at insertion there is no budget: one task at a time has the turn, for one folio, and then
 * passes it on. Queue, groups, time-outs and statistics are the same.
 */
#include <linux/backing-dev.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/rcupdate.h>
#include <linux/rwsem.h>
#include <linux/sched/signal.h>

#define JQ_SHELL
#include "device.h"
#include "gate.h"
#include "group.h"
#include "main.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

#define STUCK (2 * HZ)
#define HUNG (5 * HZ)
#define OPEN_FOR HZ
#define RESTS (HZ / 5)
/* Groups and bdi_writebacks that one jiffy's look may visit; with more, counts are less frequent. */
#define VISITS 64
/* Interval at which a sleeping writer checks whether somebody waits for its locks. */
#define LOOK (HZ / 10)

static struct jg_device *device_of(struct jq_queue *queue)
{
	return container_of(queue, struct jg_device, queue);
}

static struct jg_member *member_of(struct jq_waiter *waiter)
{
	return container_of(waiter->group, struct jg_member, q);
}

static void jq_lock(struct jq_queue *queue)
{
	spin_lock_bh(&device_of(queue)->lock);
}

static void jq_unlock(struct jq_queue *queue)
{
	spin_unlock_bh(&device_of(queue)->lock);
}

/* The latest time at which a writer that holds these locks must continue. */
static u64 until(const struct jq_sleeper *sleeper, u64 deadline)
{
	if (READ_ONCE(sleeper->inode->i_sb->s_writers.frozen) != SB_UNFROZEN)
		return 0;
	return rwsem_is_contended(&sleeper->inode->i_rwsem) ? min(sleeper->alone, deadline) : deadline;
}

static enum jq_wakeup jq_park(struct jq_waiter *waiter, u64 deadline)
{
	s64 left = (s64)(until(&waiter->sleeper, deadline) - get_jiffies_64());

	set_current_state(TASK_KILLABLE);
	/* The wake-up comes after the grant, so a waiter that missed the grant here is woken. */
	if (jq_granted(waiter) || left <= 0 || fatal_signal_pending(current))
		__set_current_state(TASK_RUNNING);
	else
		/* Accounted as waiting for I/O, as in the original. */
		io_schedule_timeout(min_t(long, left, LOOK));
	if (fatal_signal_pending(current))
		return JQ_KILLED;
	return (s64)(until(&waiter->sleeper, deadline) - get_jiffies_64()) > 0 ? JQ_WOKEN : JQ_TIMED_OUT;
}

/* Adds a granted waiter's credits and wakes it. With the device's lock. */
static void jq_wake(struct jq_waiter *waiter)
{
	struct jg_member *member = member_of(waiter);
	struct jg_device *device = member->device;

	atomic_long_add(waiter->cost, &member->pool);
	trace_justitia_grant(READ_ONCE(device->bdi_id), member->group->id, waiter->cost,
			     device->queue.length, device->budget.budget >> 8);
	if (waiter->sleeper.task != current)
		wake_up_process(waiter->sleeper.task);
}

/* Lets a waiter pass without a grant. With the device's lock. */
static void let_go(struct jg_device *device, struct jq_waiter *waiter)
{
	jq_release(&device->queue, waiter);
	if (waiter->sleeper.task != current)
		wake_up_process(waiter->sleeper.task);
}

/* Everybody passes, and all pools become 0. With the device's lock. */
static void let_all_go(struct jg_device *device)
{
	struct jg_member *member;
	struct jq_waiter *waiter;

	while ((waiter = jq_peek(&device->queue)))
		let_go(device, waiter);
	list_for_each_entry(member, &device->members, node)
		atomic_long_set(&member->pool, 0);
}

static void open_for_a_while(struct jg_device *device)
{
	device->open = true;
	device->open_until = jiffies + OPEN_FOR;
	device->stuck_since = 0;
	device->hung.at = jiffies;
	device->opened++;
	let_all_go(device);
}

static bool is_open(struct jg_device *device)
{
	if (device->open && !time_before(jiffies, device->open_until))
		device->open = false;
	return device->open;
}

/* Takes unused credits back. With the device's lock. */
static void sweep(struct jg_device *device)
{
	struct jg_member *member;

	if (time_before(jiffies, device->sweep_at))
		return;
	device->sweep_at = jiffies + RESTS;
	list_for_each_entry(member, &device->members, node) {
		s64 pages = atomic64_read(&member->pages);
		long pool = atomic_long_read(&member->pool);

		if (pages == member->swept_pages && pool > 0 &&
		    atomic_long_cmpxchg(&member->pool, pool, 0) == pool)
			jq_refund(&device->queue, &member->q, min_t(long, pool, JQ_COST_MAX));
		member->swept_pages = pages;
	}
}

/* Counts the device's pages and credits. With the device's lock; any context. */
void jg_refresh(struct jg_device *device)
{
	struct jg_member *member;
	u32 visited = 0;

	device->pages = jg_device_count(device);
	device->unspent = 0;
	list_for_each_entry(member, &device->members, node) {
		device->unspent += max(atomic_long_read(&member->pool), 0L);
		visited++;
	}
	device->budget.budget = (s64)(READ_ONCE(device->setpoint) - device->pages.dirty -
				      device->pages.writeback - device->unspent) * 256;
	device->every = 1 + (visited + device->pages.visited) / VISITS;
	device->count_at = jiffies + device->every;
}

/* At most once per jiffy. With the device's lock; any context. */
static void look(struct jg_device *device)
{
	unsigned long elapsed = jiffies - device->stamp;
	bool counts = !time_before(jiffies, device->count_at);
	struct jq_waiter *next = jq_peek(&device->queue);

	if (!elapsed)
		return;
	device->stamp = jiffies;
	if (counts) {
		sweep(device);
		jg_refresh(device);
	}
	jp_pass(&device->budget, &device->rates, elapsed, counts,
		next ? next->cost : READ_ONCE(jg.config.batch_pages));
}

/* Exact, but cached for a while, because it reads each CPU's counters. */
static bool rests(struct jg_device *device)
{
	if (!time_before(jiffies, device->rests_at)) {
		device->rests = jg_device_rests(device);
		device->rests_at = jiffies + max_t(unsigned long, HZ / 50, 4 * device->every);
	}
	return device->rests;
}

/* Over the setpoint, and no writeback in flight that would change it. With the device's lock. */
static void look_whether_stuck(struct jg_device *device)
{
	struct jq_waiter *next = jq_peek(&device->queue);

	if (!next || max(device->budget.budget, device->budget.due) >> 8 >= (s64)next->cost || !rests(device)) {
		device->stuck_since = 0;
		return;
	}
	if (!device->stuck_since) {
		device->stuck_since = jiffies | 1;
		return;
	}
	if (time_after(jiffies, device->stuck_since + STUCK))
		open_for_a_while(device);
	else if (time_after(jiffies, device->stuck_since + 2))
		jq_wake(jq_grant(&device->queue));
}

/* Gives the turn to the next waiter unless somebody has it. With the device's lock. */
static void pass_turn(struct jg_device *device)
{
	struct jq_waiter *next = device->holder ? NULL : jq_grant(&device->queue);

	if (!next)
		return;
	device->holder = next->sleeper.task;
	jq_wake(next);
}

static void pump(struct jg_device *device)
{
	s64 now;

	if (jg.insertion) {
		pass_turn(device);
		return;
	}
	if (device->stamp != jiffies) {
		look(device);
		look_whether_stuck(device);
	}
	now = jp_available(&device->budget);
	jp_take(&device->budget, (u32)(now - jq_pump(&device->queue, now)));
}

/* Every jiffy while somebody waits. Softirq. */
void jg_tick(struct timer_list *timer)
{
	struct jg_device *device = container_of(timer, struct jg_device, timer);

	jq_lock(&device->queue);
	if (!jg_closed() || is_open(device))
		let_all_go(device);
	else
		pump(device);
	if (device->queue.length)
		mod_timer(&device->timer, jiffies + 1);
	jq_unlock(&device->queue);
}

/* The pages that a writer asks for: a batch, or what it dirtied if that is more, but never too many to be
 * granted. */
static u32 cost_of(struct jg_device *device, long pages)
{
	u64 setpoint = READ_ONCE(device->setpoint);
	u64 cost = min_t(u64, READ_ONCE(jg.config.batch_pages), max_t(u64, setpoint / 64, 1));

	if (jg.insertion)
		return (u32)clamp_t(long, pages, 1, JQ_COST_MAX);
	cost = max_t(u64, cost, pages);
	return (u32)clamp_t(u64, min_t(u64, cost, setpoint / 4), 1, JQ_COST_MAX);
}

static u64 patience(struct jg_member *member)
{
	u32 weight = max(READ_ONCE(member->group->weight), 1U);
	u32 factor = clamp_t(u32, READ_ONCE(jg.heaviest) / weight, 1, JG_TIMEOUT_FACTOR);

	return max(msecs_to_jiffies(READ_ONCE(jg.config.timeout_ms) * factor), 1UL);
}

static bool moved_since(struct jg_device *device, const struct jg_progress *then)
{
	return device->queue.turn != then->turn || jg_left(&device->pages) > then->left;
}

/* A writer takes pages without a grant; its group pays for them all the same. With the device's lock. */
static void pass_unasked(struct jg_device *device, struct jg_member *member, u32 cost)
{
	device->timed_out++;
	member->timed_out++;
	trace_justitia_timeout(READ_ONCE(device->bdi_id), member->group->id, cost, device->queue.length,
			       device->budget.budget >> 8);
	jq_charge(&device->queue, &member->q, cost);
	atomic_long_add(cost, &member->pool);
}

static void account(struct jg_device *device, struct jg_member *member, struct jq_waiter *waiter,
		    enum jq_end end, u64 waited_ns, const struct jg_progress *before)
{
	struct jq_queue *queue = &device->queue;

	jq_lock(queue);
	member->waits++;
	member->wait_ns += waited_ns;
	device->longest_wait_ns = max(device->longest_wait_ns, waited_ns);
	if (end == JQ_END_KILLED) {
		device->killed++;
	} else if (end == JQ_END_TIMED_OUT) {
		pass_unasked(device, member, waiter->cost);
		look(device);
		if (moved_since(device, &device->hung))
			device->hung = *before;
		if (!moved_since(device, &device->hung) && time_after(jiffies, device->hung.at + HUNG))
			open_for_a_while(device);
	}
	jq_unlock(queue);
}

/* Waits until the group's pool is no longer negative. Sleeps, killably, at most until the wait in this
 * write(2), `*waited` jiffies so far, reaches its limit. With `nowait` it never sleeps. Returns what
 * jg_admit() does. The caller holds a reference to the group and is a user of the device. */
static int wait_turn(struct jg_device *device, struct jg_member *member, struct inode *inode, long pages,
		      bool nowait, u32 *waited)
{
	struct jq_waiter waiter = { .sleeper = { .task = current, .inode = inode } };
	struct jq_queue *queue = &device->queue;
	u64 begin, now = get_jiffies_64(), most = patience(member);
	struct jg_progress before;
	enum jq_end end;
	bool granted;

	jq_lock(queue);
	if (member->dead || is_open(device) || !jg_closed()) {
		atomic_long_set(&member->pool, 0);
		jq_unlock(queue);
		return 0;
	}
	/* Another writer's grant may have come in between. */
	if (!jg.insertion && atomic_long_read(&member->pool) >= 0) {
		jq_unlock(queue);
		return JG_ORDERED;
	}
	if (!nowait && *waited >= most) {
		pass_unasked(device, member, cost_of(device, pages));
		jq_unlock(queue);
		return 0;
	}
	jq_enqueue(queue, &member->q, &waiter, cost_of(device, pages));
	pump(device);
	granted = jq_granted(&waiter);
	if (!granted && nowait)
		jq_cancel(queue, &waiter);
	if (granted || nowait) {
		jq_unlock(queue);
		return granted ? JG_ORDERED : -EAGAIN;
	}
	before = (struct jg_progress){ jiffies, queue->turn, jg_left(&device->pages) };
	trace_justitia_enqueue(READ_ONCE(device->bdi_id), member->group->id, waiter.cost, queue->length,
			       device->budget.budget >> 8);
	if (!timer_pending(&device->timer))
		mod_timer(&device->timer, jiffies + 1);
	jq_unlock(queue);
	begin = ktime_get_ns();
	waiter.sleeper.alone = now + msecs_to_jiffies(READ_ONCE(jg.config.timeout_ms));
	end = jq_wait(queue, &waiter, now + most - *waited);
	*waited += (u32)(get_jiffies_64() - now);
	account(device, member, &waiter, end, ktime_get_ns() - begin, &before);
	return end == JQ_END_GRANTED ? JG_ORDERED : 0;
}

/* The account of the calling task's group at a device; NULL: the gate does not apply, because of no weight,
 * no free slot or memory, or a file system without writeback or with limits of its own. Under RCU. */
static struct jg_member *account_of_current(struct address_space *mapping)
{
	struct backing_dev_info *bdi = inode_to_bdi(mapping->host);
	struct jg_device *device;
	struct jg_group *group;

	if ((bdi->capabilities & (BDI_CAP_WRITEBACK | BDI_CAP_STRICTLIMIT)) != BDI_CAP_WRITEBACK)
		return NULL;
	group = jg_group_of_current();
	device = group ? jg_device_of(bdi) : NULL;
	if (device && READ_ONCE(device->used_at) != jiffies)
		WRITE_ONCE(device->used_at, jiffies);
	return device ? jg_member_of(group, device) : NULL;
}

/* Charges a writer for the pages it dirtied, and waits if the pool is short. JG_ORDERED: the pages were taken
 * in the gate's order; 0: it continues without a grant; -ENOENT: the gate does not apply; -EAGAIN: it must not
 * wait (`nowait`) and would have to. `waited`: jiffies that it has waited in this write(2). May sleep. */
int jg_admit(struct address_space *mapping, long pages, bool nowait, u32 *waited)
{
	struct jg_device *device;
	struct jg_member *member;
	struct jg_group *group;
	int ret;

	rcu_read_lock();
	member = account_of_current(mapping);
	if (!member) {
		rcu_read_unlock();
		return -ENOENT;
	}
	group = member->group;
	device = member->device;
	atomic64_add(pages, &member->pages);
	ret = atomic_long_sub_return(pages, &member->pool) >= 0 ? JG_ORDERED : 0;
	if (ret || !refcount_inc_not_zero(&group->refs)) {
		rcu_read_unlock();
		return ret;
	}
	atomic_inc(&device->users);
	rcu_read_unlock();
	ret = wait_turn(device, member, mapping->host, pages, nowait, waited);
	atomic_dec(&device->users);
	jg_group_put(group);
	return ret;
}

/* Waits for the turn of a task that brings pages into the page cache. Returns the device, for jg_turn_end(),
 * also when the wait ended without the turn; NULL: the gate does not apply. May sleep. */
struct jg_device *jg_turn_begin(struct address_space *mapping, long pages)
{
	struct jg_device *device;
	struct jg_member *member;
	struct jg_group *group;
	u32 waited = 0;

	rcu_read_lock();
	member = account_of_current(mapping);
	if (!member || !refcount_inc_not_zero(&member->group->refs)) {
		rcu_read_unlock();
		return NULL;
	}
	group = member->group;
	device = member->device;
	atomic64_add(pages, &member->pages);
	/* The grant adds them. */
	atomic_long_sub(pages, &member->pool);
	atomic_inc(&device->users);
	rcu_read_unlock();
	wait_turn(device, member, mapping->host, pages, false, &waited);
	jg_group_put(group);
	return device;
}

void jg_turn_end(struct jg_device *device)
{
	jq_lock(&device->queue);
	if (device->holder == current) {
		device->holder = NULL;
		pass_turn(device);
	}
	jq_unlock(&device->queue);
	atomic_dec(&device->users);
}

/* May sleep. */
void jg_let_everybody_go(struct jg_device *device)
{
	jq_lock(&device->queue);
	let_all_go(device);
	jq_unlock(&device->queue);
}

/* The group has lost its weight: its writers pass, and no new one enqueues. */
void jg_let_group_go(struct jg_member *member)
{
	struct jg_device *device = member->device;

	jq_lock(&device->queue);
	member->dead = true;
	while (member->q.first)
		let_go(device, member->q.first);
	list_del_init(&member->node);
	jq_unlock(&device->queue);
}
