//! Renders a replay: the record, a summary, each group, and the writes that differ.

use justitia_policy::plan::{Knob, Plan, Write};
use justitia_policy::snapshot::GroupId;
use justitia_policy::Config;
use justitia_record::{path_of, GroupSummary, Session, Source, Step, Summary};
use justitia_report::text::word;
use serde_json::json;

use super::Record;
use crate::output::{
    bandwidth, bytes, knob_value, megabytes_per_s, percent, ratio, Page, Screen, Table,
};

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
    let mut text = heading(record, screen);
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
    }
    text.push_str("\n");
    writeln!(
        text,
        "Measured bandwidth: PV {}, share error {} among the groups that contended\n",
        ratio(summary.pv),
        percent(summary.share_error)
    );
    let table = Table::of(&summary.groups)
        .left("GROUP", 0, |g| g.path.clone())
        .right("WEIGHT", 0, |g| weight_words(g.weight))
        .right("MB/S", 0, |g| megabytes_per_s(g.bytes_per_s))
        .right("SHARE", 0, |g| percent(g.share))
        .right("IDEAL", 0, |g| percent(g.ideal_share))
        .right("THRESHOLD", 1, |g| bytes(g.threshold_bytes))
        .right("GAIN", 2, |g| ratio(g.gain))
        .right("WRITES", 3, |g| g.writes.to_string())
        .right("THEN", 4, |g| g.recorded_writes.to_string());
    text.table(&table);
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
    push_curves(&mut text, summary);
    push_differences(&mut text, summary);
    text
}

/// Hit ratios and reads from disks under other shares, for groups with a curve.
fn push_curves(text: &mut Page, summary: &Summary) {
    let told = |group: &&GroupSummary| group.hit_ratio.or(group.recorded_hit_ratio).is_some();
    let differs = |g: &GroupSummary| g.entitlement_bytes != g.recorded_entitlement_bytes;
    if !summary.groups.iter().filter(told).any(differs) {
        return;
    }
    text.push_str(
        "\nBy the curves of their reads, once page cache has moved (a dash: no curve covers that much):\n\n",
    );
    let table = Table::of(summary.groups.iter().filter(told))
        .left("GROUP", 0, |g| g.path.clone())
        .right("ENTITLED", 0, |g| bytes(g.entitlement_bytes))
        .right("THEN", 0, |g| bytes(g.recorded_entitlement_bytes))
        .right("HITS", 0, |g| percent(g.hit_ratio))
        .right("THEN", 0, |g| percent(g.recorded_hit_ratio))
        .right("FROM DISK", 0, |g| bandwidth(g.fetched_bytes_per_s))
        .right("THEN", 0, |g| bandwidth(g.recorded_fetched_bytes_per_s));
    text.table(&table);
}

fn push_differences(text: &mut Page, summary: &Summary) {
    let first = &summary.first_differences;
    if first.is_empty() {
        return;
    }
    writeln!(
        text,
        "\nThe first {} of {} writes that differ:\n",
        first.len(),
        summary.differences
    );
    let table = Table::of(first)
        .left("GROUP", 0, |d| d.group.clone())
        .right("AT", 0, |d| format!("{:.3}", d.at_s))
        .left("KNOB", 0, |d| d.knob.to_string())
        .right("THEN", 0, |d| d.then.as_ref().map(written))
        .right("NOW", 0, |d| d.now.as_ref().map(written))
        .left("BECAUSE", 1, |d| {
            let because = d.now.as_ref().or(d.then.as_ref());
            because.map(|w| w.reason.to_string()).unwrap_or_default()
        });
    text.table(&table);
}

/// The summary as JSON.
pub(super) fn summary_json(
    record: &Record,
    config: &Config,
    recorded: &Config,
    summary: &Summary,
) -> serde_json::Value {
    let mut json = json!(summary);
    json["complete"] = json!(record.ended);
    json["config"] = json!(config);
    json["recorded_config"] = json!(recorded);
    headed(json, record)
}

/// With the record's identity, and its damaged parts.
fn headed(mut json: serde_json::Value, record: &Record) -> serde_json::Value {
    json["file"] = json!(record.file);
    json["sessions"] = json!(record.sessions);
    json["notes"] = record.notes.iter().map(ToString::to_string).collect();
    json
}

/// One step as text.
pub(super) fn step(record: &Record, step: &Step, screen: Screen) -> Page {
    let mut text = heading(record, screen);
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
    let weight = |id: GroupId| {
        let mut groups = step.snapshot().groups.iter();
        groups.find(|group| group.id == id)?.weight
    };
    text.push_str("\n");
    let table = Table::of(&step.plan.verdicts)
        .left("GROUP", 0, |v| path_of(step.snapshot(), v.group))
        .right("WEIGHT", 0, |v| weight_words(weight(v.group)))
        .right("MB/S", 0, |v| megabytes_per_s(v.bytes_per_s))
        .right("OF IDEAL", 0, |v| ratio(v.of_ideal))
        .right("GAIN", 1, |v| ratio(Some(v.gain)))
        .right("THRESHOLD", 1, |v| v.threshold.to_string())
        .right("STALL", 2, |v| percent(v.stalled))
        .left("COLOR", 3, |v| (v.color.to_string(), Some(v.color)));
    text.table(&table);
    let plan = &step.plan;
    writeln!(
        text,
        "\nPV {}, share error {}\n",
        ratio(plan.pv),
        percent(plan.share_error)
    );
    push_writes(&mut text, step);
    text
}

fn push_writes(text: &mut Page, step: &Step) {
    let then = &step.tick.plan;
    let find = |plan: &Plan, id: GroupId, knob: Knob| {
        let mut writes = plan.writes.iter();
        writes.find(|w| w.group == id && w.knob == knob).cloned()
    };
    let only_then = then
        .writes
        .iter()
        .filter(|write| find(&step.plan, write.group, write.knob).is_none());
    let rows: Vec<&Write> = step.plan.writes.iter().chain(only_then).collect();
    if rows.is_empty() {
        text.push_str("nothing to write\n");
    } else {
        let value = |plan: &Plan, of: &Write| find(plan, of.group, of.knob).as_ref().map(written);
        let table = Table::of(rows)
            .left("GROUP", 0, |w| path_of(step.snapshot(), w.group))
            .left("KNOB", 0, |w| w.knob.to_string())
            .right("THEN", 1, |w| value(then, w))
            .right("NOW", 0, |w| value(&step.plan, w))
            .left("BECAUSE", 2, |w| w.reason.to_string());
        text.table(&table);
    }
    text.push_str(if step.same() {
        "\nThe same plan as recorded.\n"
    } else {
        "\nNot the recorded plan.\n"
    });
}

/// One step as JSON.
pub(super) fn step_json(record: &Record, step: &Step) -> serde_json::Value {
    let json = json!({
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
    });
    headed(json, record)
}

/// The record's identity, and its damaged parts.
fn heading(record: &Record, screen: Screen) -> Page {
    let mut text = Page::on(screen);
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

fn weight_words(weight: Option<impl ToString>) -> Option<String> {
    weight.map(|weight| weight.to_string())
}

/// The value of a write.
fn written(write: &Write) -> String {
    knob_value(&write.value.to_string(), write.knob.is_memory())
}
