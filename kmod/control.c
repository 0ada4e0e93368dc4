// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/justitia: the process that holds it open for writing controls the gate; readers may query it.
 *
 * abi.h is the contract. The gate does not outlive its holder: when the holder's last file descriptor is
 * closed, also by kill -9, the gate opens, and weights and settings are dropped.
 */
#include <linux/backing-dev.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "abi.h"
#include "control.h"
#include "device.h"
#include "gate.h"
#include "group.h"
#include "hook.h"
#include "main.h"

/* Records that one call may ask for. */
#define LIST_MAX 65536

static int control_open(struct inode *inode, struct file *file)
{
	int error = 0;

	if (!capable(CAP_SYS_RESOURCE))
		return -EPERM;
	if (!(file->f_mode & FMODE_WRITE))
		return 0;
	mutex_lock(&jg_mutex);
	if (jg.holder)
		error = -EBUSY;
	else
		WRITE_ONCE(jg.holder, get_pid(task_tgid(current)));
	mutex_unlock(&jg_mutex);
	return error;
}

static int control_release(struct inode *inode, struct file *file)
{
	struct pid *holder;

	if (!(file->f_mode & FMODE_WRITE))
		return 0;
	mutex_lock(&jg_mutex);
	jg_forget();
	holder = jg.holder;
	WRITE_ONCE(jg.holder, NULL);
	mutex_unlock(&jg_mutex);
	put_pid(holder);
	return 0;
}

static u32 devices_in_use(void)
{
	u32 count = 0;
	int i;

	for (i = 0; i < JG_DEVICES; i++)
		count += READ_ONCE(jg_devices[i].bdi_id) != 0;
	return count;
}

static long tell_info(void __user *to)
{
	struct justitia_info info = {
		.version = JUSTITIA_GATE_VERSION,
		.open_reason = jg.open_reason,
		.groups = jg.groups,
		.devices = devices_in_use(),
		.background_pages = jg.background,
		.freerun_pages = jg.freerun,
		.setpoint_pages = jg.setpoint,
		.calls = jg_hook_calls(false),
		.passed = jg_hook_calls(true),
		.heartbeats = jg.heartbeats,
		.heartbeats_lost = jg.heartbeats_lost,
		.devices_refused = atomic64_read(&jg.devices_refused),
	};

	/* Writers notice a lost heartbeat a little earlier than the clock does. */
	if (!info.open_reason && !jg_closed())
		info.open_reason = JUSTITIA_OPEN_HEARTBEAT;
	return copy_to_user(to, &info, sizeof(info)) ? -EFAULT : 0;
}

/* With jg_mutex, so the device keeps its slot. */
static void describe(struct jg_device *device, struct justitia_device *to)
{
	const struct jq_stats *stats = &device->queue.stats;

	BUILD_BUG_ON(JUSTITIA_LENGTHS != JQ_LENGTHS);
	spin_lock_bh(&device->lock);
	jg_refresh(device);
	*to = (struct justitia_device){
		.bdi_id = device->bdi_id,
		.setpoint_pages = READ_ONCE(device->setpoint),
		.dirty_pages = device->pages.dirty,
		.writeback_pages = device->pages.writeback,
		.unspent_pages = device->unspent,
		.budget_pages = device->budget.budget >> 8,
		.enqueued = stats->enqueued,
		.granted = stats->granted,
		.reordered = stats->reordered,
		.timed_out = device->timed_out,
		.killed = device->killed,
		.opened = device->opened,
		.longest_wait_ns = device->longest_wait_ns,
		.waiting = device->queue.length,
		.longest_queue = stats->longest,
	};
	memcpy(to->lengths, stats->lengths, sizeof(to->lengths));
	spin_unlock_bh(&device->lock);
	/* The backing device of a block device is named after its number. */
	if (sscanf(device->bdi->dev_name, "%u:%u", &to->major, &to->minor) != 2)
		to->major = to->minor = 0;
}

static long tell_list(void __user *argument, bool members)
{
	size_t size = members ? sizeof(struct justitia_member) : sizeof(struct justitia_device);
	struct justitia_list list;
	void *records;
	long error = 0;
	u32 filled;
	int i;

	if (copy_from_user(&list, argument, sizeof(list)))
		return -EFAULT;
	if (list.capacity > LIST_MAX)
		return -EINVAL;
	records = kvcalloc(max(list.capacity, 1U), size, GFP_KERNEL);
	if (!records)
		return -ENOMEM;
	mutex_lock(&jg_mutex);
	list.count = 0;
	if (members)
		list.count = jg_members_list(records, list.capacity);
	for (i = 0; !members && i < JG_DEVICES; i++) {
		if (!jg_device_taken(&jg_devices[i]))
			continue;
		if (list.count < list.capacity)
			describe(&jg_devices[i], (struct justitia_device *)records + list.count);
		list.count++;
	}
	mutex_unlock(&jg_mutex);
	filled = min(list.count, list.capacity);
	if (copy_to_user(u64_to_user_ptr(list.buffer), records, filled * size) ||
	    copy_to_user(argument, &list, sizeof(list)))
		error = -EFAULT;
	kvfree(records);
	return error;
}

static bool between(u32 value, u32 least, u32 most)
{
	return value >= least && value <= most;
}

static long set_config(const struct justitia_config *config)
{
	if (config->order > JUSTITIA_STRIDE || config->aging > JQ_AGING_MAX ||
	    config->lag_pages > JQ_LAG_MAX || !between(config->setpoint_permille, 1, 999) ||
	    !between(config->batch_pages, 1, 4096) || !between(config->timeout_ms, 10, 10000) ||
	    !between(config->heartbeat_ms, 100, 60000) || config->reserved)
		return -EINVAL;
	BUILD_BUG_ON((int)JUSTITIA_FIFO != JQ_FIFO || (int)JUSTITIA_AGING != JQ_AGING ||
		     (int)JUSTITIA_STRIDE != JQ_STRIDE);
	jg_configure(config);
	if (jg.enabled) {
		jg_read_thresholds();
		jg_devices_look();
		jg_decide_open();
	}
	return 0;
}

static long change(unsigned int command, void __user *argument)
{
	struct justitia_config config;
	struct justitia_group group;
	u32 flag;

	switch (command) {
	case JUSTITIA_IOC_SET_CONFIG:
		return copy_from_user(&config, argument, sizeof(config)) ? -EFAULT : set_config(&config);
	case JUSTITIA_IOC_SET_GROUP:
		if (copy_from_user(&group, argument, sizeof(group)))
			return -EFAULT;
		return group.reserved ? -EINVAL : jg_group_set(group.cgroup_id, group.weight);
	case JUSTITIA_IOC_ENABLE:
		if (copy_from_user(&flag, argument, sizeof(flag)))
			return -EFAULT;
		if (flag > 1)
			return -EINVAL;
		jg_set_enabled(flag);
		return 0;
	case JUSTITIA_IOC_HEARTBEAT:
		jg.heartbeats++;
		WRITE_ONCE(jg.deadline, jiffies + msecs_to_jiffies(jg.config.heartbeat_ms));
		/* The thresholds follow available memory. Reading them takes about 40 us. */
		if (jg.enabled && time_after(jiffies, jg.thresholds_at + HZ / 2))
			jg_read_thresholds();
		jg_decide_open();
		return 0;
	default:
		return -ENOTTY;
	}
}

static long control_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *user = (void __user *)argument;
	long result;

	switch (command) {
	case JUSTITIA_IOC_DEVICES:
	case JUSTITIA_IOC_MEMBERS:
		return tell_list(user, command == JUSTITIA_IOC_MEMBERS);
	}
	mutex_lock(&jg_mutex);
	if (command == JUSTITIA_IOC_INFO)
		result = tell_info(user);
	else if (command == JUSTITIA_IOC_GET_CONFIG)
		result = copy_to_user(user, &jg.config, sizeof(jg.config)) ? -EFAULT : 0;
	else if (!(file->f_mode & FMODE_WRITE))
		result = -EBADF;
	else
		result = change(command, user);
	mutex_unlock(&jg_mutex);
	return result;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = control_open,
	.release = control_release,
	.unlocked_ioctl = control_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "justitia",
	.fops = &operations,
	.mode = 0600,
};

int jg_control_init(void)
{
	return misc_register(&device);
}

void jg_control_exit(void)
{
	misc_deregister(&device);
}
