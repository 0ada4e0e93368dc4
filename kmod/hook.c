// SPDX-License-Identifier: GPL-2.0
/*
 * The redirected function, and where it may make a task wait. A module parameter chooses one of two functions
 * at load time.
 *
 * Dirty throttling (the default). Every buffered write calls balance_dirty_pages_ratelimited_flags()
 * (mm/page-writeback.c) after it has dirtied pages, where sleeping is expected. ftrace enters jg_balance()
 * instead (FTRACE_OPS_FL_IPMODIFY, as live patches do). jg_balance() lets the writer wait for its turn and
 * then calls the original through its exported symbol; a call from this module is not redirected.
 *
 * Pages for which a writer took its turn are not throttled a second time: the kernel's count of them
 * (nr_dirtied) is reset before the original sees it. Otherwise the kernel would slow all writers down equally
 * above its freerun ceiling, below the gate's setpoint. The original throttles as ever while the flusher is
 * idle, which it then wakes; while the device is open; and in a memory cgroup with a limit that is nearly full
 * of dirty pages.
 *
 * Pages are charged, not calls (charge.h). A hash table of fixed size remembers the page up to which each
 * task was charged. A task that lost its entry is charged a little less than it dirtied.
 *
 * A call with nothing to charge, and no counter about to be reset, goes straight to the original without a
 * detour through this module: with writes of 4 KB, nearly all but one in JC_CHUNK. Each CPU remembers its last
 * caller, so this check takes a dozen instructions.
 *
 * A call that must not block (BDP_ASYNC: io_uring and RWF_NOWAIT on XFS and btrfs) is charged too. If it
 * would have to wait, it returns -EAGAIN, as the original would, and is retried from a context that may
 * block.
 *
 * Insertion (insert_hook=1, only for comparison with the paper). Every folio enters the page cache through
 * filemap_add_folio() (mm/filemap.c). jg_insert() lets one task at a time through it, in the queue's order,
 * as if the paper's lock (MSST 2020, III.B.1) were still there.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <asm/syscall.h>
#include <linux/backing-dev.h>
#include <linux/ftrace.h>
#include <linux/fs.h>
#include <linux/hash.h>
#include <linux/memcontrol.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/printk.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/version.h>
#include <linux/writeback.h>

#include "charge.h"
#include "device.h"
#include "gate.h"
#include "hook.h"
#include "main.h"

#define TASKS_SHIFT 13

#ifndef CONFIG_TASK_IO_ACCOUNTING
#error "this kernel does not count the pages that a task dirties (CONFIG_TASK_IO_ACCOUNTING)"
#endif

#ifndef CONFIG_HAVE_DYNAMIC_FTRACE_WITH_ARGS
#error "this kernel's ftrace cannot redirect a function (x86-64, or arm64 from Linux 6.2 on)"
#endif

/* A task's state. Another task with the same entry may write at the same time; the task is then charged a
 * little more or less. */
struct entry {
	u64 settled;		/* upper half: tag; lower half: pages written, up to which it was charged */
	u32 dirtied, looked;	/* the kernel's counts at that page (charge.h) */
	struct jc_wait wait;
};
static struct entry tasks[1 << TASKS_SHIFT];

/* The last task that called on this CPU. */
struct last {
	struct task_struct *task;	/* compared only */
	u64 written;			/* bytes; JC_CHUNK pages later a call has to be looked at */
};
static DEFINE_PER_CPU(struct last, last);

static DEFINE_PER_CPU(long, inside);
static DEFINE_PER_CPU(u64, calls);
static DEFINE_PER_CPU(u64, passes);

/* Pages that the current task has written since it began, also past the page cache; wraps. */
static u32 pages_written(void)
{
	return (u32)(current->ioac.write_bytes >> PAGE_SHIFT);
}

static u32 task_tag(void)
{
	return (u32)current->pid ^ (u32)(current->start_time >> 10) * 0x9e3779b1u;
}

/* The task's entry; `known`: it already was this task's. */
static struct entry *task_entry(u32 tag, bool *known)
{
	u32 at = hash_ptr(current, TASKS_SHIFT);

	*known = true;
	if (READ_ONCE(tasks[at].settled) >> 32 == tag)
		return &tasks[at];
	if (READ_ONCE(tasks[at ^ 1].settled) >> 32 == tag)
		return &tasks[at ^ 1];
	*known = false;
	return &tasks[at ^ (tag & 1)];
}

/* True if the task may be made to wait here. The caller of the original may sleep. Exempt are tasks that others
 * depend on for progress, and tasks that it would be unfair to delay. */
static bool may_wait(struct address_space *mapping)
{
	const struct inode *inode = mapping->host;

	/* Writers may wait for the gate's holder. */
	if (task_tgid(current) == READ_ONCE(jg.holder))
		return false;
	if (current->flags & (PF_KTHREAD | PF_MEMALLOC | PF_EXITING | PF_LOCAL_THROTTLE))
		return false;
	/* It holds a journal transaction, and others wait for that. */
	if (current->journal_info)
		return false;
	if (in_atomic() || irqs_disabled())
		return false;
	if (!inode || !S_ISREG(inode->i_mode))
		return false;
	return !fatal_signal_pending(current);
}

/* True if a call of the current task certainly has nothing to charge. Any context. Nearly all calls end here;
 * counting in bytes saves an instruction. */
static __always_inline bool nothing_to_charge(void)
{
	/* A new task at the address of an exited one has dirtied less. */
	return this_cpu_read(last.task) == current &&
	       current->ioac.write_bytes - this_cpu_read(last.written) < JC_CHUNK * PAGE_SIZE;
}

/* Pages that the current task has dirtied and was not charged for. */
static u32 pages_pending(const struct entry *entry, bool known)
{
	struct jc_counts then = { (u32)READ_ONCE(entry->settled), READ_ONCE(entry->dirtied),
				  READ_ONCE(entry->looked) };
	struct jc_counts now = { pages_written(), (u32)current->nr_dirtied, (u32)current->dirty_paused_when };

	return known ? jc_pending(then, now) : min_t(u32, now.written, JC_CHUNK);
}

/* Identifies the current task's write(2) (charge.h). */
static u32 current_write(struct inode *inode)
{
	struct timespec64 modified;

	if (!(current->flags & PF_IO_WORKER))
		return (u32)current->ioac.syscw;
	/* A fault of a shared mapping may change it at the same time; this write then counts as another one. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
	modified = data_race(inode_get_mtime(inode));
#else
	modified = data_race(inode->i_mtime);
#endif
	return (u32)modified.tv_sec + (u32)modified.tv_nsec;
}

/* Jiffies that the current task has waited in `write`. */
static u32 waited_already(const struct entry *entry, bool known, u32 write)
{
	struct jc_wait then = { READ_ONCE(entry->wait.write), READ_ONCE(entry->wait.waited),
				READ_ONCE(entry->wait.ended) };
	bool fault = !(current->flags & PF_IO_WORKER) && syscall_get_nr(current, current_pt_regs()) < 0;

	return known ? jc_waited(then, write, fault, (u32)jiffies,
				 msecs_to_jiffies(READ_ONCE(jg.config.timeout_ms)) * JG_TIMEOUT_FACTOR) : 0;
}

/* True if reclaim in the memory cgroup of a bdi_writeback finds clean pages, or none of its ancestors has a
 * limit: at most three quarters of its room for files are dirty. The kernel throttles from about a sixth, but a
 * group's part of all dirty pages may be larger than its part of all file pages. Under RCU. */
static bool reclaimable(struct bdi_writeback *wb)
{
#ifdef CONFIG_CGROUP_WRITEBACK
	struct mem_cgroup *memcg = mem_cgroup_from_css(wb->memcg_css);
	u64 dirty = jg_wb_stat(wb, WB_RECLAIMABLE) + jg_wb_stat(wb, WB_WRITEBACK);
	u64 files = 0, headroom = U64_MAX;
	int node, zone;

	for_each_node_state(node, N_MEMORY)
		for (zone = 0; zone < MAX_NR_ZONES; zone++)
			/* The kernel counts under the lock of the LRU lists. */
			files += data_race(memcg->nodeinfo[node]->lru_zone_size[zone][LRU_INACTIVE_FILE]) +
				 data_race(memcg->nodeinfo[node]->lru_zone_size[zone][LRU_ACTIVE_FILE]);
	for (; memcg; memcg = parent_mem_cgroup(memcg)) {
		u64 limit = min(READ_ONCE(memcg->memory.max), READ_ONCE(memcg->memory.high));
		u64 used = page_counter_read(&memcg->memory);

		if (limit < PAGE_COUNTER_MAX)
			headroom = min(headroom, limit - min(limit, used));
	}
	return headroom == U64_MAX || dirty <= (files + headroom) / 4 * 3;
#else
	return true;
#endif
}

/* Keeps the original from throttling the current task for the pages that it was just charged for. Below the
 * freerun ceiling it does so by itself. */
static void spare(struct address_space *mapping)
{
	struct bdi_writeback *wb;

	if (READ_ONCE(jg.setpoint) <= READ_ONCE(jg.freerun))
		return;
	rcu_read_lock();
	/* The original looks at the same one. */
	wb = wb_find_current(inode_to_bdi(mapping->host));
	if (wb && test_bit(WB_writeback_running, &wb->state) && reclaimable(wb)) {
		current->nr_dirtied = 0;
		/* Near its limit the kernel would look at every page. */
		current->nr_dirtied_pause = max_t(int, current->nr_dirtied_pause, 2 * JC_CHUNK);
	}
	rcu_read_unlock();
}

/* Stands in for the original for a writer that may have to be charged. Context: the original's; may sleep,
 * killably and for a bounded time. */
static noinline int jg_balance(struct address_space *mapping, unsigned int flags)
{
	u32 tag, pending, settled, waited, before, quiet, write = current_write(mapping->host);
	struct entry *entry;
	bool known;
	int ret = 0;

	this_cpu_inc(inside);
	tag = task_tag();
	entry = task_entry(tag, &known);
	pending = pages_pending(entry, known);
	before = waited = waited_already(entry, known, write);
	if (pending >= JC_CHUNK) {
		this_cpu_inc(calls);
		ret = may_wait(mapping) ? jg_admit(mapping, pending, flags & BDP_ASYNC, &waited) : -ENOENT;
		if (ret == -ENOENT)
			this_cpu_inc(passes);
		else if (ret == JG_ORDERED)
			spare(mapping);
		/* Charged or exempt: these pages do not count again. */
		pending = 0;
	}
	settled = pages_written() - pending;
	WRITE_ONCE(entry->settled, (u64)tag << 32 | settled);
	WRITE_ONCE(entry->wait.write, write);
	WRITE_ONCE(entry->wait.waited, waited);
	if (waited != before)
		WRITE_ONCE(entry->wait.ended, (u32)jiffies);
	if (ret != -EAGAIN)
		ret = balance_dirty_pages_ratelimited_flags(mapping, flags);
	/* Uncharged pages are dirty, and were counted before this point. */
	WRITE_ONCE(entry->dirtied, (u32)current->nr_dirtied - pending);
	WRITE_ONCE(entry->looked, (u32)current->dirty_paused_when);
	quiet = jc_quiet(pending, (u32)current->nr_dirtied, (u32)current->nr_dirtied_pause);
	this_cpu_write(last.written,
		       (current->ioac.write_bytes & PAGE_MASK) - ((u64)(JC_CHUNK - quiet) << PAGE_SHIFT));
	this_cpu_write(last.task, current);
	/* Also prevents a tail call above, which would be redirected again. */
	this_cpu_dec(inside);
	return ret;
}

/* Stands in for the original when a folio is brought into the page cache. Context: the original's, which may
 * sleep where `gfp` allows it; the folio is new and locked, and nobody else knows it. */
static noinline int jg_insert(struct address_space *mapping, struct folio *folio, pgoff_t index, gfp_t gfp)
{
	struct jg_device *device = NULL;
	int ret;

	this_cpu_inc(inside);
	this_cpu_inc(calls);
	if ((gfp & __GFP_DIRECT_RECLAIM) && may_wait(mapping))
		device = jg_turn_begin(mapping, folio_nr_pages(folio));
	if (!device)
		this_cpu_inc(passes);
	ret = filemap_add_folio(mapping, folio, index, gfp);
	if (device)
		jg_turn_end(device);
	this_cpu_dec(inside);
	return ret;
}

/* The name before Linux 6.2. */
#ifdef ftrace_instruction_pointer_set
#define ftrace_regs_set_instruction_pointer(fregs, ip) ftrace_instruction_pointer_set(fregs, ip)
#endif

/* Context of the next two: entry of the traced function. They change only registers. */
static noinline void notrace divert(unsigned long parent_ip, struct ftrace_regs *fregs)
{
	if (!within_module(parent_ip, THIS_MODULE))
		ftrace_regs_set_instruction_pointer(fregs, jg.insertion ? (unsigned long)jg_insert :
									  (unsigned long)jg_balance);
}

static void notrace redirect(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
			     struct ftrace_regs *fregs)
{
	/* A task that would wait checks the heartbeat as well. */
	if (!READ_ONCE(jg.open_reason) && !nothing_to_charge())
		divert(parent_ip, fregs);
}

static struct ftrace_ops ops = {
	.func = redirect,
	/* Permanent: kernel.ftrace_enabled cannot be set to 0 under a gate that is closed. */
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
};

/* All or nothing; on failure it logs the reason. */
int jg_hook_attach(void)
{
	static char throttling[] = "balance_dirty_pages_ratelimited_flags";
	static char inserting[] = "filemap_add_folio";
	char *function = jg.insertion ? inserting : throttling;
	int error = ftrace_set_filter(&ops, function, strlen(function), 1);

	if (error) {
		pr_err("%s() cannot be traced on this kernel (%d): built without dynamic ftrace?\n", function,
		       error);
		return error;
	}
	error = register_ftrace_function(&ops);
	if (error == -EBUSY)
		pr_err("%s() is redirected already (a live patch, another module), or kernel.ftrace_enabled is 0\n",
		       function);
	else if (error)
		pr_err("ftrace does not redirect %s() (%d)\n", function, error);
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

/* True if nobody runs or sleeps in this module's text on behalf of the hook, nor in the original's throttling
 * on its way back there. Any context. With the gate open a true result stays true, except for tasks just
 * entering. */
bool jg_hook_empty(void)
{
	return !count_inside();
}

/* After this nobody runs or sleeps in this module's text on behalf of the hook. The gate is open. */
void jg_hook_detach(void)
{
	/* Waits for tasks that were redirected but have not counted themselves in yet. */
	unregister_ftrace_function(&ops);
	ftrace_free_filter(&ops);
	/* Tasks may have entered after the module was found empty. No new ones enter, so the sum is never
	 * smaller than the true count. */
	while (!jg_hook_empty())
		schedule_timeout_uninterruptible(HZ / 50);
	/* Waits for tasks that have counted themselves out but have not returned yet. */
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
