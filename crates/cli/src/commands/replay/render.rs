//! Renders a replay: the record, a summary, each group, and the writes that differ.

use justitia_policy::plan::{Knob, Plan, Value, Write};
use justitia_policy::snapshot::GroupId;
use justitia_policy::units::Bytes;
use justitia_policy::Config;
use justitia_record::{path_of, Difference, GroupSummary, Session, Source, Step, Summary};
use justitia_report::text::word;
use serde_json::json;

use super::Record;
use crate::output::{self, Column, Page, Screen, Table};

const GROUPS: [Column; 9] = [
    Column::left("GROUP", 0),
    Column::right("WEIGHT", 0),
    Column::right("MB/S", 0),
    Column::right("SHARE", 0),
    Column::right("IDEAL", 0),
    Column::right("THRESHOLD", 1),
    Column::right("GAIN", 2),
    Column::right("WRITES", 3),
    Column::right("THEN", 4),
];

const CURVES: [Column; 7] = [
    Column::left("GROUP", 0),
    Column::right("ENTITLED", 0),
    Column::right("THEN", 0),
    Column::right("HITS", 0),
    Column::right("THEN", 0),
    Column::right("FROM DISK", 0),
    Column::right("THEN", 0),
];

const DIFFERENCES: [Column; 6] = [
    Column::right("AT", 0),
    Column::left("GROUP", 0),
    Column::left("KNOB", 0),
    Column::right("THEN", 0),
    Column::right("NOW", 0),
    Column::left("BECAUSE", 1),
];

const WRITES: [Column; 5] = [
    Column::left("GROUP", 0),
    Column::left("KNOB", 0),
    Column::right("THEN", 1),
    Column::right("NOW", 0),
    Column::left("BECAUSE", 2),
];

const VERDICTS: [Column; 8] = [
    Column::left("GROUP", 0),
    Column::right("WEIGHT", 0),
    Column::right("MB/S", 0),
    Column::right("OF IDEAL", 0),
    Column::right("GAIN", 1),
    Column::right("THRESHOLD", 1),
    Column::right("STALL", 2),
    Column::left("COLOR", 3),
];

const OPEN_LOOP: &str = "Open loop: the recorded host does not react to these decisions; \
bandwidth stays as recorded.\n";

/// The summary as text.
pub(super) fn summary(
    record: &Record,
    config: &Config,
    recorded: &Config,
    summary: &Summary,
    screen: Screen,
) -> Page {
    let mut text = heading(record);
    writeln!(
        text,
        "{} ticks over {:.1} s, {} groups; recorded in {}",
        summary.ticks,
        summary.seconds,
        summary.groups.len(),
        words(recorded)
    );
    if summary.missed > 0 {
        writeln!(
            text,
            "the recorder missed {} ticks in between",
            summary.missed
        );
    }
    if summary.open_loop {
        let other = |group: &&GroupSummary| group.weight != group.recorded_weight;
        let weights = match summary.groups.iter().filter(other).count() {
            0 => String::new(),
            1 => ", with another weight for 1 group".to_owned(),
            count => format!(", with other weights for {count} groups"),
        };
        writeln!(text, "replayed in {}{weights}", words(config));
        text.push_str(OPEN_LOOP);
        text.push_str("\n");
    } else {
        text.push_str("\n");
    }
    writeln!(
        text,
        "Measured bandwidth: PV {}, share error {} among the groups that contended\n",
        output::ratio(summary.pv),
        output::percent(summary.share_error)
    );
    let mut table = Table::new(&GROUPS);
    for group in &summary.groups {
        table.row([
            group.path.clone(),
            group.weight.map_or_else(|| "-".into(), |w| w.to_string()),
            output::megabytes_per_s(group.bytes_per_s),
            output::percent(group.share),
            output::percent(group.ideal_share),
            output::bytes(group.threshold_bytes),
            output::ratio(group.gain),
            group.writes.to_string(),
            group.recorded_writes.to_string(),
        ]);
    }
    text.append(&table.render(screen));
    writeln!(
        text,
        "\n{} writes, {} recorded; the same plan in {} of {} ticks",
        summary.writes, summary.recorded_writes, summary.same, summary.ticks
    );
    if let Some(at_s) = summary.first_difference_s {
        writeln!(text, "first difference at {at_s:.3} s");
    }
    if summary.began_anew > 0 {
        text.push_str(
            "This version cannot read the policy's state at the start: the first seconds may \
             differ.\n",
        );
    }
    push_curves(&mut text, summary, screen);
    push_differences(&mut text, summary, screen);
    text
}

/// Hit ratios and reads from disks under other shares, for groups with a curve.
fn push_curves(text: &mut Page, summary: &Summary, screen: Screen) {
    let told = |group: &&GroupSummary| group.hit_ratio.or(group.recorded_hit_ratio).is_some();
    let differs = |g: &GroupSummary| g.entitlement_bytes != g.recorded_entitlement_bytes;
    if !summary.groups.iter().filter(told).any(differs) {
        return;
    }
    text.push_str(
        "\nBy the curves of their reads, once page cache has moved (a dash: no curve covers that much):\n\n",
    );
    let mut table = Table::new(&CURVES);
    let rate = |rate: Option<f64>| match rate {
        Some(_) => format!("{} MB/s", output::megabytes_per_s(rate)),
        None => "-".to_owned(),
    };
    for group in summary.groups.iter().filter(told) {
        table.row([
            group.path.clone(),
            output::bytes(group.entitlement_bytes),
            output::bytes(group.recorded_entitlement_bytes),
            output::percent(group.hit_ratio),
            output::percent(group.recorded_hit_ratio),
            rate(group.fetched_bytes_per_s),
            rate(group.recorded_fetched_bytes_per_s),
        ]);
    }
    text.append(&table.render(screen));
}

fn push_differences(text: &mut Page, summary: &Summary, screen: Screen) {
    let first = summary.first_differences();
    if first.is_empty() {
        return;
    }
    writeln!(
        text,
        "\nThe first {} of {} writes that differ:\n",
        first.len(),
        summary.differences
    );
    let mut table = Table::new(&DIFFERENCES);
    for difference in first {
        let because = difference.now.as_ref().or(difference.then.as_ref());
        table.row([
            format!("{:.3}", difference.at_s),
            difference.group.clone(),
            difference.knob.to_string(),
            written(difference.then.as_ref()),
            written(difference.now.as_ref()),
            because.map(|w| w.reason.to_string()).unwrap_or_default(),
        ]);
    }
    text.append(&table.render(screen));
}

/// The summary as JSON.
pub(super) fn summary_json(
    record: &Record,
    config: &Config,
    recorded: &Config,
    summary: &Summary,
) -> serde_json::Value {
    let differences: Vec<_> = summary
        .first_differences()
        .iter()
        .map(difference_json)
        .collect();
    let mut json = json!({
        "file": record.file,
        "sessions": record.sessions,
        "complete": record.ended,
        "notes": record.notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "config": config,
        "recorded_config": recorded,
        "first_differences": differences,
    });
    if let (Some(json), Ok(serde_json::Value::Object(summary))) =
        (json.as_object_mut(), serde_json::to_value(summary))
    {
        json.extend(summary);
    }
    json
}

fn difference_json(difference: &Difference) -> serde_json::Value {
    json!({
        "at_s": difference.at_s,
        "path": difference.group,
        "knob": difference.knob,
        "then": difference.then,
        "now": difference.now,
    })
}

/// One step as text.
pub(super) fn step(record: &Record, step: &Step, screen: Screen) -> Page {
    let mut text = heading(record);
    writeln!(
        text,
        "Step {} at {:.3} s, {:.3} s after the one before, in {}",
        step.tick.count,
        step.at_s,
        step.elapsed_s,
        words(&step.config)
    );
    if step.given.is_some() {
        text.push_str(OPEN_LOOP);
    }
    let mut table = Table::new(&VERDICTS);
    for verdict in &step.plan.verdicts {
        let group = step
            .snapshot()
            .groups
            .iter()
            .find(|g| g.id == verdict.group);
        let weight = group.and_then(|group| group.weight);
        table.row(vec![
            (path_of(step.snapshot(), verdict.group), None),
            (weight.map_or_else(|| "-".into(), |w| w.to_string()), None),
            (output::megabytes_per_s(verdict.bytes_per_s), None),
            (output::ratio(verdict.of_ideal), None),
            (output::ratio(Some(verdict.gain)), None),
            (verdict.threshold.to_string(), None),
            (output::percent(verdict.stalled), None),
            (verdict.color.to_string(), Some(verdict.color)),
        ]);
    }
    text.push_str("\n");
    text.append(&table.render(screen));
    let plan = &step.plan;
    writeln!(
        text,
        "\nPV {}, share error {}\n",
        output::ratio(plan.pv),
        output::percent(plan.share_error)
    );
    push_writes(&mut text, step, screen);
    text
}

fn push_writes(text: &mut Page, step: &Step, screen: Screen) {
    let then = &step.tick.plan;
    let find = |plan: &Plan, id: GroupId, knob: Knob| {
        let mut writes = plan.writes.iter();
        writes.find(|w| w.group == id && w.knob == knob).cloned()
    };
    let mut table = Table::new(&WRITES);
    let only_then = then
        .writes
        .iter()
        .filter(|write| find(&step.plan, write.group, write.knob).is_none());
    let mut rows = 0;
    for write in step.plan.writes.iter().chain(only_then) {
        let now = find(&step.plan, write.group, write.knob);
        let before = find(then, write.group, write.knob);
        rows += 1;
        table.row([
            path_of(step.snapshot(), write.group),
            write.knob.to_string(),
            written(before.as_ref()),
            written(now.as_ref()),
            write.reason.to_string(),
        ]);
    }
    if rows == 0 {
        text.push_str("nothing to write\n");
    } else {
        text.append(&table.render(screen));
    }
    text.push_str(if step.same() {
        "\nThe same plan as recorded.\n"
    } else {
        "\nNot the recorded plan.\n"
    });
}

/// One step as JSON.
pub(super) fn step_json(record: &Record, step: &Step) -> serde_json::Value {
    json!({
        "file": record.file,
        "at_s": step.at_s,
        "at_unix_ms": step.tick.at_unix_ms,
        "count": step.tick.count,
        "elapsed_s": step.elapsed_s,
        "same": step.same(),
        "open_loop": step.given.is_some(),
        "config": step.config,
        "snapshot": step.snapshot(),
        "plan": step.plan,
        "recorded_plan": step.tick.plan,
    })
}

/// The record's identity, and its damaged parts.
fn heading(record: &Record) -> Page {
    let mut text = Page::new();
    write!(text, "{}", record.file);
    if let Some(session) = record.sessions.first() {
        write!(text, ": {}", origin(session));
        if record.sessions.len() > 1 {
            write!(text, ", in {} sessions", record.sessions.len());
        }
    }
    text.push_str("\n");
    for note in &record.notes {
        writeln!(text, "note: {note}");
    }
    text
}

fn origin(session: &Session) -> String {
    let who = match session.source {
        Source::Agent => "of an agent",
        Source::Own => "without an agent",
    };
    format!(
        "recorded {who} by justitia {} on kernel {}",
        session.written_by, session.kernel
    )
}

fn words(config: &Config) -> String {
    let (mode, objective) = (word(&config.mode), word(&config.objective));
    format!("mode {mode}, objective {objective}")
}

/// The value of a write; a dash without one.
fn written(write: Option<&Write>) -> String {
    write.map_or_else(
        || "-".into(),
        |write| match write.value {
            Value::Limit(limit) => limit
                .bytes()
                .map_or_else(|| "max".into(), |bytes| Bytes(bytes.0).to_string()),
            value => value.to_string(),
        },
    )
}
