// SPDX-License-Identifier: GPL-2.0
/*
 * The gate as a whole: when it is closed, and when it opens.
 *
 * While the gate is closed, writers of groups with a weight wait for credits in the queue's order. It is
 * closed only while it is enabled, heartbeats arrive, and the kernel's dirty thresholds are known. If any of
 * these is missing, it opens: everybody passes at once, as on a kernel without the module. docs/gate.md
 * describes it for users.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/workqueue.h>

#include "control.h"
#include "device.h"
#include "gate.h"
#include "group.h"
#include "hook.h"
#include "main.h"

/* Interval at which devices and the heartbeat are checked. */
#define JG_CLOCK_MS 200

static const struct justitia_config unset = {
	.order = JUSTITIA_STRIDE,
	.aging = JQ_AGING_DEFAULT,
	.lag_pages = JQ_LAG_DEFAULT,
	.setpoint_permille = 940,
	.batch_pages = 32,
	.timeout_ms = 1000,
	.heartbeat_ms = 5000,
};

struct jg_state jg = { .open_reason = JUSTITIA_OPEN_DISABLED };
DEFINE_MUTEX(jg_mutex);

module_param_named(insert_hook, jg.insertion, bool, 0444);
MODULE_PARM_DESC(insert_hook, "order insertions into the page cache instead of dirty throttling, to compare");

static void clock(struct work_struct *work);
static void put_away(struct work_struct *work);
static DECLARE_DELAYED_WORK(clock_work, clock);
static DECLARE_WORK(put_away_work, put_away);
static bool leaving;

/* Opens or closes the gate as the state requires. With jg_mutex. */
void jg_decide_open(void)
{
	int reason = 0, i;

	if (!jg.enabled)
		reason = JUSTITIA_OPEN_DISABLED;
	else if (!jg.setpoint)
		reason = JUSTITIA_OPEN_THRESHOLDS;
	else if (!time_before(jiffies, jg.deadline))
		reason = JUSTITIA_OPEN_HEARTBEAT;
	if (reason == jg.open_reason)
		return;
	if (reason == JUSTITIA_OPEN_HEARTBEAT) {
		jg.heartbeats_lost++;
		pr_warn("no heartbeat for %u ms: the gate is open\n", jg.config.heartbeat_ms);
	}
	WRITE_ONCE(jg.open_reason, reason);
	/* The device's timer finds a task that read the old value and starts to wait only now. */
	for (i = 0; reason && i < JG_DEVICES; i++)
		jg_let_everybody_go(&jg_devices[i]);
}

void jg_set_enabled(bool enabled)
{
	jg.enabled = enabled;
	/* Writers sleep in this module's text, and continue from there into the kernel's own throttling.
	 * While one is inside, the module cannot be unloaded; otherwise an rmmod could hang and could not be
	 * killed. */
	if (enabled && !jg.pinned) {
		__module_get(THIS_MODULE);
		jg.pinned = true;
	}
	WRITE_ONCE(jg.deadline, jiffies + msecs_to_jiffies(jg.config.heartbeat_ms));
	if (enabled && !jg_read_thresholds())
		pr_warn("cannot read the dirty thresholds from /proc/vmstat: the gate stays open\n");
	jg_devices_look();
	jg_decide_open();
	if (!enabled)
		jg_put_away();
}

/* Writers and timers read the settings meanwhile. With jg_mutex. */
void jg_configure(const struct justitia_config *config)
{
	WRITE_ONCE(jg.config.order, config->order);
	WRITE_ONCE(jg.config.aging, config->aging);
	WRITE_ONCE(jg.config.lag_pages, config->lag_pages);
	WRITE_ONCE(jg.config.setpoint_permille, config->setpoint_permille);
	WRITE_ONCE(jg.config.batch_pages, config->batch_pages);
	WRITE_ONCE(jg.config.timeout_ms, config->timeout_ms);
	WRITE_ONCE(jg.config.heartbeat_ms, config->heartbeat_ms);
	jg_devices_order();
}

/* As if no process had ever held it. With jg_mutex; sleeps. */
void jg_forget(void)
{
	jg_set_enabled(false);
	jg_groups_forget();
	jg_configure(&unset);
}

/* Frees what is no longer needed once nobody uses it. */
void jg_put_away(void)
{
	schedule_work(&put_away_work);
}

static void put_away(struct work_struct *work)
{
	mutex_lock(&jg_mutex);
	jg_groups_retire();
	if (jg.pinned && !jg.enabled && jg_hook_empty()) {
		jg.pinned = false;
		/* Not the last thing that keeps this text: unloading waits for this work item. */
		module_put(THIS_MODULE);
	}
	mutex_unlock(&jg_mutex);
}

static void clock(struct work_struct *work)
{
	put_away(work);
	mutex_lock(&jg_mutex);
	if (jg.enabled && jg_devices_in_use())
		jg_devices_look();
	jg_decide_open();
	mutex_unlock(&jg_mutex);
	if (!READ_ONCE(leaving))
		schedule_delayed_work(&clock_work, msecs_to_jiffies(JG_CLOCK_MS));
}

static int __init justitia_init(void)
{
	int error;

	jg_devices_init();
	jg_configure(&unset);
	error = jg_hook_attach();
	if (error)
		return error;
	error = jg_control_init();
	if (error) {
		pr_err("cannot register /dev/justitia (%d)\n", error);
		jg_hook_detach();
		return error;
	}
	schedule_delayed_work(&clock_work, 0);
	return 0;
}

static void __exit justitia_exit(void)
{
	/* An open file holds the module, so here the device is not open and the gate not closed. */
	jg_control_exit();
	WRITE_ONCE(leaving, true);
	cancel_delayed_work_sync(&clock_work);
	cancel_work_sync(&put_away_work);
	jg_hook_detach();
	mutex_lock(&jg_mutex);
	jg_devices_forget();
	jg_groups_forget();
	mutex_unlock(&jg_mutex);
	/* kfree_rcu() needs nothing from this module, so no rcu_barrier() is necessary. */
}

module_init(justitia_init);
module_exit(justitia_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Orders buffered writers by weight where they wait for dirty throttling");
MODULE_VERSION("1");
