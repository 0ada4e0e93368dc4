// SPDX-License-Identifier: GPL-2.0
/*
 * Makes one mistake on purpose each time it is loaded, to show that a debugging kernel reports it. Never load
 * it anywhere else.
 *
 *   insmod mistakes.ko what=rcu|order|asleep|list|freed|race
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

static DEFINE_SPINLOCK(spinning);
static DEFINE_MUTEX(one);
static DEFINE_MUTEX(two);
static int __rcu *shared;
static unsigned long counted;

static char *what = "";
module_param(what, charp, 0444);

/* KASAN. */
static void use_what_was_freed(void)
{
	char *memory = kmalloc(64, GFP_KERNEL);

	kfree(memory);
	OPTIMIZER_HIDE_VAR(memory);
	READ_ONCE(memory[8]);
}

/* CONFIG_DEBUG_ATOMIC_SLEEP. */
static void sleep_with_a_spinlock(void)
{
	spin_lock(&spinning);
	msleep(1);
	spin_unlock(&spinning);
}

/* CONFIG_DEBUG_LIST. */
static void break_a_list(void)
{
	LIST_HEAD(head);
	struct list_head node;

	list_add(&node, &head);
	head.next = &head;
	list_del(&node);
}

/* CONFIG_PROVE_RCU. */
static void read_without_rcu(void)
{
	int *value = rcu_dereference(shared);

	OPTIMIZER_HIDE_VAR(value);
}

/* CONFIG_PROVE_LOCKING, which stops checking after its first report. */
static void lock_in_both_orders(void)
{
	mutex_lock(&one);
	mutex_lock(&two);
	mutex_unlock(&two);
	mutex_unlock(&one);
	mutex_lock(&two);
	mutex_lock(&one);
	mutex_unlock(&one);
	mutex_unlock(&two);
}

/* KCSAN, which watches few accesses: for ten seconds, with waits in between in which the other task runs. */
static noinline int count(void *unused)
{
	unsigned long end = jiffies + 10 * HZ;

	while (time_before(jiffies, end)) {
		for (int i = 0; i < 10000; i++) {
			counted++;
			barrier();
		}
		cond_resched();
	}
	return 0;
}

static void count_in_two_tasks(void)
{
	struct task_struct *other = kthread_run(count, NULL, "mistakes");

	if (IS_ERR(other))
		return;
	get_task_struct(other);
	count(NULL);
	/* Waits for its end; it may have ended before. */
	kthread_stop_put(other);
}

static int __init mistakes_init(void)
{
	if (!strcmp(what, "freed"))
		use_what_was_freed();
	else if (!strcmp(what, "asleep"))
		sleep_with_a_spinlock();
	else if (!strcmp(what, "list"))
		break_a_list();
	else if (!strcmp(what, "rcu"))
		read_without_rcu();
	else if (!strcmp(what, "order"))
		lock_in_both_orders();
	else if (!strcmp(what, "race"))
		count_in_two_tasks();
	else
		return -EINVAL;
	return 0;
}

static void __exit mistakes_exit(void)
{
}

module_init(mistakes_init);
module_exit(mistakes_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Mistakes made on purpose, for kernels that look for errors");
