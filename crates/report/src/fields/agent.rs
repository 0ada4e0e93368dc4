//! Fields of the agent, the host, its disks, and the plan's writes.

use super::{extra, field, number, Field, Get, Kind};
use crate::status::Report;
use crate::text::word;

#[rustfmt::skip]
pub(crate) const AGENT: &[Field] = &[
    field("version", "", "The agent's version; the metric has mode, objective and observer too.")
        .metric(
            "justitia_agent",
            Kind::Info,
            Get::ReportInfo(|report: &Report| {
                let mut labels = vec![
                    ("version", report.version.clone()),
                    ("mode", word(&report.mode)),
                    ("objective", word(&report.objective)),
                ];
                labels.extend(report.observer.clone().map(|name| ("observer", name)));
                labels
            }),
        ),
    field("mode", "", "The part of the policy that is in force."),
    field("objective", "", "The goal of the feedback."),
    field("observer", "",
        "The source of the traffic counts: bpf, proc, or `bpf, reads estimated` while reads are too many to \
         count each."),
    field("missed_events", "",
        "Events that the BPF programs did not count, because they were interrupted by themselves or their maps were \
         full; without BPF unknown.")
        .counter("justitia_observer_missed_events", report!(missed_events)),
    field("since_unix_s", "s", "When the agent began, in seconds since 1970.")
        .gauge("justitia_agent_start_time_seconds", report!(since_unix_s)),
    field("interval_s", "s", "Time between two steps.")
        .gauge("justitia_agent_interval_seconds", report!(interval_s)),
    field("ticks_total", "", "Steps so far.")
        .counter("justitia_agent_ticks", report!(ticks_total)),
    field("tick_us", "us", "Duration of the last step, from observing to submitting the writes.")
        .gauge("justitia_agent_tick_seconds", Get::Report(|report| Some(report.tick_us as f64 / 1e6))),
    field("longest_tick_us", "us", "The longest step so far.")
        .gauge("justitia_agent_longest_tick_seconds", Get::Report(|report| Some(report.longest_tick_us as f64 / 1e6))),
    extra("Resident memory of the agent, its binary included.")
        .gauge("justitia_agent_resident_memory_bytes", Get::Own(|own| number(own.resident_bytes))),
    extra("CPU time of all threads of the agent.")
        .counter("justitia_agent_cpu_seconds", Get::Own(|own| Some(own.cpu.as_secs_f64()))),
    field("problems", "", "Problems of the agent, each with its remedy; the metric is their number.")
        .gauge("justitia_agent_problems", report!(problems.len())),
    field("writes", "",
        "Knobs that the last step wrote, or would have written in mode observe; the metric is their number.")
        .gauge("justitia_agent_step_writes", report!(writes.len())),
    field("writes_total", "", "Knobs written since the agent began, without restores of prior values.")
        .counter("justitia_agent_writes", report!(writes_total)),
    field("writes[].reason.file", "B", "The page cache in a threshold."),
    field("writes[].reason.non_file", "B", "The other memory in a threshold."),
    field("writes[].reason.of_ideal", "",
        "The group's bandwidth over its weighted share when a limit was decided."),
    field("writes[].reason.gain", "", "The gain that a limit or a block weight follows."),
    field("pv", "",
        "Proportionality variation: mean distance of the contending groups' bandwidth ratios from their \
         weights' ratios; 0 is ideal.")
        .gauge("justitia_proportionality_variation", report!(pv)),
    field("share_error", "", "Share of the contending groups' bandwidth that the wrong groups have, 0 to 1.")
        .gauge("justitia_share_error_ratio", report!(share_error)),
    field("host.total_bytes", "B", "Memory of the host.")
        .gauge("justitia_host_memory_bytes", report!(host.total_bytes)),
    field("host.free_bytes", "B", "Free memory of the host, without page cache.")
        .gauge("justitia_host_free_bytes", report!(host.free_bytes)),
    field("host.file_bytes", "B", "Page cache of the whole host.")
        .gauge("justitia_host_page_cache_bytes", report!(host.file_bytes)),
    field("host.high_watermark_bytes", "B",
        "Free memory below which the kernel reclaims: the zones' high watermarks, and the memory that lower \
         zones withhold from allocations for higher zones.")
        .gauge("justitia_host_high_watermark_bytes", report!(host.high_watermark_bytes)),
    field("host.memory_some", "", "Share of the time in which some task of the host waited for memory.")
        .gauge("justitia_host_memory_some_stalled_ratio", report!(host.stalled.memory_some)),
    field("host.memory_full", "", "Share of the time in which all tasks that were not idle waited for memory.")
        .gauge("justitia_host_memory_full_stalled_ratio", report!(host.stalled.memory_full)),
    field("host.io_some", "", "Share of the time in which some task of the host waited for I/O.")
        .gauge("justitia_host_io_some_stalled_ratio", report!(host.stalled.io_some)),
    field("host.io_full", "", "Share of the time in which all tasks that were not idle waited for I/O.")
        .gauge("justitia_host_io_full_stalled_ratio", report!(host.stalled.io_full)),
    field("groups", "", "Managed groups; the metric is their number.")
        .gauge("justitia_groups", report!(groups.len())),
    extra("Number of groups that contend.")
        .gauge(
            "justitia_contending_groups",
            Get::Report(|report| {
                let mut known = report.groups.iter().filter_map(|g| g.verdict.as_ref()).peekable();
                known.peek()?;
                Some(known.filter(|verdict| verdict.contending).count() as f64)
            }),
        ),
    field("devices[].low_latency", "", "BFQ's low_latency of a disk, which overrides weights: 1 on, 0 off.")
        .gauge("justitia_disk_low_latency", Get::Device(|disk| number(disk.low_latency))),
    field("devices[].knobs", "",
        "Its knobs, BFQ's or io.cost's: value, value before the agent, and whether another program changed \
         it."),
];
