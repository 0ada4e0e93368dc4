// SPDX-License-Identifier: GPL-2.0
/*
 * The redirected function, and what it may do where.
 *
 * Every buffered write calls balance_dirty_pages_ratelimited_flags() (mm/page-writeback.c) after it has
 * dirtied pages, at a place where sleeping is expected. ftrace enters jg_balance() instead
 * (FTRACE_OPS_FL_IPMODIFY, as live patches do); it lets the writer wait for its turn and then calls the
 * original, through its exported symbol: a call that comes from this module is not redirected. The
 * original's own throttling stays as it is.
 *
 * Pages, not calls: the kernel counts what a task dirties in current->nr_dirtied, and resets it when it
 * throttles. What it was when a task was here last is kept in a table of fixed size, indexed by task;
 * a task that lost its place there is charged a little less than it dirtied.
 */
#include <linux/ftrace.h>
#include <linux/fs.h>
#include <linux/hash.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/writeback.h>

#include "justitia.h"

/* Below this many pages a call costs a look at the table and nothing more. */
#define CHUNK 8

#define TASKS_SHIFT 13

/* Tag of the task in the upper half, nr_dirtied in the lower. */
static u64 tasks[1 << TASKS_SHIFT];

static DEFINE_PER_CPU(long, inside);
static DEFINE_PER_CPU(u64, calls);
static DEFINE_PER_CPU(u64, passes);

static u32 task_tag(void)
{
	return (u32)current->pid ^ (u32)(current->start_time >> 10) * 0x9e3779b1u;
}

/* The task's entry; `known` says whether it was its own already. */
static u64 *task_entry(u32 tag, bool *known)
{
	u32 at = hash_ptr(current, TASKS_SHIFT);

	*known = true;
	if (READ_ONCE(tasks[at]) >> 32 == tag)
		return &tasks[at];
	if (READ_ONCE(tasks[at ^ 1]) >> 32 == tag)
		return &tasks[at ^ 1];
	*known = false;
	return &tasks[at ^ (tag & 1)];
}

/* Whether a task may be made to wait here. The caller of the original may sleep already; the rest is
 * what must get on so that others can, and what would not be fair to hold. */
static bool may_wait(struct address_space *mapping, unsigned int flags)
{
	const struct inode *inode = mapping->host;

	if (current->flags & (PF_KTHREAD | PF_MEMALLOC | PF_EXITING | PF_LOCAL_THROTTLE))
		return false;
	if (flags & BDP_ASYNC)
		return false;
	/* Holds a transaction of a journal: others wait for it. */
	if (current->journal_info)
		return false;
	if (in_atomic() || irqs_disabled())
		return false;
	if (!inode || !S_ISREG(inode->i_mode))
		return false;
	return !fatal_signal_pending(current);
}

/* Takes the call of any writer. Context: the original's; may sleep, killably and for a bounded time. */
static noinline int jg_balance(struct address_space *mapping, unsigned int flags)
{
	u64 *entry;
	bool known, charged = false;
	s32 pending, after;
	u32 tag;
	int ret;

	this_cpu_inc(inside);
	if (!jg_closed()) {
		ret = balance_dirty_pages_ratelimited_flags(mapping, flags);
		goto out;
	}
	tag = task_tag();
	entry = task_entry(tag, &known);
	pending = current->nr_dirtied - (s32)(u32)READ_ONCE(*entry);
	if (!known)
		pending = min(current->nr_dirtied, CHUNK);
	if (pending >= CHUNK) {
		this_cpu_inc(calls);
		if (may_wait(mapping, flags) && jg_admit(mapping, pending))
			charged = true;
		else
			this_cpu_inc(passes);
		/* Charged or let off: it does not count again. */
		pending = 0;
	}
	ret = balance_dirty_pages_ratelimited_flags(mapping, flags);
	/* The original has set it back when it throttled. */
	after = current->nr_dirtied - pending;
	if (!known || charged || (u32)after != (u32)READ_ONCE(*entry))
		WRITE_ONCE(*entry, (u64)tag << 32 | (u32)after);
out:
	/* Also keeps the calls above from being jumps, which would be redirected again. */
	this_cpu_dec(inside);
	return ret;
}

#ifndef ftrace_regs_set_instruction_pointer
#define ftrace_regs_set_instruction_pointer(fregs, ip) ftrace_instruction_pointer_set(fregs, ip)
#endif

/* Context: entry of the traced function. Touches nothing but the registers. */
static void notrace redirect(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
			     struct ftrace_regs *fregs)
{
	if (!within_module(parent_ip, THIS_MODULE))
		ftrace_regs_set_instruction_pointer(fregs, (unsigned long)jg_balance);
}

static struct ftrace_ops ops = {
	.func = redirect,
	.flags = FTRACE_OPS_FL_IPMODIFY
#ifndef CONFIG_HAVE_DYNAMIC_FTRACE_WITH_ARGS
		 | FTRACE_OPS_FL_SAVE_REGS
#endif
	,
};

static char function[] = "balance_dirty_pages_ratelimited_flags";

/* All or nothing: says why not. */
int jg_hook_attach(void)
{
	int error = ftrace_set_filter(&ops, function, strlen(function), 1);

	if (error) {
		pr_err("%s() cannot be traced on this kernel (%d): built without dynamic ftrace?\n", function,
		       error);
		return error;
	}
	error = register_ftrace_function(&ops);
	if (error == -EBUSY)
		pr_err("%s() is redirected already, by a live patch or another module: remove that first\n",
		       function);
	else if (error)
		pr_err("ftrace does not redirect %s() (%d): is kernel.ftrace_enabled 0?\n", function, error);
	if (error)
		ftrace_free_filter(&ops);
	return error;
}

static long count_inside(void)
{
	long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(inside, cpu));
	return sum;
}

/* After this nobody runs or sleeps in this module's text on behalf of the hook. The gate is open. */
void jg_hook_detach(void)
{
	/* Waits for whoever was redirected and has not got to count itself. */
	unregister_ftrace_function(&ops);
	ftrace_free_filter(&ops);
	/* Who is inside may be in the original's own throttling, which ends in its time. As nobody comes
	 * in any more, the sum is never smaller than the truth. */
	while (count_inside())
		schedule_timeout_uninterruptible(HZ / 50);
	/* ... and for whoever has counted itself out and has not returned. */
	synchronize_rcu_tasks();
}

u64 jg_hook_calls(bool passed)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*(passed ? per_cpu_ptr(&passes, cpu) : per_cpu_ptr(&calls, cpu)));
	return sum;
}
