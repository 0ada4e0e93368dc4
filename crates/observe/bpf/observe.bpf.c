// SPDX-License-Identifier: GPL-2.0
/*
 * Counts traffic and page-cache events of groups, per CPU in the kernel.
 *
 * The hot path is one program behind filemap_read(), the function that every buffered read of every file
 * system goes through (read, pread, readv, preadv, io_uring; also sendfile before Linux 6.5). It counts bytes
 * and pages asked for, and knows nothing of hits. Misses are counted where they are rare by nature: a read
 * that misses enters the readahead code, and the pages that come in during that call are counted, by the run
 * where the kernel has read_pages(). The hit ratio
 *
 *   hit ratio = 1 - (missed + readahead) / asked
 *
 * is therefore exact, without a look at any page that was there.
 *
 * Direct I/O passes through none of these functions. Pages of a tmpfs are memory, not cache: its reads do not
 * come here, and its writes are left out.
 *
 * Context: fentry, fexit and BTF tracepoints; the programs never sleep.
 */
#include "kernel.h"
#include "record.h"
#include "identity.h"
#include "readahead.h"
#include "sharing.h"
#include "threads.h"

/* Counts a read of `bytes` that ended at position `end`. */
static __always_inline void count_read(struct file *file, __u64 end, __u64 bytes)
{
	__u32 shift = settings.page_shift;
	__u64 lo = (end - bytes) >> shift;
	__u64 hi = ((end - 1) >> shift) + 1;
	__u32 cpu = bpf_get_smp_processor_id();
	struct counters *count = counters_of(my_slot(cpu), cpu);
	__u64 ahead;

	last[cpu % MAX_CPUS].reads++;
	if (!count)
		return;
	add(&count->read_bytes, bytes);
	add(&count->asked_pages, hi - lo);
	touch(count, file->f_inode, lo, hi, ASKED);
	ahead = first_use(file, lo, hi);
	if (ahead)
		add(&count->readahead_pages, ahead);
}

SEC("fexit/filemap_read")
int BPF_PROG(filemap_read, struct kiocb *iocb, struct iov_iter *iter, long already, long ret)
{
	if (ret > already && ret > 0)
		count_read(iocb->ki_filp, iocb->ki_pos, ret - already);
	return 0;
}

SEC("fexit/filemap_splice_read")
int BPF_PROG(filemap_splice_read, struct file *in, long long *position,
	     struct pipe_inode_info *pipe, unsigned long length, unsigned int flags, long ret)
{
	long long end;

	if (ret > 0 && !bpf_probe_read_kernel(&end, sizeof(end), position))
		count_read(in, end, ret);
	return 0;
}

/* Position to which ki_pos points when a write ends. */
enum position {
	AT_END,
	/* At the start of the write, in kernels whose callers advance it (until 6.5). */
	MOVED_LATER,
	UNKNOWN,
};

static __always_inline void count_write(struct kiocb *iocb, long ret, enum position position)
{
	struct counters *count;

	if (ret <= 0 || iocb->ki_filp->f_inode->i_sb->s_magic == TMPFS_MAGIC)
		return;
	count = mine();
	if (!count)
		return;
	add(&count->write_bytes, ret);
	if (position != UNKNOWN)
		touch_written(count, iocb, ret,
			      position == MOVED_LATER &&
				      bpf_core_field_exists(((struct task_struct___old *)0)->backing_dev_info));
}

SEC("fexit/generic_perform_write")
int BPF_PROG(generic_perform_write, struct kiocb *iocb, struct iov_iter *from, long ret)
{
	count_write(iocb, ret, MOVED_LATER);
	return 0;
}

/* For functions whose number of arguments changed over time, so that the result is not at a fixed place. */
static __always_inline void count_result(void *ctx, struct kiocb *iocb, enum position position)
{
	__u64 ret = 0;

	if (!bpf_get_func_ret(ctx, &ret))
		count_write(iocb, ret, position);
}

SEC("fexit/iomap_file_buffered_write")
int BPF_PROG(iomap_file_buffered_write, struct kiocb *iocb)
{
	count_result(ctx, iocb, MOVED_LATER);
	return 0;
}

SEC("fexit/btrfs_buffered_write")
int BPF_PROG(btrfs_buffered_write, struct kiocb *iocb)
{
	count_result(ctx, iocb, AT_END);
	return 0;
}

/* FUSE that writes through. With a writeback cache, its writes go through generic_perform_write(). */
SEC("fexit/fuse_perform_write")
int BPF_PROG(fuse_perform_write, struct kiocb *iocb)
{
	count_result(ctx, iocb, UNKNOWN);
	return 0;
}

SEC("fexit/netfs_perform_write")
int BPF_PROG(netfs_perform_write, struct kiocb *iocb)
{
	count_result(ctx, iocb, UNKNOWN);
	return 0;
}

SEC("fentry/page_cache_sync_ra")
int BPF_PROG(page_cache_sync_ra, struct readahead_control *ractl, unsigned long wanted)
{
	readahead_begins(ractl, wanted);
	return 0;
}

SEC("fexit/page_cache_sync_ra")
int BPF_PROG(page_cache_sync_ra_end)
{
	readahead_ends();
	return 0;
}

SEC("fentry/page_cache_async_ra")
int BPF_PROG(page_cache_async_ra, struct readahead_control *ractl, struct folio *folio,
	     unsigned long wanted)
{
	readahead_begins(ractl, wanted);
	return 0;
}

SEC("fexit/page_cache_async_ra")
int BPF_PROG(page_cache_async_ra_end)
{
	readahead_ends();
	return 0;
}

/* Readahead put a run of pages into the page cache and is about to read them. */
SEC("fentry/read_pages")
int BPF_PROG(pages_read, struct readahead_control *ractl)
{
	__u64 pages = ractl->_nr_pages;
	struct counters *count;

	if (!pages)
		return 0;
	count = mine();
	if (count)
		pages_came(count, ractl->mapping, ractl->_index, ractl->_index + pages);
	return 0;
}

/*
 * A read fetches the folio itself where readahead brought nothing, as under a memory limit, or where the I/O
 * of readahead failed. The read asked for at least a page of it.
 */
SEC("fentry/filemap_read_folio")
int BPF_PROG(folio_read, struct file *file, void *filler, struct folio *folio)
{
	struct doing *task = doing_now();
	struct counters *count;

	/* For the file system's own purposes, or for a fault. */
	if (!file || (task && task->faulting))
		return 0;
	count = mine();
	if (!count)
		return 0;
	add(&count->missed_pages, 1);
	add(&count->fetched_pages, 1);
	touch(count, file->f_inode, folio->index, folio->index + 1, FETCHED);
	return 0;
}

/* Counts like pages_read, but page by page, and for writes, too. One program run per page costs more. */
SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(page_added, struct folio *folio)
{
	struct counters *count = mine();

	if (count)
		pages_came(count, folio->mapping, folio->index, folio->index + folio_pages(folio));
	return 0;
}

static __always_inline void page_leaves(struct folio *folio)
{
	struct counters *count;

	/* Not by reclaim: truncated, deleted, or dropped on request. */
	if (!(bpf_get_current_task_btf()->flags & PF_MEMALLOC))
		return;
	count = owners(folio);
	if (count)
		add(&count->evicted_pages, folio_pages(folio));
}

/* Truncation does not come here, except for single pages. */
SEC("fentry/__filemap_remove_folio")
int BPF_PROG(folio_removed, struct folio *folio)
{
	page_leaves(folio);
	return 0;
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int BPF_PROG(page_removed, struct folio *folio)
{
	page_leaves(folio);
	return 0;
}

SEC("fentry/filemap_fault")
int BPF_PROG(filemap_fault)
{
	struct doing *task;

	if (!mine())
		return 0;
	task = doing_new();
	if (task)
		task->faulting = 1;
	return 0;
}

SEC("fexit/filemap_fault")
int BPF_PROG(filemap_fault_end, struct vm_fault *vmf, unsigned int ret)
{
	unsigned int major = bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_MAJOR);
	unsigned int retry = bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_RETRY);
	unsigned int tried = bpf_core_enum_value(enum fault_flag, FAULT_FLAG_TRIED);
	unsigned int quick = 0;
	struct doing *task = doing_now();
	struct counters *count = mine();
	unsigned int flags = vmf->flags;

	if (!task)
		return 0;
	task->faulting = 0;
	if (!count) {
		done_with(task);
		return 0;
	}
	if (bpf_core_enum_value_exists(enum fault_flag___vma, FAULT_FLAG_VMA_LOCK))
		quick = bpf_core_enum_value(enum fault_flag___vma, FAULT_FLAG_VMA_LOCK);
	if (ret & major)
		add(&count->mmap_major_faults, 1);
	/* One fault may come twice: first with only its VMA locked, and again after it gave up a lock. */
	if (flags & tried ||
	    (quick && !(flags & quick) && task->retried_address == vmf->address)) {
		task->retried_address = 0;
		done_with(task);
		return 0;
	}
	task->retried_address = ret & retry ? vmf->address : 0;
	done_with(task);
	add(&count->mmap_faults, 1);
	return 0;
}

static __always_inline void reclaim_begins(void)
{
	struct doing *task;

	if (!mine())
		return;
	task = doing_new();
	/* Reclaim does not begin within reclaim (PF_MEMALLOC), but the program of an end may have been skipped. */
	if (task)
		task->reclaiming_since = bpf_ktime_get_ns();
}

static __always_inline void reclaim_ends(void)
{
	struct doing *task = doing_now();
	struct counters *count;
	__u64 ns;

	if (!task || !task->reclaiming_since)
		return;
	ns = bpf_ktime_get_ns() - task->reclaiming_since;
	task->reclaiming_since = 0;
	if (task->throttled_since)
		task->reclaimed_in_throttle += ns;
	done_with(task);
	count = mine();
	if (count)
		add(&count->reclaim_ns, ns);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(direct_reclaim)
{
	reclaim_begins();
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(direct_reclaim_end)
{
	reclaim_ends();
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(memcg_reclaim)
{
	reclaim_begins();
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(memcg_reclaim_end)
{
	reclaim_ends();
	return 0;
}

/* Runs on the way back to user space, in a task whose group went above memory.high. */
static __always_inline void throttle_begins(void)
{
	struct doing *task;

	if (!bpf_get_current_task_btf()->memcg_nr_pages_over_high || !mine())
		return;
	task = doing_new();
	if (!task)
		return;
	task->throttled_since = bpf_ktime_get_ns();
	task->reclaimed_in_throttle = 0;
}

/* Counts the time less the reclaim in it, which is counted as reclaim. */
static __always_inline void throttle_ends(void)
{
	struct doing *task = doing_now();
	struct counters *count;
	__u64 ns;

	if (!task || !task->throttled_since)
		return;
	ns = bpf_ktime_get_ns() - task->throttled_since;
	ns = ns > task->reclaimed_in_throttle ? ns - task->reclaimed_in_throttle : 0;
	task->throttled_since = 0;
	done_with(task);
	count = mine();
	if (count)
		add(&count->throttled_ns, ns);
}

/* The kernel has this function under one of two names. */
SEC("fentry/__mem_cgroup_handle_over_high")
int BPF_PROG(over_high)
{
	throttle_begins();
	return 0;
}

SEC("fexit/__mem_cgroup_handle_over_high")
int BPF_PROG(over_high_end)
{
	throttle_ends();
	return 0;
}

SEC("fentry/mem_cgroup_handle_over_high")
int BPF_PROG(over_high_old)
{
	throttle_begins();
	return 0;
}

SEC("fexit/mem_cgroup_handle_over_high")
int BPF_PROG(over_high_old_end)
{
	throttle_ends();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
