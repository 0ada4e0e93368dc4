//! The tables of the page: policies side by side, containers in detail, agent, environment.

use std::fmt::Write;

use super::html::{details, escape};
use super::table::{Cell, Column, Table};
use crate::analysis::aggregate::Range;
use crate::analysis::document;
use crate::analysis::figures::{ContainerFigures, Figures};
use crate::analysis::notes::notes;
use crate::analysis::record::RunRecord;
use crate::analysis::residency::FileFigures;
use crate::analysis::result::PolicyResult;
use crate::analysis::weighted::Document;
use crate::choices::Choices;
use crate::experiments::{mib, Measure};
use crate::protocol::{KnobDifference, Lie, Lru, Policy, Volume};

/// Policies side by side, and the notes on their validity.
pub fn summary(document: &Document) -> String {
    let mut html = String::from("<h2>Summary</h2>\n");
    html.push_str(&policies(document).html());
    html.push_str(&apart(document).html());
    if document.environment.settings.measure == Measure::Window {
        html.push_str(&whole_run(document).folded(false, &"Whole run".into()));
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

/// A figure of a policy: its heading, value and decimals.
type Figure = (&'static str, fn(&Figures) -> Option<f64>, usize);

const SUMMARY: [Figure; 6] = [
    ("PV", |f| f.pv, 2),
    ("Share error", |f| f.share_error, 3),
    ("U", |f| f.utility, 3),
    ("Total MB/s", |f| f.total_mb_per_s, 1),
    ("Hit ratio", |f| f.hit_ratio, 2),
    ("Mean latency ms", |f| f.mean_latency_ms, 2),
];
const LONGEST: [Figure; 2] = [
    ("Longest ms", |f| f.max_latency_ms, 0),
    ("Operations over 2 s", |f| f.slow_ops, 0),
];
const APART: [Figure; 2] = [
    ("PV writes", |f| f.pv_writes, 2),
    ("PV reads", |f| f.pv_reads, 2),
];
const WHILE_ALL_READ: Figure = ("PV while all read", |f| f.pv_while_all_work, 2);
const MOVED: [Figure; 4] = [
    ("Written MB/s", |f| f.write_mb_per_s, 1),
    ("Read MB/s", |f| f.read_mb_per_s, 1),
    ("Device writes MB/s", |f| f.device_write_mb_per_s, 1),
    ("Device reads MB/s", |f| f.device_read_mb_per_s, 1),
];

/// A table with a row for each policy. The first figures have their range over the runs.
fn figures_table(
    document: &Document,
    caption: &str,
    ranged: &[Figure],
    others: &[Figure],
    of: fn(&PolicyResult) -> &Figures,
) -> Table {
    let figures = || ranged.iter().chain(others);
    let headings = figures().map(|(heading, ..)| *heading);
    let mut table = Table::new(caption, ["Policy"].into_iter().chain(headings));
    for (policy, result) in document.in_order() {
        let cells = figures().enumerate().map(|(i, (_, value, digits))| {
            let range = Range::of(result.runs.iter().map(|run| value(&run.figures)));
            let range = range.filter(|_| i < ranged.len());
            Cell::ranged(value(of(result)), range, *digits, result.runs.len())
        });
        table.row([Cell::Policy(policy)].into_iter().chain(cells));
    }
    table
}

pub fn policies(document: &Document) -> Table {
    figures_table(document, "Policies", &SUMMARY, &LONGEST, |r| &r.figures)
}

/// Reads and writes separately; for a fixed job, which only reads, PV while all compete instead.
pub fn apart(document: &Document) -> Table {
    if document.environment.settings.measure == Measure::Completion {
        let figures = [&[WHILE_ALL_READ], &MOVED[..]].concat();
        let caption = "While all compete, and the device";
        return figures_table(document, caption, &[], &figures, |r| &r.figures);
    }
    let caption = "Reads and writes apart";
    figures_table(document, caption, &APART, &MOVED, |r| &r.figures)
}

fn whole_run(document: &Document) -> Table {
    let caption = "The whole run, warm-up included";
    figures_table(document, caption, &[], &SUMMARY, |r| &r.whole_run)
}

type File<'a> = (Policy, &'a FileFigures);

/// Residency of each watched file.
pub fn residency(document: &Document) -> Table {
    let columns: [Column<File>; 7] = [
        ("Policy", |(policy, _)| Cell::Policy(*policy)),
        ("File", |(_, file)| (&file.name).into()),
        ("Size MB", |(_, file)| Cell::number(file.size_mb, 1)),
        ("Before MB", |(_, file)| Cell::number(file.before_mb, 1)),
        ("Least MB", |(_, file)| Cell::number(file.least_mb, 1)),
        ("End MB", |(_, file)| Cell::number(file.end_mb, 1)),
        ("Least, part of file", |(_, file)| {
            Cell::percent(file.least_part(), 0)
        }),
    ];
    let files = document
        .in_order()
        .flat_map(|(policy, result)| result.figures.files.iter().map(move |file| (policy, file)));
    Table::of("Resident", &columns, files)
}

/// Every container under every policy.
pub fn containers(document: &Document) -> String {
    let columns = columns(document.environment.settings.measure);
    let mut html = String::from("<h2>Containers</h2>\n");
    for (policy, result) in document.in_order() {
        let caption = format!("Containers under {}", policy.name());
        let containers = (0..result.figures.containers.len()).map(|i| (result, i));
        let open = policy.runs_agent() && policy != Policy::Observe;
        let table = Table::of(&caption, &columns, containers);
        html.push_str(&table.folded(open, &Cell::Policy(policy)));
    }
    html
}

/// A container by its place in a result.
type Container<'a> = (&'a PolicyResult, usize);

fn of<'a>((result, place): &Container<'a>) -> &'a ContainerFigures {
    &result.figures.containers[*place]
}

/// A figure of a container with its range over the runs.
fn ranged((result, place): &Container, figure: fn(&ContainerFigures) -> Option<f64>) -> Cell {
    let runs = result.runs.iter().map(|run| &run.figures.containers);
    let range = Range::of(runs.map(|containers| containers.get(*place).and_then(figure)));
    let value = figure(&result.figures.containers[*place]);
    Cell::ranged(value, range, 2, result.runs.len())
}

/// The columns of containers; a fixed job has its end instead of the page cache over time.
fn columns<'a>(measure: Measure) -> Vec<Column<Container<'a>>> {
    let share: [Column<Container>; 9] = [
        ("Container", |c| (&of(c).name).into()),
        ("Weight", |c| of(c).weight.into()),
        ("Ideal share", |c| Cell::percent(of(c).ideal_share, 1)),
        ("Share", |c| Cell::percent(of(c).share, 1)),
        ("Ideal ratio", |c| Cell::number(of(c).ideal_normalized, 2)),
        ("Ratio", |c| ranged(c, |f| f.normalized)),
        ("MB/s", |c| ranged(c, |f| f.mb_per_s)),
        ("Read MB/s", |c| Cell::number(of(c).read_mb_per_s, 2)),
        ("Written MB/s", |c| Cell::number(of(c).write_mb_per_s, 2)),
    ];
    let middle: [Column<Container>; 2] = match measure {
        Measure::Completion => [
            ("Resident MB", |c| Cell::number(of(c).resident_mb, 1)),
            ("Done after s", |c| Cell::number(of(c).finished_at_s, 2)),
        ],
        _ => [
            ("Cache MB", |c| Cell::number(of(c).page_cache_mb, 1)),
            ("Low MB", |c| Cell::number(of(c).low_mb, 1)),
        ],
    };
    let latency: [Column<Container>; 5] = [
        ("Hit ratio", |c| Cell::number(of(c).hit_ratio, 2)),
        ("Mean latency ms", |c| {
            Cell::number(of(c).mean_latency_ms, 2)
        }),
        ("Longest ms", |c| Cell::number(of(c).max_latency_ms, 0)),
        ("Memory stall", |c| stall(of(c).memory_stall_percent)),
        ("I/O stall", |c| stall(of(c).io_stall_percent)),
    ];
    [&share[..], &middle, &latency].concat()
}

fn stall(stall_percent: Option<f64>) -> Cell {
    Cell::percent(stall_percent.map(|p| p / 100.0), 1)
}

type Row<'a> = (Policy, &'a PolicyResult);

/// The greatest value of the runs in which it is known.
fn most(result: &PolicyResult, value: fn(&RunRecord) -> Option<f64>) -> Option<f64> {
    let known = result.runs.iter().filter_map(|run| value(&run.record));
    known.reduce(f64::max)
}

fn knobs(result: &PolicyResult) -> Cell {
    let text = match result.knob_differences.len() {
        _ if result.knobs_restored => "all as before".to_owned(),
        count => format!("{count} differ"),
    };
    Cell::Judged(result.knobs_restored, text)
}

/// Cost of the agent, and knobs that it did not restore.
pub fn agent(document: &Document) -> String {
    let columns: [Column<Row>; 8] = [
        ("Policy", |(policy, _)| Cell::Policy(*policy)),
        ("CPU, % of one core", |(_, r)| {
            Cell::number(r.agent.and_then(|agent| agent.cpu_percent), 2)
        }),
        ("Peak memory MB", |(_, r)| {
            Cell::number(r.agent.map(|a| a.peak_rss_mb), 1)
        }),
        ("Knobs after the run", |(_, r)| knobs(r)),
        ("Boots repeated", |(_, r)| r.failed_boots().into()),
        ("Guest's CPUs busy", |(_, r)| {
            Cell::percent(most(r, |run| run.guest_cpu_busy), 0)
        }),
        ("Host busy with others", |(_, r)| {
            Cell::percent(most(r, |run| run.head.host_busy_with_others), 0)
        }),
        ("Host speed", |(_, r)| {
            let speeds = r.runs.iter().filter_map(|run| run.record.head.host_speed);
            Cell::number(speeds.reduce(f64::min), 0)
        }),
    ];
    let changed: [Column<&KnobDifference>; 3] = [
        ("Knob", |knob| (&knob.knob).into()),
        ("Before", |knob| {
            knob.before.as_deref().unwrap_or("not there").into()
        }),
        ("After", |knob| {
            knob.after.as_deref().unwrap_or("not there").into()
        }),
    ];
    let table = Table::of("Agent", &columns, document.in_order());
    let mut html = format!("<h2>Agent and knobs</h2>\n{}", table.html());
    for (policy, result) in document.in_order() {
        if !result.knob_differences.is_empty() {
            let caption = format!("Left changed by {}", policy.name());
            html.push_str(&Table::of(&caption, &changed, &result.knob_differences).html());
        }
        let log = super::representative(result).map_or("", |run| run.record.head.agent_log.trim());
        if !log.is_empty() {
            let summary = format!("Last lines of the agent's log under {}", policy.name());
            let log = format!("<pre>{}</pre>", escape(log));
            html.push_str(&details(false, &summary, &log));
        }
    }
    html
}

/// Everything needed to reproduce the result of weighted containers.
pub fn environment(document: &Document) -> String {
    let settings = &document.environment.settings;
    let mut table = shared_facts(document, &settings.choices);
    let kind = match settings.memory_disk() {
        Some(disk) => {
            let of = |volume: Volume| format!(", {} of {}", volume.name(), disk.disks().0);
            let volume = disk.volume.map_or_else(String::new, of);
            format!("{} MiB of memory (null_blk{volume})", disk.bytes >> 20)
        }
        None => "NVMe".to_owned(),
    };
    table.fact("File system", format_args!("fresh ext4 on {kind}"));
    let mount = settings.mount_options.as_str();
    table.fact(
        "Mount options asked for",
        if mount.is_empty() { "defaults" } else { mount },
    );
    table.fact("Measured seconds", settings.seconds);
    for (name, value) in settings.workload.table() {
        table.fact(&format!("Load: {name}"), value);
    }
    for container in &settings.containers {
        let duty = container.duty_s;
        let duty = duty.map(|s| format!("works and pauses in turn, {s} s each"));
        let growth = container.anon_growth_bytes_per_s;
        let kib = growth >> 10;
        let growth = (growth > 0).then(|| format!("anonymous memory grows by {kib} KiB/s"));
        let lie = container.lie.map(Lie::name);
        let lie = lie.map(|lie| format!("declares '{lie}' as its color each second"));
        for fact in [duty, growth, lie].into_iter().flatten() {
            table.fact(&format!("Load: {}", container.name), fact);
        }
    }
    if let Some(at) = settings.kill_agent_at_s {
        let killed = format!("{at} s, started again a second later");
        table.fact("Agent killed after", killed);
    }
    reproduced(document, &table)
}

/// The table of the facts that every experiment has.
pub fn shared_facts<S, R>(document: &document::Document<S, R>, choices: &Choices) -> Table {
    let environment = &document.environment;
    let mut table = Table::facts("Environment");
    table.fact("Justitia", &environment.justitia_version);
    table.fact("Kernel", &document.kernel);
    table.fact("Memory", mib(choices.memory_bytes));
    table.fact("CPUs", choices.cpus);
    table.fact("Clock", choices.clock);
    table.fact("Data disk", format_args!("{} MB/s", choices.disk_mb_per_s));
    table.fact("LRU", lru_name(choices.lru));
    table.fact("Block scheduler", choices.scheduler.name());
    table.fact("Runs", choices.runs);
    table.fact("Seed of the first run", choices.seed);
    if !choices.agent_args.is_empty() {
        table.fact("Agent arguments", choices.agent_args.join(" "));
    }
    if !choices.agent_config.is_empty() {
        table.fact("Agent configuration", choices.agent_config.join("; "));
    }
    for (name, value) in &environment.machine {
        table.fact(&format!("Machine: {}", name.replace('_', " ")), value);
    }
    for (name, value) in &environment.guest {
        table.fact(&format!("Guest: {}", name.replace('_', " ")), value);
    }
    table
}

/// The environment's part of the page.
pub fn reproduced<S, R>(document: &document::Document<S, R>, facts: &Table) -> String {
    format!(
        "<h2>Environment</h2>\n{}<h3>The command that made it</h3>\n<pre>{}</pre>\n\
         <p class=\"note\">result.json beside this page holds the raw series; \
         <code>justitia lab report DIR</code> analyzes them again.</p>\n",
        facts.html(),
        escape(&document.environment.command)
    )
}

pub fn lru_name(lru: Lru) -> &'static str {
    match lru {
        Lru::Kernel => "the kernel's",
        Lru::Classic => "classic",
        Lru::Mglru => "mglru",
    }
}
