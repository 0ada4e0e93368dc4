//! `justitia status`: shows the running agent's report as a table.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use justitia_agent::socket::ask;
use justitia_agent::Result;
use justitia_policy::color::ColorSource;
use justitia_policy::plan::Knob;
use justitia_report::describe;
use justitia_report::status::{
    source_words, DeviceStatus, GroupStatus, GuardStatus, KnobStatus, Report, VerdictStatus,
};
use justitia_report::text::word;

use crate::output::{self, Page, Screen, Table};
use crate::settings::{self, OutputArgs};

/// Arguments of `justitia status`.
#[derive(Debug, Args)]
#[command(
    after_help = "OF IDEAL is a group's bandwidth over its weighted share: 1.00 is what its weight promises. A group \
that leaves its share of page cache unused counts with what it gets.
STALL is the share of the last period in which it waited for memory or I/O.
A COLOR in parentheses is inferred; the others were declared (justitia color).

Examples:
  justitia status
  justitia status --json | jq '.groups[] | {path, of_ideal}'"
)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print what each field of the JSON is, with its unit; needs no agent
    #[arg(long)]
    pub(crate) fields: bool,
}

pub(crate) fn run(args: &StatusArgs) -> Result<()> {
    if args.fields {
        return print_fields(args.output.json);
    }
    let report = ask(&settings::load(&args.output.config)?.socket())?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());
    output::print(args.output.json, &report, |screen| {
        render(&report, now, screen)
    })
}

/// Prints the description of each field: as a table, or with its metric as JSON.
fn print_fields(json: bool) -> Result<()> {
    if json {
        return output::print_json(&describe::fields().collect::<Vec<_>>());
    }
    // Descriptions are sentences and must not be cut.
    let fields = describe::fields().filter_map(|field| Some((field.json?, field)));
    Table::of(fields)
        .left("FIELD", 0, |(name, _)| *name)
        .left("UNIT", 0, |(_, field)| field.unit)
        .left("WHAT IT IS", 0, |(_, field)| field.help)
        .render(Screen::FILE)
        .print()
}

fn render(report: &Report, now_unix_s: u64, screen: Screen) -> Page {
    let mut text = Page::new();
    writeln!(
        text,
        "justitia {}  mode {}, objective {}, up {}, {} steps of {} s, {:.1} ms each, counted by {}",
        report.version,
        word(&report.mode),
        word(&report.objective),
        super::top::age(now_unix_s.saturating_sub(report.since_unix_s)),
        report.ticks_total,
        report.interval_s,
        report.tick_us as f64 / 1000.0,
        report.observer.as_deref().unwrap_or("-"),
    );
    writeln!(
        text,
        "memory {}, free {}, page cache {}; PV {}, share error {}",
        output::bytes(report.host.total_bytes),
        output::bytes(report.host.free_bytes),
        output::bytes(report.host.file_bytes),
        output::ratio(report.pv),
        output::ratio(report.share_error),
    );
    text.push_str("\n");
    text.append(&table(&report.groups, screen));
    let mut knobs = report.groups.iter().flat_map(|group| &group.knobs);
    if knobs.any(|knob| knob.foreign && knob.knob.is_memory()) {
        text.push_str("* set by another program: Justitia leaves it alone\n");
    }
    let knobs = report.devices.iter().flat_map(device_words);
    for (at, (knob, prior)) in knobs.enumerate() {
        let gap = if at == 0 { "\n" } else { "" };
        let name = knob.knob.file_name();
        writeln!(text, "{gap}{name} {}; before us: {prior}", knob.now);
    }
    if let Some(guard) = &report.guard {
        push_guard(&mut text, guard);
    }
    if let Some(gate) = &report.gate {
        write!(text, "\n{}\n", super::gate::sentence(gate));
    }
    if !report.watch.is_empty() {
        text.push_str("\n");
    }
    for finding in &report.watch {
        writeln!(text, "watch: {finding}");
    }
    for problem in &report.problems {
        text.problem(problem);
    }
    text
}

/// The guard's reserve, its reservations, and the page cache that it reclaimed.
fn push_guard(text: &mut Page, guard: &GuardStatus) {
    write!(
        text,
        "\nguard: {} to keep free, {} are free; {} of page cache requested so far, {} taken in full\n",
        output::bytes(guard.reserve_bytes),
        output::bytes(guard.spare_bytes),
        output::bytes(guard.asked_total_bytes),
        output::bytes(guard.taken_total_bytes),
    );
    for reservation in &guard.reservations {
        writeln!(
            text,
            "  reserved: {} for {}, {:.0} s left",
            reservation.bytes, reservation.path, reservation.left_s,
        );
    }
}

fn table(groups: &[GroupStatus], screen: Screen) -> Page {
    use output::{bytes, megabytes_per_s, percent, ratio};
    let knob = |group: &GroupStatus, knob| {
        let status = group.knobs.iter().find(|status| status.knob == knob)?;
        let mark = if status.foreign { "*" } else { "" };
        Some(output::knob_value(&status.now, true) + mark)
    };
    Table::of(groups.iter().map(|group| (group, group.verdict.as_ref())))
        .left("GROUP", 0, |(group, _)| group.label())
        .right("WEIGHT", 0, |(group, _)| group.weight.to_string())
        .left("FROM", 5, |(group, _)| source_words(group.weight_source))
        .right("SHARE", 3, |(_, v)| percent(v.map(|v| v.proportion)))
        .right("MB/S", 0, |(_, v)| {
            megabytes_per_s(v.and_then(|v| v.bytes_per_s))
        })
        .right("OF IDEAL", 0, |(_, v)| ratio(v.and_then(|v| v.of_ideal)))
        .left("COLOR", 1, |(_, v)| {
            v.map(|v| (color_text(v), Some(v.color)))
        })
        .right("STALL", 2, |(_, v)| percent(v.and_then(|v| v.stalled)))
        .right("CACHE", 1, |(group, _)| bytes(group.file_bytes))
        .right("ENTITLED", 4, |(_, v)| {
            bytes(v.map(|v| v.entitlement_bytes))
        })
        .right("GAIN", 4, |(_, v)| ratio(v.map(|v| v.gain)))
        .right("LOW", 3, |(group, _)| knob(group, Knob::MemoryLow))
        .right("HIGH", 2, |(group, _)| knob(group, Knob::MemoryHigh))
        .render_groups(screen)
}

/// A color; in parentheses if it was inferred.
fn color_text(verdict: &VerdictStatus) -> String {
    match verdict.color_source {
        ColorSource::Declared => verdict.color.to_string(),
        ColorSource::Inferred => format!("({})", verdict.color),
    }
}

/// A disk's knobs that a program changed, each with a note of its prior value and the disk.
pub(crate) fn device_words(device: &DeviceStatus) -> impl Iterator<Item = (&KnobStatus, String)> {
    let changed = |knob: &&KnobStatus| knob.foreign || knob.prior.is_some();
    device.knobs.iter().filter(changed).map(|knob| {
        let words = format!("{} (disk {})", output::prior_value(knob), device.name());
        (knob, words)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::commands::worth;
    use justitia_policy::color::Color;
    use justitia_policy::config::{Mode, Objective};
    use justitia_policy::plan::{Finding, Loss, Phase, Reason, Watched};
    use justitia_policy::rates::CacheRates;
    use justitia_policy::snapshot::WeightSource;
    use justitia_report::status::{HostStatus, PlannedWrite, Problem, Totals};

    /// A report as printed into a file.
    pub(crate) fn rendered(report: &Report) -> Page {
        render(report, 1, Screen::FILE)
    }

    pub(crate) fn example() -> Report {
        let knob = |knob, now: &str, prior: Option<&str>, foreign| KnobStatus {
            knob,
            now: now.into(),
            prior: prior.map(Into::into),
            foreign,
        };
        let new = GroupStatus {
            path: "/app/new".into(),
            id: 42,
            weight: 100,
            weight_source: WeightSource::Default,
            current_bytes: None,
            file_bytes: None,
            delegated: false,
            names: None,
            total: Totals::default(),
            verdict: None,
            declared: None,
            worth: None,
            knobs: Vec::new(),
            gate: None,
        };
        let db = GroupStatus {
            path: "/app/db".into(),
            id: 41,
            delegated: false,
            weight: 800,
            weight_source: WeightSource::Xattr,
            current_bytes: Some(300 << 20),
            file_bytes: Some(200 << 20),
            verdict: Some(VerdictStatus {
                proportion: 8.0 / 9.0,
                entitlement_bytes: 400 << 20,
                threshold_bytes: 390 << 20,
                bytes_per_s: Some(24e6),
                transferable_bytes_per_s: Some(20e6),
                of_ideal: Some(0.93),
                contending: true,
                color: Color::Red,
                gain: 1.21,
                stalled: Some(0.4),
                cache: CacheRates::default(),
                held_for_others_bytes: None,
                held_by_others_bytes: None,
                color_source: ColorSource::Inferred,
                cap_bytes: None,
                working_set_bytes: Some(250 << 20),
                needs_bytes: Some(150 << 20),
                lends_bytes: Some(40 << 20),
                borrows_bytes: Some(0),
            }),
            worth: Some(worth::tests::example()),
            knobs: vec![
                knob(Knob::MemoryLow, "408944640", Some("0"), false),
                knob(Knob::MemoryHigh, "max", None, true),
                knob(Knob::IoWeight, "800", Some("100"), false),
            ],
            ..new.clone()
        };
        Report {
            version: "0.1.0".into(),
            mode: Mode::Proportional,
            objective: Objective::Fair,
            since_unix_s: 1000,
            interval_s: 1.0,
            ticks_total: 7,
            tick_us: 2500,
            longest_tick_us: 5000,
            observer: Some("bpf".into()),
            missed_events: None,
            writes_total: 12,
            pv: Some(0.12),
            share_error: None,
            host: HostStatus {
                total_bytes: Some(768 << 20),
                free_bytes: Some(20 << 20),
                file_bytes: Some(500 << 20),
                ..HostStatus::default()
            },
            groups: vec![db, new],
            guard: None,
            watch: Vec::new(),
            gate: None,
            devices: vec![DeviceStatus {
                path: "block:nvme0n1".into(),
                low_latency: Some(false),
                prior: Some(true),
                foreign: false,
                knobs: vec![knob(Knob::BfqLowLatency, "0", Some("1"), false)],
            }],
            writes: vec![PlannedWrite {
                path: "/app/db".into(),
                knob: Knob::MemoryHigh,
                now: Some("max".into()),
                value: "409993216".into(),
                because: Reason::NoContention.to_string(),
                reason: Reason::NoContention,
            }],
            problems: vec![problem()],
        }
    }

    fn problem() -> Problem {
        Problem {
            group: Some("/app/new".into()),
            cause: "/app/new: memory.stat: no such file".into(),
            remedy: "enable the memory controller".into(),
        }
    }

    #[test]
    fn a_withdrawn_kind_of_decision_is_shown_with_its_cost() {
        let withdrawn = Finding {
            decision: Watched::Limits,
            phase: Phase::Withdrawn,
            withdrawn_s: Some(171.0),
            comparisons: 5,
            loss: Some(Loss {
                least: 0.05,
                mean: 0.12,
                most: 0.19,
            }),
        };
        let report = Report {
            watch: vec![withdrawn],
            ..example()
        };
        let text = rendered(&report).to_string();
        let expected =
            "watch: limits by weight: withdrawn for 171 s; cost 12 % of all traffic (95 % interval";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn the_table_tells_known_from_unknown_and_marks_values_of_the_user() {
        let text = render(&example(), 1065, Screen::FILE);
        assert!(text.starts_with("justitia 0.1.0  mode proportional, objective fair, up 65 s"));
        assert!(text.contains("2.5 ms each, counted by bpf\n"), "{text}");
        let db = text.line("/app/db");
        for cell in [
            "800",
            "xattr",
            "88.9%",
            "24.00",
            "0.93",
            "(red)",
            "390.0 MiB",
            "max*",
        ] {
            assert!(db.contains(cell), "{cell}: {db}");
        }
        let new = text.line("/app/new");
        assert!(new.ends_with('-'), "{new}");
        assert!(text.contains("\nlow_latency 0; before us: 1 (disk nvme0n1)\n"));
        assert!(text.contains("problem: /app/new: memory.stat: no such file\n  enable"));
    }

    #[test]
    fn knobs_of_disks_that_the_agent_never_touched_are_left_out_and_the_others_are_one_block() {
        let mut report = example();
        let touched = report.devices[0].clone();
        let mut untouched = touched.clone();
        untouched.path = "block:sdb".into();
        untouched.knobs[0].prior = None;
        report.devices = vec![untouched.clone()];
        assert!(!rendered(&report).contains("low_latency"));
        let mut foreign = untouched.clone();
        foreign.path = "block:sdc".into();
        foreign.knobs[0].foreign = true;
        report.devices = vec![touched, untouched, foreign];
        let text = rendered(&report);
        let block = "\n\nlow_latency 0; before us: 1 (disk nvme0n1)\n\
                     low_latency 0; before us: set by somebody else, left alone (disk sdc)\n";
        assert!(text.contains(block), "{text}");
    }

    #[test]
    fn it_fits_an_eighty_column_terminal() {
        let text = render(&example(), 1065, Screen::wide(80));
        let table = text.split("\n\n").nth(1).unwrap();
        assert!(
            table.lines().all(|line| line.chars().count() <= 80),
            "{table}"
        );
        assert!(table.contains("OF IDEAL"));
    }

    #[test]
    fn no_command_prints_characters_that_a_terminal_obeys() {
        use crate::commands::{color, explain, plan, top};
        let mut report = example();
        let name = |tail: &str| format!("/app/\x1b]0;x\x07\u{9b}2J\u{202e}\nproblem: {tail}");
        for group in &mut report.groups {
            group.path = name(&group.path);
        }
        for write in &mut report.writes {
            write.path = name(&write.path);
        }
        report.problems.push(Problem {
            group: Some(name("a")),
            cause: name("b"),
            remedy: name("c"),
        });
        let pages = [
            render(&report, 1, Screen::FILE),
            plan::tests::rendered(&report),
            explain::tests::rendered(&report, &report.groups[0]),
            color::tests::rendered(&report),
            worth::tests::rendered(&report, &report.groups[0]),
            top::tests::rendered(&report),
        ];
        for page in pages {
            assert!(page.contains("/app/?]0;x??2J??problem: "), "{page}");
            let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!page.contains(obeyed), "{page:?}");
        }
        let json = serde_json::to_string(&report).unwrap();
        let shown = justitia_report::text::printable_json(&json);
        let again: Report = serde_json::from_str(&shown).unwrap();
        assert_eq!(again.groups[0].path, report.groups[0].path);
    }
}
