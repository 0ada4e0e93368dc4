/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints: a writer starts to wait, is granted, times out. /sys/kernel/tracing/events/justitia. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM justitia

#if !defined(JUSTITIA_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define JUSTITIA_TRACE_H

#include <linux/tracepoint.h>

DECLARE_EVENT_CLASS(justitia_wait,
	TP_PROTO(u64 bdi_id, u64 cgroup_id, u32 pages, u32 length, s64 budget),
	TP_ARGS(bdi_id, cgroup_id, pages, length, budget),
	TP_STRUCT__entry(
		__field(u64, bdi_id)
		__field(u64, cgroup_id)
		__field(u32, pages)
		__field(u32, length)
		__field(s64, budget)
	),
	TP_fast_assign(
		__entry->bdi_id = bdi_id;
		__entry->cgroup_id = cgroup_id;
		__entry->pages = pages;
		__entry->length = length;
		__entry->budget = budget;
	),
	TP_printk("bdi=%llu cgroup=%llu pages=%u waiting=%u budget=%lld", __entry->bdi_id,
		  __entry->cgroup_id, __entry->pages, __entry->length, __entry->budget)
);

DEFINE_EVENT(justitia_wait, justitia_enqueue,
	TP_PROTO(u64 bdi_id, u64 cgroup_id, u32 pages, u32 length, s64 budget),
	TP_ARGS(bdi_id, cgroup_id, pages, length, budget));

DEFINE_EVENT(justitia_wait, justitia_grant,
	TP_PROTO(u64 bdi_id, u64 cgroup_id, u32 pages, u32 length, s64 budget),
	TP_ARGS(bdi_id, cgroup_id, pages, length, budget));

DEFINE_EVENT(justitia_wait, justitia_timeout,
	TP_PROTO(u64 bdi_id, u64 cgroup_id, u32 pages, u32 length, s64 budget),
	TP_ARGS(bdi_id, cgroup_id, pages, length, budget));

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
