//! The tables of the page: policies side by side, containers in detail, agent, environment.

use std::fmt::Write;

use super::html::{escape, number, percent, with_range, Table};
use crate::analysis::notes::notes;
use crate::analysis::result::PolicyResult;
use crate::analysis::weighted::Document;
use crate::experiments::Measure;
use crate::protocol::{Lru, Policy};

/// Policies side by side, and the notes on their validity.
pub fn summary(document: &Document) -> String {
    let mut html = String::from("<h2>Summary</h2>\n");
    html.push_str(&policies(document));
    html.push_str(&apart(document));
    if document.environment.settings.measure == Measure::Window {
        let table = whole_run(document);
        let _ = writeln!(
            html,
            "<details><summary>Whole run</summary>{table}</details>"
        );
    }
    let notes = notes(document);
    if !notes.is_empty() {
        html.push_str("<ul class=\"notes\">");
        for note in notes {
            let _ = write!(html, "<li>{}</li>", escape(&note));
        }
        html.push_str("</ul>\n");
    }
    html.push_str("<ul class=\"legend\">");
    for (policy, _) in document.in_order() {
        let _ = write!(
            html,
            "<li><b>{}</b>: {}</li>",
            policy.name(),
            policy.meaning()
        );
    }
    html.push_str("</ul>\n");
    html
}

fn policies(document: &Document) -> String {
    let mut table = Table::numbers(
        "Policies",
        &[
            "Policy",
            "PV",
            "Share error",
            "U",
            "Total MB/s",
            "Hit ratio",
            "Mean latency ms",
            "Longest ms",
            "Operations over 2 s",
        ],
    );
    for (policy, result) in document.in_order() {
        let (f, s, runs) = (&result.figures, &result.spread, result.runs.len());
        table.row(vec![
            label(policy),
            with_range(f.pv, s.pv, 2, runs),
            with_range(f.share_error, s.share_error, 3, runs),
            with_range(f.utility, s.utility, 3, runs),
            with_range(f.total_mb_per_s, s.total_mb_per_s, 1, runs),
            with_range(f.hit_ratio, s.hit_ratio, 2, runs),
            with_range(f.mean_latency_ms, s.mean_latency_ms, 2, runs),
            number(f.max_latency_ms, 0),
            number(f.slow_ops, 0),
        ]);
    }
    table.render()
}

/// Residency of each watched file.
pub fn residency(document: &Document) -> String {
    let mut table = Table::numbers(
        "Resident",
        &[
            "Policy",
            "File",
            "Size MB",
            "Before MB",
            "Least MB",
            "End MB",
            "Least, part of file",
        ],
    );
    for (policy, result) in document.in_order() {
        for file in &result.figures.files {
            table.row(vec![
                label(policy),
                escape(&file.name),
                number(file.size_mb, 1),
                number(file.before_mb, 1),
                number(file.least_mb, 1),
                number(file.end_mb, 1),
                percent(file.least_part(), 0),
            ]);
        }
    }
    table.render()
}

/// Reads and writes separately; for a fixed job, which only reads, PV while all compete instead.
fn apart(document: &Document) -> String {
    let completion = document.environment.settings.measure == Measure::Completion;
    let (caption, pv): (&str, &[&str]) = if completion {
        ("While all compete, and the device", &["PV while all read"])
    } else {
        ("Reads and writes apart", &["PV writes", "PV reads"])
    };
    let mut head = vec!["Policy"];
    head.extend(pv);
    head.extend([
        "Written MB/s",
        "Read MB/s",
        "Device writes MB/s",
        "Device reads MB/s",
    ]);
    let mut table = Table::numbers(caption, &head);
    for (policy, result) in document.in_order() {
        let (f, s, runs) = (&result.figures, &result.spread, result.runs.len());
        let mut row = vec![label(policy)];
        if completion {
            row.push(number(f.pv_while_all_work, 2));
        } else {
            row.push(with_range(f.pv_writes, s.pv_writes, 2, runs));
            row.push(with_range(f.pv_reads, s.pv_reads, 2, runs));
        }
        row.extend([
            number(f.write_mb_per_s, 1),
            number(f.read_mb_per_s, 1),
            number(f.device_write_mb_per_s, 1),
            number(f.device_read_mb_per_s, 1),
        ]);
        table.row(row);
    }
    table.render()
}

fn whole_run(document: &Document) -> String {
    let mut table = Table::numbers(
        "The whole run, warm-up included",
        &[
            "Policy",
            "PV",
            "Share error",
            "U",
            "Total MB/s",
            "Hit ratio",
            "Mean latency ms",
        ],
    );
    for (policy, result) in document.in_order() {
        let f = &result.whole_run;
        table.row(vec![
            label(policy),
            number(f.pv, 2),
            number(f.share_error, 3),
            number(f.utility, 3),
            number(f.total_mb_per_s, 1),
            number(f.hit_ratio, 2),
            number(f.mean_latency_ms, 2),
        ]);
    }
    table.render()
}

/// The name of a policy beside its color.
pub(super) fn label(policy: Policy) -> String {
    format!(
        "<span class=\"swatch\" style=\"background:var(--{name})\"></span>{name}",
        name = policy.name()
    )
}

/// Every container under every policy.
pub fn containers(document: &Document) -> String {
    let completion = document.environment.settings.measure == Measure::Completion;
    let mut html = String::from("<h2>Containers</h2>\n");
    for (policy, result) in document.in_order() {
        let table = container_table(policy, result, completion);
        let open = if policy.runs_agent() && policy != Policy::Observe {
            " open"
        } else {
            ""
        };
        let _ = writeln!(
            html,
            "<details{open}><summary>{}</summary>{table}</details>",
            label(policy)
        );
    }
    html
}

fn container_table(policy: Policy, result: &PolicyResult, completion: bool) -> String {
    let mut head = vec![
        "Container",
        "Weight",
        "Ideal share",
        "Share",
        "Ideal ratio",
        "Ratio",
        "MB/s",
        "Read MB/s",
        "Written MB/s",
    ];
    head.extend(if completion {
        ["Resident MB", "Done after s", "Hit ratio"]
    } else {
        ["Cache MB", "Low MB", "Hit ratio"]
    });
    head.extend(["Mean latency ms", "Longest ms", "Memory stall", "I/O stall"]);
    let mut table = Table::numbers(&format!("Containers under {}", policy.name()), &head);
    let runs = result.runs.len();
    for (i, c) in result.figures.containers.iter().enumerate() {
        let range = |ranges: &[Option<_>]| ranges.get(i).copied().flatten();
        let mut row = vec![
            escape(&c.name),
            c.weight.to_string(),
            percent(c.ideal_share, 1),
            percent(c.share, 1),
            number(c.ideal_normalized, 2),
            with_range(
                c.normalized,
                range(&result.spread.container_normalized),
                2,
                runs,
            ),
            with_range(
                c.mb_per_s,
                range(&result.spread.container_mb_per_s),
                2,
                runs,
            ),
            number(c.read_mb_per_s, 2),
            number(c.write_mb_per_s, 2),
        ];
        row.extend(if completion {
            [
                number(c.resident_mb, 1),
                number(c.finished_at_s, 2),
                number(c.hit_ratio, 2),
            ]
        } else {
            [
                number(c.page_cache_mb, 1),
                number(c.low_mb, 1),
                number(c.hit_ratio, 2),
            ]
        });
        row.extend([
            number(c.mean_latency_ms, 2),
            number(c.max_latency_ms, 0),
            percent(c.memory_stall_percent.map(|p| p / 100.0), 1),
            percent(c.io_stall_percent.map(|p| p / 100.0), 1),
        ]);
        table.row(row);
    }
    table.render()
}

/// Cost of the agent, and knobs that it did not restore.
pub fn agent(document: &Document) -> String {
    let mut table = Table::numbers(
        "Agent",
        &[
            "Policy",
            "CPU, % of one core",
            "Peak memory MB",
            "Knobs after the run",
            "Boots repeated",
            "Guest's CPUs busy",
            "Host busy with others",
            "Host speed",
        ],
    );
    for (policy, result) in document.in_order() {
        let knobs = if result.knobs_restored {
            "<span class=\"good\">all as before</span>".to_owned()
        } else {
            format!(
                "<span class=\"bad\">{} differ</span>",
                result.knob_differences.len()
            )
        };
        let records = || result.runs.iter().map(|run| &run.record);
        let busy = records().filter_map(|record| record.head.host_busy_with_others);
        let guest = records().filter_map(|record| record.guest_cpu_busy);
        let speed = records().filter_map(|record| record.head.host_speed);
        let failed: u32 = records().map(|record| record.head.failed_boots).sum();
        table.row(vec![
            label(policy),
            number(result.agent.and_then(|agent| agent.cpu_percent), 2),
            number(result.agent.map(|agent| agent.peak_rss_mb), 1),
            knobs,
            failed.to_string(),
            percent(guest.reduce(f64::max), 0),
            percent(busy.reduce(f64::max), 0),
            number(speed.reduce(f64::min), 0),
        ]);
    }
    let mut html = format!("<h2>Agent and knobs</h2>\n{}", table.render());
    for (policy, result) in document.in_order() {
        if !result.knob_differences.is_empty() {
            let mut knobs = Table::numbers(
                &format!("Left changed by {}", policy.name()),
                &["Knob", "Before", "After"],
            );
            let value = |text: &Option<String>| escape(text.as_deref().unwrap_or("not there"));
            for difference in &result.knob_differences {
                knobs.row(vec![
                    escape(&difference.knob),
                    value(&difference.before),
                    value(&difference.after),
                ]);
            }
            html.push_str(&knobs.render());
        }
        let log = super::representative(result).map_or("", |run| run.record.agent_log.trim());
        if !log.is_empty() {
            let _ = writeln!(
                html,
                "<details><summary>Last lines of the agent's log under {}</summary><pre>{}</pre></details>",
                policy.name(),
                escape(log)
            );
        }
    }
    html
}

/// Everything needed to reproduce the result.
pub fn environment(document: &Document) -> String {
    let environment = &document.environment;
    let settings = &environment.settings;
    let choices = &settings.choices;
    let mut table = Table::facts("Environment");
    table.fact("Kernel", &document.kernel);
    table.fact("Memory", format_args!("{} MiB", choices.memory_bytes >> 20));
    table.fact("CPUs", choices.cpus);
    table.fact("Clock", choices.clock);
    let kind = match settings.memory_disk() {
        Some(disk) => format!("{} MiB of memory (null_blk)", disk.bytes >> 20),
        None => "NVMe".to_owned(),
    };
    table.fact(
        "Data disk",
        format_args!("{} MB/s, fresh ext4 on {kind}", choices.disk_mb_per_s),
    );
    let mount = settings.mount_options.as_str();
    table.fact(
        "Mount options asked for",
        if mount.is_empty() { "defaults" } else { mount },
    );
    table.fact("LRU", lru_name(choices.lru));
    table.fact("Block scheduler", choices.scheduler.name());
    table.fact("Measured seconds", settings.seconds);
    table.fact("Runs", choices.runs);
    table.fact("Seed of the first run", choices.seed);
    for (name, value) in settings.workload.table() {
        table.fact(&format!("Load: {name}"), value);
    }
    for container in &settings.containers {
        let load = format!("Load: {}", container.name);
        if let Some(duty) = container.duty_s {
            table.fact(
                &load,
                format_args!("works and pauses in turn, {duty} s each"),
            );
        }
        if container.anon_growth_bytes_per_s > 0 {
            let growth = container.anon_growth_bytes_per_s >> 10;
            table.fact(
                &load,
                format_args!("anonymous memory grows by {growth} KiB/s"),
            );
        }
        if let Some(lie) = container.lie {
            let lie = lie.name();
            table.fact(
                &load,
                format_args!("declares '{lie}' as its color each second"),
            );
        }
    }
    if !choices.agent_args.is_empty() {
        table.fact("Agent arguments", choices.agent_args.join(" "));
    }
    if let Some(at) = settings.kill_agent_at_s {
        table.fact(
            "Agent killed after",
            format_args!("{at} s, started again a second later"),
        );
    }
    for (name, value) in &environment.machine {
        table.fact(&format!("Machine: {}", name.replace('_', " ")), value);
    }
    for (name, value) in &environment.guest {
        table.fact(&format!("Guest: {}", name.replace('_', " ")), value);
    }
    table.fact("Justitia", &environment.justitia_version);
    format!(
        "<h2>Environment</h2>\n{}<h3>The command that made it</h3>\n<pre>{}</pre>\n\
         <p class=\"note\">result.json beside this page holds the raw series; \
         <code>justitia lab report DIR</code> analyzes them again.</p>\n",
        table.render(),
        escape(&environment.command)
    )
}

pub fn lru_name(lru: Lru) -> &'static str {
    match lru {
        Lru::Kernel => "the kernel's",
        Lru::Classic => "classic",
        Lru::Mglru => "mglru",
    }
}
