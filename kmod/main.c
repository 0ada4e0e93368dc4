// SPDX-License-Identifier: GPL-2.0
/*
 * The gate as a whole: when it is closed, and that it opens.
 *
 * Closed means that writers of groups with a weight wait for credits in the queue's order. It is
 * closed only while somebody enabled it, sends heartbeats, and the kernel's dirty thresholds are known.
 * Whatever is missing opens it: everybody passes at once, as on a kernel without the module.
 * docs/gate.md is the description for users.
 */
#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/workqueue.h>

#include "justitia.h"

/* How often devices and the heartbeat are looked at. */
#define JG_CLOCK_MS 200

static const struct justitia_config unset = {
	.order = JUSTITIA_STRIDE,
	.aging = JQ_AGING_DEFAULT,
	.lag_pages = JQ_LAG_DEFAULT,
	.setpoint_permille = 750,
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

/* Opens or closes, as things are. With jg_mutex. */
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
	/* Who read the old value and waits only now is found by its device's timer. */
	for (i = 0; reason && i < JG_DEVICES; i++)
		jg_let_everybody_go(&jg_devices[i]);
}

void jg_set_enabled(bool enabled)
{
	jg.enabled = enabled;
	/* Writers sleep in this module's text, and go on in the kernel's own throttling from there: as long as
	 * one is inside it cannot be unloaded, instead of an rmmod that nobody can end. */
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

/* As if nobody had ever held it. With jg_mutex; sleeps. */
void jg_forget(void)
{
	jg_set_enabled(false);
	jg_groups_forget();
	jg.config = unset;
	jg_devices_order();
}

/* What is no longer needed goes as soon as nobody has it in hand. */
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
		/* Not the last that keeps this text: unloading waits for this work to end. */
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

	jg.config = unset;
	jg_devices_init();
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
	/* The device cannot be open here, nor the gate closed: an open file holds the module. */
	jg_control_exit();
	WRITE_ONCE(leaving, true);
	cancel_delayed_work_sync(&clock_work);
	cancel_work_sync(&put_away_work);
	jg_hook_detach();
	mutex_lock(&jg_mutex);
	jg_devices_forget();
	jg_groups_forget();
	mutex_unlock(&jg_mutex);
	/* kfree_rcu() needs nothing of this module, so there is no barrier to wait for. */
}

module_init(justitia_init);
module_exit(justitia_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Orders buffered writers by weight where they wait for dirty throttling");
MODULE_VERSION("1");
