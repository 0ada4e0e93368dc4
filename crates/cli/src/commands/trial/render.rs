//! Renders the result on one screen: a table of the groups, conclusions in sentences, and next steps.

use justitia_policy::config::Mode;
use justitia_policy::units::Bytes;
use justitia_report::status::source_words;
use justitia_report::text::word;

use super::{Trial, Tried};
use crate::cells::width;
use crate::output::{self, number, Page, Screen, Table};

/// Groups in the table, so that table and sentences fit one screen.
pub(super) const SHOWN: usize = 12;

/// A waiting group lacks page cache if it holds less than this part of its entitlement.
const LACKS: f64 = 0.9;

pub(super) fn render(trial: &Trial, screen: Screen) -> Page {
    let mut text = Page::on(screen);
    let active = trial.running_mode.filter(|mode| *mode != Mode::Observe);
    let beside = active.map_or_else(String::new, |mode| {
        format!(
            " An agent runs in mode {}: these are the figures with it.",
            word(&mode)
        )
    });
    let head = format!("{:.0} s observed, nothing written.{beside}", trial.seconds);
    text.wrapped("", "  ", &head);
    text.push_str("\n");
    table(&mut text, trial);
    if let Some(more @ 1..) = trial.groups.len().checked_sub(SHOWN) {
        writeln!(
            text,
            "and {more} groups that are nearer to their share (--json has them)"
        );
    }
    text.push_str("\n");
    let sentences = [bandwidth(trial), page_cache(trial), disks(trial)];
    for sentence in sentences.into_iter().flatten() {
        text.wrapped("", "  ", &sentence);
    }
    if trial.observer == Some("proc") {
        let without = "Counted through /proc, not by BPF: with pipes and sockets, without mapped files and hits.";
        text.wrapped("", "  ", without);
    }
    next(&mut text, trial);
    for problem in &trial.problems {
        text.problem(problem);
    }
    text
}

fn table(text: &mut Page, trial: &Trial) {
    use crate::output::{bytes, megabytes_per_s, percent, ratio};
    let rate = |bytes: f64| bytes / trial.seconds;
    let table = Table::of(&trial.groups[..trial.groups.len().min(SHOWN)])
        .left("GROUP", 0, |group| group.label.clone())
        .right("WEIGHT", 0, |group| group.weight.to_string())
        .left("FROM", 5, |group| source_words(group.weight_source))
        .right("MB/S", 4, |group| {
            megabytes_per_s(group.bytes.filter(|_| trial.seconds > 0.0).map(rate))
        })
        .right("COMPETES", 3, |group| format!("{:.0} s", group.contended_s))
        .right("GETS MB/S", 0, |group| megabytes_per_s(group.got()))
        .right("BY WEIGHT", 0, |group| megabytes_per_s(group.due()))
        .right("OF IDEAL", 0, |group| ratio(group.of_ideal()))
        .right("HIT", 2, |group| percent(group.hit_ratio))
        .right("CACHE", 1, |group| bytes(group.file_bytes))
        .right("ENTITLED", 1, |group| bytes(group.entitlement_bytes))
        .right("MEMORY.HIGH", 3, |group| match group.memory_high_bytes {
            Some(high) => bytes(high),
            None => "as it is".into(),
        });
    text.table(&table);
}

/// Groups beyond their share of bandwidth, and an agent's limits.
fn bandwidth(trial: &Trial) -> Vec<String> {
    if !trial.knows_bandwidth() {
        return vec![
            "The bandwidth of the groups is not known, so neither is who gets what.".into(),
        ];
    }
    if trial.contended_bytes <= 0.0 {
        let nothing = "No two groups that write competed for a disk: weights had nothing to decide, and no group \
                       would be limited. Try again under load.";
        return vec![nothing.into()];
    }
    let share = trial.misplaced_bytes / trial.contended_bytes;
    let mut said = vec![format!(
        "Groups competed for {:.0} s. {} of their bandwidth, {:.2} MB/s, went to groups beyond their share.",
        trial.contended_s,
        output::percent(Some(share)),
        trial.misplaced_bytes / trial.contended_s / 1e6,
    )];
    if let Some((least, most)) = farthest(&trial.groups) {
        said.push(format!(
            "{} got {:.2} times what {} got; by weight it is {:.2} times.",
            least.label,
            least.got().unwrap_or(0.0) / most.got().unwrap_or(0.0),
            most.label,
            least.proportion / most.proportion,
        ));
    }
    let count = |count: fn(&Tried) -> bool| trial.groups.iter().filter(|g| count(g)).count();
    said.push(format!(
        "An agent would limit {} (memory.high), protect {} (memory.low), and move at most that \
         bandwidth to those below BY WEIGHT. How near it comes is in docs/results.",
        number(count(|group| group.memory_high_bytes.is_some()), "group"),
        number(count(|group| group.memory_low.is_some()), "group"),
    ));
    said
}

/// The competing groups with the lowest and the highest ratio to their share, if they differ.
fn farthest(groups: &[Tried]) -> Option<(&Tried, &Tried)> {
    let competing = || {
        let known = groups.iter();
        known.filter_map(|group| Some((group.of_ideal()?, group)))
    };
    let least = competing().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let most = competing().max_by(|a, b| a.0.total_cmp(&b.0))?;
    (most.0 > 1.25 * least.0).then_some((least.1, most.1))
}

/// Groups that waited with less page cache than their share.
fn page_cache(trial: &Trial) -> Vec<String> {
    let waited = trial.groups.iter().filter(|group| group.waited_s > 0.0);
    let lacks: Vec<u64> = waited
        .filter_map(|group| {
            let (held, share) = (group.file_bytes?, group.entitlement_bytes?);
            ((held as f64) < LACKS * share as f64).then(|| share - held)
        })
        .collect();
    if lacks.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "{} waited with less page cache than ENTITLED, by {} in all; memory.low would keep their share.",
        number(lacks.len(), "group"),
        Bytes(lacks.iter().sum()),
    )]
}

/// The mechanisms that enforce weights below the page cache.
fn disks(trial: &Trial) -> Vec<String> {
    let mut said = Vec::new();
    let (without, with): (Vec<_>, Vec<_>) = trial.disks.iter().partition(|disk| *disk.1 == "none");
    if !with.is_empty() {
        let with = with.iter().map(|(name, by)| format!("{name} ({by})"));
        let with = with.collect::<Vec<_>>().join(", ");
        said.push(format!("Disks served by weight: {with}."));
    }
    if !without.is_empty() {
        let without = without.iter().map(|disk| &disk.0[..]);
        let without = without.collect::<Vec<_>>().join(", ");
        said.push(format!(
            "Disks not served by weight: {without}. An agent enables io.cost on them while groups contend."
        ));
    }
    if !trial.low_latency_disks.is_empty() {
        said.push(format!(
            "An agent would turn off BFQ's low_latency, which overrides weights: {}.",
            trial.low_latency_disks.join(", ")
        ));
    }
    said
}

fn next(text: &mut Page, trial: &Trial) {
    let program = &trial.program;
    let found = match &trial.findings[..] {
        [] => "pitfalls of this host, with remedies".into(),
        [worst] => format!("it finds {worst}"),
        [worst, rest @ ..] => format!("it finds {worst} and {} more", rest.len()),
    };
    let (command, effect) = match (trial.running_mode, trial.has_unit) {
        (None, true) => (
            "systemctl enable --now justitia".into(),
            "makes weights hold; stop restores every knob",
        ),
        (None, false) => (format!("{program} run"), "makes weights hold until Ctrl-C"),
        (Some(Mode::Observe), true) => (
            "systemctl reload justitia".into(),
            "without mode = \"observe\" in /etc/justitia.toml",
        ),
        (Some(Mode::Observe), false) => (
            format!("{program} run"),
            "instead of the agent in mode observe: makes weights hold until Ctrl-C",
        ),
        (Some(_), _) => (format!("{program} top"), "the same, live"),
    };
    let lines = [(format!("{program} doctor"), &found[..]), (command, effect)];
    let width = lines.iter().map(|(command, _)| width(command)).max();
    let width = width.unwrap_or(0);
    text.push_str("\nNext:\n");
    for (command, effect) in lines {
        writeln!(text, "  sudo {command:<width$}    {effect}");
    }
}
