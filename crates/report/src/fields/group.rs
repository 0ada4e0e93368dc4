//! Fields of each managed group.

use justitia_policy::color::ColorSource;

use super::{extra, field, number, Field, Get, Kind};
use crate::status::source_words;

#[rustfmt::skip]
pub(crate) const GROUP: &[Field] = &[
    field("groups[].id", "", "The cgroup ID; a path may be reused, an ID is not."),
    field("groups[].kind", "", "Its kind: container, pod, service, vm or group."),
    field("groups[].name", "",
        "Its owner's name for it; namespace/pod for a pod, namespace/pod/container for a container of a pod."),
    field("groups[].namespace", "", "Its Kubernetes namespace."),
    field("groups[].pod", "", "Its Kubernetes pod."),
    field("groups[].container", "", "Its name within the Kubernetes pod."),
    field("groups[].delegated", "", "True below a directory that root delegated: a tenant named the group."),
    field("groups[].weight_source", "", "Source of the weight; the metric has the cgroup ID too.")
        .metric(
            "justitia_group",
            Kind::Info,
            Get::GroupInfo(|group| {
                let source = source_words(group.weight_source);
                vec![("id", group.id.to_string()), ("weight_source", source.to_owned())]
            }),
        ),
    field("groups[].weight", "", "The group's weight, 1 to 10000; 100 is the default.")
        .gauge("justitia_group_weight", group!(weight)),
    field("groups[].proportion", "", "Its share of the managed groups' weight, 0 to 1.")
        .gauge("justitia_group_proportion_ratio", group!(verdict.as_ref()?.proportion)),
    field("groups[].bytes_per_s", "B/s", "Bytes that its applications read and write, cached or not.")
        .gauge("justitia_group_bandwidth_bytes_per_second", group!(verdict.as_ref()?.bytes_per_s)),
    field("groups[].transferable_bytes_per_s", "B/s",
        "The part of its bandwidth that the disk carries: writes and misses.")
        .gauge(
            "justitia_group_transferable_bytes_per_second",
            group!(verdict.as_ref()?.transferable_bytes_per_s),
        ),
    field("groups[].of_ideal", "",
        "Smoothed bandwidth over the group's weighted share of what the contending groups have; 1 is ideal.")
        .gauge("justitia_group_of_ideal_ratio", group!(verdict.as_ref()?.of_ideal)),
    field("groups[].contending", "", "It stalls, so it contends: 1 yes, 0 no.")
        .gauge("justitia_group_contending", group!(verdict.as_ref()?.contending)),
    field("groups[].color", "",
        "Its color: green is satisfied, yellow would do better with more, red is not satisfied.")
        .metric(
            "justitia_group_color",
            Kind::StateSet,
            Get::GroupState(&["green", "yellow", "red"], |group| {
                Some(group.verdict.as_ref()?.color.to_string())
            }),
        ),
    field("groups[].color_source", "",
        "Source of the color: declared by its application, or inferred by the agent from stalls and share."),
    extra("Its application declares a color that counts: 1 yes, 0 no.")
        .gauge(
            "justitia_group_color_declared",
            group!(verdict.as_ref()?.color_source == ColorSource::Declared),
        ),
    field("groups[].declared", "",
        "Its declaration: color, reason, channel, and whether it counts (fresh) or why it does not."),
    field("groups[].declared.unchanged_s", "s", "Time since the declared color last changed.")
        .gauge("justitia_group_color_unchanged_seconds", group!(declared.as_ref()?.unchanged_s)),
    field("groups[].cap_bytes", "B", "Page cache that it may hold while it gives memory for its color.")
        .gauge("justitia_group_cap_bytes", group!(verdict.as_ref()?.cap_bytes)),
    field("groups[].working_set_bytes", "B",
        "Memory that it needs to stay satisfied, learned while memory was taken from it.")
        .gauge("justitia_group_working_set_bytes", group!(verdict.as_ref()?.working_set_bytes)),
    field("groups[].gain", "", "The feedback's factor on its share; 1 is neutral.")
        .gauge("justitia_group_gain_ratio", group!(verdict.as_ref()?.gain)),
    field("groups[].stalled", "",
        "Share of the time in which at least one of its tasks waited for memory or I/O, 0 to 1.")
        .gauge("justitia_group_stalled_ratio", group!(verdict.as_ref()?.stalled)),
    field("groups[].current_bytes", "B", "All memory charged to it.")
        .gauge("justitia_group_memory_bytes", group!(current_bytes)),
    field("groups[].file_bytes", "B", "Page cache charged to it.")
        .gauge("justitia_group_page_cache_bytes", group!(file_bytes)),
    field("groups[].threshold_bytes", "B", "Page cache of the group that is protected from reclaim.")
        .gauge("justitia_group_threshold_bytes", group!(verdict.as_ref()?.threshold_bytes)),
    field("groups[].entitlement_bytes", "B", "Page cache that its weight entitles it to.")
        .gauge("justitia_group_entitlement_bytes", group!(verdict.as_ref()?.entitlement_bytes)),
    field("groups[].needs_bytes", "B",
        "Page cache with which its reads hit as often as with its share by weight.")
        .gauge("justitia_group_needs_bytes", group!(verdict.as_ref()?.needs_bytes)),
    field("groups[].lends_bytes", "B", "Part of its share by weight that it leaves to others.")
        .gauge("justitia_group_lends_bytes", group!(verdict.as_ref()?.lends_bytes)),
    field("groups[].borrows_bytes", "B", "Page cache that it may use beyond its share by weight.")
        .gauge("justitia_group_borrows_bytes", group!(verdict.as_ref()?.borrows_bytes)),
    field("groups[].worth.asked_bytes_per_s", "B/s",
        "Bytes that its buffered reads request, as its curve has them."),
    field("groups[].worth.now_hit_ratio", "",
        "Hit ratio with the page cache that it holds, as its curve has it, 0 to 1.")
        .gauge("justitia_group_worth_now_hit_ratio", group!(worth.as_ref()?.now_hit_ratio)),
    field("groups[].worth.half_hit_ratio", "", "Hit ratio with half of the page cache that it holds.")
        .gauge("justitia_group_worth_half_hit_ratio", group!(worth.as_ref()?.half_hit_ratio)),
    field("groups[].worth.twice_hit_ratio", "", "Hit ratio with twice the page cache that it holds.")
        .gauge("justitia_group_worth_twice_hit_ratio", group!(worth.as_ref()?.twice_hit_ratio)),
    field("groups[].worth.more_bytes_per_s", "B/s", "Reads from disks that 64 MiB more page cache would save.")
        .gauge("justitia_group_worth_more_bytes_per_second", group!(worth.as_ref()?.more_bytes_per_s)),
    field("groups[].worth.knee_bytes", "B", "Size of page cache beyond which more brings clearly less.")
        .gauge("justitia_group_worth_knee_bytes", group!(worth.as_ref()?.knee_bytes)),
    field("groups[].worth.points[].cache_bytes", "B", "A size of page cache on its curve."),
    field("groups[].worth.points[].hit_ratio", "", "Hit ratio with that size, 0 to 1."),
    field("groups[].held_for_others_bytes", "B",
        "Page cache charged to it that belongs to higher-weighted users of the same files.")
        .gauge("justitia_group_held_for_others_bytes", group!(verdict.as_ref()?.held_for_others_bytes)),
    field("groups[].held_by_others_bytes", "B", "Page cache of its own that is charged to others.")
        .gauge("justitia_group_held_by_others_bytes", group!(verdict.as_ref()?.held_by_others_bytes)),
    field("groups[].hit_ratio", "",
        "Fraction of the pages requested by buffered reads that were cached and not just fetched by \
         readahead, 0 to 1.")
        .gauge("justitia_group_hit_ratio", group!(verdict.as_ref()?.cache.hit_ratio)),
    field("groups[].asked_pages_per_s", "pages/s", "Pages that buffered reads requested."),
    field("groups[].missed_pages_per_s", "pages/s", "Requested pages that were not in the page cache."),
    field("groups[].readahead_pages_per_s", "pages/s",
        "Requested pages that readahead had just fetched: neither hit nor miss."),
    field("groups[].inserted_pages_per_s", "pages/s",
        "Pages that reads and faults brought into the page cache."),
    field("groups[].evicted_pages_per_s", "pages/s", "Pages of its page cache that reclaim took."),
    field("groups[].refault_pages_per_s", "pages/s",
        "Refaults: pages read again soon after eviction, the part of its working set that does not fit."),
    field("groups[].mmap_faults_per_s", "1/s", "Faults on mapped files."),
    field("groups[].mmap_major_faults_per_s", "1/s", "Faults on mapped files that waited for the disk."),
    field("groups[].reclaim_s_per_s", "s/s",
        "Time its tasks spend in direct reclaim; more than 1 if several reclaim at once."),
    field("groups[].throttled_s_per_s", "s/s", "Time its tasks sleep because the group is above memory.high."),
    field("groups[].total.read_bytes", "B", "Bytes that its applications read, cached or not.")
        .counter("justitia_group_read_bytes", group!(total.traffic.read_bytes)),
    field("groups[].total.write_bytes", "B", "Bytes that its applications wrote, to the page cache or not.")
        .counter("justitia_group_written_bytes", group!(total.traffic.write_bytes)),
    field("groups[].total.missed_bytes", "B",
        "Bytes that its reads had to fetch from a device: misses and readahead.")
        .counter("justitia_group_fetched_bytes", group!(total.traffic.missed_bytes)),
    field("groups[].total.asked_pages", "pages",
        "Pages that buffered reads requested: hits, misses, and pages that readahead had just fetched.")
        .counter("justitia_group_asked_pages", group!(total.cache.asked_pages)),
    field("groups[].total.missed_pages", "pages", "Requested pages that were not in the page cache.")
        .counter("justitia_group_missed_pages", group!(total.cache.missed_pages)),
    field("groups[].total.readahead_pages", "pages",
        "Requested pages that readahead had just fetched: neither hit nor miss.")
        .counter("justitia_group_readahead_pages", group!(total.cache.readahead_pages)),
    field("groups[].total.inserted_pages", "pages", "Pages that reads and faults brought into the page cache.")
        .counter("justitia_group_inserted_pages", group!(total.cache.inserted_pages)),
    field("groups[].total.evicted_pages", "pages", "Pages of its page cache that reclaim took.")
        .counter("justitia_group_evicted_pages", group!(total.cache.evicted_pages)),
    field("groups[].total.refault_pages", "pages",
        "Refaults since the cgroup was made: pages read again soon after eviction.")
        .counter("justitia_group_refault_pages", group!(total.refault_pages)),
    field("groups[].total.mmap_faults", "", "Faults on mapped files.")
        .counter("justitia_group_mmap_faults", group!(total.cache.mmap_faults)),
    field("groups[].total.mmap_major_faults", "", "Faults on mapped files that waited for the disk.")
        .counter("justitia_group_mmap_major_faults", group!(total.cache.mmap_major_faults)),
    field("groups[].total.reclaim_us", "us", "Time its tasks spent in direct reclaim, summed.")
        .counter("justitia_group_reclaim_seconds", group_seconds!(total.cache.reclaim_us)),
    field("groups[].total.throttled_us", "us",
        "Time its tasks slept because the group was above memory.high, summed.")
        .counter("justitia_group_throttled_seconds", group_seconds!(total.cache.throttled_us)),
    field("groups[].total.memory_some_us", "us",
        "Time in which some task of it waited for memory, since the cgroup was made.")
        .counter("justitia_group_memory_some_stalled_seconds", group_seconds!(total.pressure.memory_some_us)),
    field("groups[].total.memory_full_us", "us",
        "Time in which all its tasks that were not idle waited for memory, since the cgroup was made.")
        .counter("justitia_group_memory_full_stalled_seconds", group_seconds!(total.pressure.memory_full_us)),
    field("groups[].total.io_some_us", "us",
        "Time in which some task of it waited for I/O, since the cgroup was made.")
        .counter("justitia_group_io_some_stalled_seconds", group_seconds!(total.pressure.io_some_us)),
    field("groups[].total.io_full_us", "us",
        "Time in which all its tasks that were not idle waited for I/O, since the cgroup was made.")
        .counter("justitia_group_io_full_stalled_seconds", group_seconds!(total.pressure.io_full_us)),
    field("groups[].total.cpu_some_us", "us",
        "Time in which some task of it waited for a CPU, since the cgroup was made.")
        .counter("justitia_group_cpu_some_stalled_seconds", group_seconds!(total.pressure.cpu_some_us)),
    field("groups[].knobs", "",
        "Its knobs: value, value before the agent, and whether another program changed it."),
];
