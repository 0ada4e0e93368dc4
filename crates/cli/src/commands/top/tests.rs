//! Tests of the plain output, and reports for the tests of the screen: any number of groups, with all values
//! known or unknown.

use justitia_agent::Exit;
use justitia_policy::color::{Color, ColorSource};
use justitia_policy::config::{Mode, Objective};
use justitia_policy::plan::{HostRates, Knob};
use justitia_policy::rates::CacheRates;
use justitia_policy::snapshot::WeightSource;
use justitia_report::status::{GroupStatus, HostStatus, KnobStatus, Names, Totals, VerdictStatus};
use ratatui::crossterm::event::KeyCode;

use super::*;

/// A frame that is wide enough for all columns.
pub(crate) fn rendered(report: &Report) -> Page {
    frame(report.clone(), Some(400))
}

pub(crate) fn report(groups: Vec<GroupStatus>) -> Report {
    Report {
        groups,
        problems: Vec::new(),
        host: HostStatus {
            stalled: HostRates {
                memory_some: Some(0.125),
                memory_full: Some(0.01),
                io_some: Some(0.4),
                io_full: Some(0.2),
            },
            ..example().host
        },
        share_error: Some(0.031),
        ..example()
    }
}

/// A contending group with all values known. Its numbers follow from its weight.
pub(crate) fn group(path: &str, weight: u32) -> GroupStatus {
    let w = f64::from(weight);
    let bytes = u64::from(weight) << 20;
    let knob = |knob, now: String, prior: &str| KnobStatus {
        knob,
        now,
        prior: Some(prior.to_owned()),
        foreign: false,
    };
    GroupStatus {
        path: path.to_owned(),
        id: path
            .bytes()
            .fold(7, |id, b| id * 31 % 1_000_003 + u64::from(b)),
        weight,
        weight_source: WeightSource::Xattr,
        current_bytes: Some(bytes * 2),
        file_bytes: Some(bytes * 3 / 4),
        delegated: false,
        names: None,
        total: Totals::default(),
        verdict: Some(VerdictStatus {
            proportion: w / 1200.0,
            entitlement_bytes: bytes,
            threshold_bytes: bytes,
            bytes_per_s: Some(w * 3e4),
            transferable_bytes_per_s: Some(w * 2e4),
            of_ideal: Some(0.8 + w / 1000.0),
            contending: true,
            color: match weight {
                0..=150 => Color::Red,
                151..=500 => Color::Yellow,
                _ => Color::Green,
            },
            gain: 1.5 - w / 1000.0,
            stalled: Some(0.4 - w / 2500.0),
            cache: CacheRates {
                hit_ratio: Some(0.9),
                refault_pages_per_s: Some(w),
                reclaim_s_per_s: Some(0.05),
                throttled_s_per_s: Some(0.2),
                ..CacheRates::default()
            },
            held_for_others_bytes: Some(1 << 20),
            held_by_others_bytes: Some(0),
            color_source: ColorSource::Inferred,
            cap_bytes: None,
            working_set_bytes: None,
            needs_bytes: None,
            lends_bytes: None,
            borrows_bytes: None,
        }),
        declared: None,
        worth: None,
        knobs: vec![
            knob(Knob::MemoryLow, bytes.to_string(), "0"),
            knob(Knob::MemoryHigh, "max".into(), "max"),
            knob(Knob::IoWeight, weight.to_string(), "100"),
        ],
        gate: None,
    }
}

pub(crate) fn many(count: usize) -> Report {
    let groups = (0..count).map(|n| group(&format!("/app/group-{n}"), 100 + n as u32 * 200));
    report(groups.collect())
}

/// A report of one group and a host with all values unknown.
pub(crate) fn unknown() -> Report {
    let mut one = group("/app/new", 100);
    one.current_bytes = None;
    one.file_bytes = None;
    one.verdict = None;
    one.knobs = Vec::new();
    Report {
        groups: vec![one],
        host: HostStatus::default(),
        pv: None,
        share_error: None,
        problems: Vec::new(),
        ..example()
    }
}

/// Presses the keys of these characters.
pub(crate) fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        app.key(KeyCode::Char(key).into());
    }
}

fn example() -> Report {
    Report {
        mode: Mode::Proportional,
        objective: Objective::Fair,
        ..crate::commands::status::tests::example()
    }
}

#[test]
fn without_a_terminal_the_error_names_the_options_to_use_instead() {
    let error = check_terminal(false, Some("xterm")).unwrap_err();
    assert_eq!(error.exit, Exit::Usage);
    assert_eq!(error.remedy, "use --once or --json");
    assert!(check_terminal(true, Some("dumb")).is_err());
    assert!(check_terminal(true, Some("xterm")).is_ok());
    assert!(check_terminal(true, None).is_ok());
}

#[test]
fn missed_beats_are_not_made_up_for() {
    let began = Instant::now();
    let second = Duration::from_secs(1);
    assert_eq!(following(began, second, began), began + second);
    let late = began + 5 * second;
    assert_eq!(following(began, second, late), late);
}

#[test]
fn a_plain_frame_shows_every_group_and_no_escape_sequence() {
    let text = frame(many(300), None);
    assert_eq!(
        text.lines()
            .filter(|line| line.contains("/app/group-"))
            .count(),
        300
    );
    assert!(!text.contains('\x1b') && text.is_ascii(), "{text}");
    assert!(text
        .lines()
        .all(|line| line.len() <= PLAIN_COLUMNS && line.trim_end() == line));
}

#[test]
fn names_that_differ_at_their_ends_can_be_told_apart_on_a_narrow_screen() {
    let mut report = many(2);
    for (group, end) in report.groups.iter_mut().zip(["7d9f-abcde", "7d9f-fghij"]) {
        let names = group.names.get_or_insert_with(Names::default);
        names.kind = "pod".into();
        names.name = format!("shop-production/checkout-{end}");
    }
    let text = frame(report, Some(80));
    assert!(text.contains("abcde") && text.contains("fghij"), "{text}");
}

#[test]
fn a_plain_frame_has_a_dash_for_what_is_unknown() {
    let text = frame(unknown(), Some(120));
    let line = text.lines().find(|line| line.contains("/app/new")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells[..4], ["/app/new", "-", "100", "-"], "{line}");
    assert!(
        cells[3..]
            .iter()
            .all(|cell| cell.chars().all(|c| "-/".contains(c))),
        "{line}"
    );
    assert!(text.contains("PV -"), "{text}");
}
