//! The pane of one group: its recent history as sparklines, its knobs, the last writes and their reasons.
//! They are side by side if there is room, otherwise one below the other.

use justitia_policy::config::Mode;
use justitia_policy::plan::Knob;
use justitia_report::status::{GroupStatus, Report};
use justitia_report::text::printable;
use ratatui::text::{Line, Span};

use super::columns::Field;
use super::format::cut;
use super::picture::{Past, Picture, Series};
use super::theme::{letter, Theme, FAINT, STRONG};
use super::values::Row;
use super::{bars, format};
use crate::commands::color;

/// Preferred height in lines.
pub(crate) const HEIGHT: usize = 16;
/// From this width on, the history is beside the knobs.
const SIDE_BY_SIDE: usize = 96;
/// Width of the name and of the number beside a sparkline, in cells.
const NAME: usize = 11;
const NUMBER: usize = 8;

/// The pane, in `height` lines for `width` cells. The view cuts lines that are longer.
pub(crate) fn lines(
    picture: &Picture,
    row: &Row,
    width: usize,
    height: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut lines = vec![title(row, width, theme)];
    let group = row.id.and_then(|id| {
        let mut groups = picture.report.groups.iter();
        groups.find(|group| group.id == id)
    });
    let past = row.id.and_then(|id| picture.past(id));
    if let (Some(group), Some(past)) = (group, past) {
        if width >= SIDE_BY_SIDE {
            let half = width / 2 - 1;
            let mut left = history(past, row, half, theme);
            left.extend(knobs(group));
            let rest = width - half - 2;
            let right = numbers(&picture.report, row, group, rest);
            lines.extend(beside(left, right, half, rest, theme));
        } else {
            lines.extend(history(past, row, width, theme));
            lines.extend(knobs(group));
            lines.extend(numbers(&picture.report, row, group, width));
        }
        lines.extend(writes(picture, past));
    } else {
        lines.push("not managed itself: the sums of the groups below it".into());
    }
    lines.truncate(height);
    lines
}

fn title(row: &Row, width: usize, theme: Theme) -> Line<'static> {
    let values = &row.values;
    let said = match (values.number(Field::Weight), values.source) {
        (Some(weight), Some(source)) => {
            format!("  weight {weight} ({source})  {}", letter(values.color))
        }
        _ => String::new(),
    };
    let rule = if theme.unicode { "── " } else { "-- " };
    let room = width.saturating_sub(rule.chars().count());
    let path = printable(&row.path);
    let name = room.saturating_sub(format::width(&said)).max(room.min(8));
    let path = format::cut_front(&path, name, theme.ellipsis());
    let said = format::cut_end(
        &said,
        room.saturating_sub(format::width(&path)),
        theme.ellipsis(),
    );
    Line::from(vec![
        Span::styled(rule, FAINT),
        Span::styled(path, STRONG),
        Span::raw(said),
    ])
}

/// Sparklines with their last and their largest value.
fn history(past: &Past, row: &Row, width: usize, theme: Theme) -> Vec<Line<'static>> {
    type Say = fn(Option<f64>) -> String;
    let line = |name: &str, series: &Series, field: Field, top: Option<f32>, say: Say| {
        let cells = width.saturating_sub(NAME + NUMBER + 2 * 2 + NUMBER + 4);
        let samples = series.last(cells);
        let most = samples.iter().flatten().copied().reduce(f32::max);
        let top = top.or(most).unwrap_or(0.0);
        let spark = bars::sparkline(&samples, top, cells, theme.unicode);
        let last = say(row.values.number(field));
        let most = say(most.map(f64::from));
        Line::from(vec![
            Span::styled(format!("{name:<NAME$}"), FAINT),
            Span::styled(format!("{last:>NUMBER$}  "), STRONG),
            Span::raw(spark),
            Span::styled(format!("  max {most}"), FAINT),
        ])
    };
    let (all, percent) = (Some(1.0), format::percent);
    vec![
        line("MB/s", &past.rate, Field::Rate, None, format::rate),
        line("page cache", &past.file, Field::Cache, None, format::limit),
        line("hit ratio", &past.hits, Field::Hits, all, percent),
        line("stalls", &past.stalls, Field::Stall, all, percent),
    ]
}

/// The values without a sparkline, as many per line as fit.
fn numbers(report: &Report, row: &Row, group: &GroupStatus, width: usize) -> Vec<Line<'static>> {
    use Field::{ByOthers, Entitled, ForOthers, Gain, OfIdeal, Reclaim, Refaults, Throttled};
    let values = &row.values;
    let [entitled, for_others, by_others] =
        [Entitled, ForOthers, ByOthers].map(|field| format::limit(values.number(field)));
    let [of_ideal, gain, reclaim, throttled] =
        [OfIdeal, Gain, Reclaim, Throttled].map(|field| format::ratio(values.number(field)));
    let threshold = format::limit(values.threshold);
    let share = format::percent(values.number(Field::Share));
    let ideal = format::percent(values.ideal);
    let refaults = format::count(values.number(Refaults));
    let verdict = group.verdict.as_ref();
    let working_set = verdict.and_then(|verdict| verdict.working_set_bytes);
    let texts = [
        format!("entitled {entitled}, threshold {threshold}"),
        format!("holds {for_others} for others, others {by_others} for it"),
        format!("share {share}, ideal {ideal}, {of_ideal} of ideal, gain {gain}"),
        format!("refaults {refaults} a second"),
        format!("waiting: {reclaim} s/s in reclaim, {throttled} s/s above memory.high"),
        format!("color {}", printable(&color::words(report, group))),
        format!("working set {}", format::size(working_set)),
    ];
    let mut lines: Vec<String> = Vec::new();
    for text in texts {
        match lines.last_mut() {
            Some(line) if line.len() + 3 + text.len() <= width => {
                line.push_str(";  ");
                line.push_str(&text);
            }
            _ => lines.push(text),
        }
    }
    lines.into_iter().map(Line::from).collect()
}

/// The knobs with their prior values.
fn knobs(group: &GroupStatus) -> Vec<Line<'static>> {
    if group.knobs.is_empty() {
        return vec!["no knobs on this kernel".into()];
    }
    let lines = group.knobs.iter().map(|knob| {
        let before = match (knob.foreign, &knob.prior) {
            (true, _) => "* set by somebody else, left alone".to_owned(),
            (false, Some(prior)) => format!("  before us {}", value(knob.knob, prior)),
            (false, None) => "  not changed".to_owned(),
        };
        let now = value(knob.knob, &knob.now);
        Line::from(format!("{:<14}{now:>5}{before}", knob.knob))
    });
    lines.collect()
}

/// The last writes and their reasons.
fn writes(picture: &Picture, past: &Past) -> Vec<Line<'static>> {
    let observing = picture.report.mode == Mode::Observe;
    let head = match (past.writes.is_empty(), observing) {
        (true, _) => "nothing written to it since this screen opened",
        (false, true) => "mode observe: would have been written",
        (false, false) => "last writes",
    };
    let mut lines = vec![Line::styled(head, FAINT)];
    lines.extend(past.writes.iter().map(|(step, write)| {
        let steps = picture.report.ticks_total.saturating_sub(*step);
        let ago = format::age((steps as f64 * picture.report.interval_s) as u64);
        let value = value(write.knob, &write.value);
        let (knob, because) = (write.knob, &write.because);
        Line::from(format!("{ago:>6} ago  {knob} {value}: {because}"))
    }));
    lines
}

fn value(knob: Knob, value: &str) -> String {
    match value.parse() {
        Ok(bytes) if knob.is_memory() => format::size(Some(bytes)),
        _ => value.to_owned(),
    }
}

/// Two blocks of lines side by side; the left one is `half` cells wide, and the right one `rest`.
fn beside(
    mut left: Vec<Line<'static>>,
    right: Vec<Line<'static>>,
    half: usize,
    rest: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    left.resize(left.len().max(right.len()), Line::default());
    for (line, mut other) in left.iter_mut().zip(right) {
        cut(line, half, theme.ellipsis());
        cut(&mut other, rest, theme.ellipsis());
        let blanks = half.saturating_sub(line.width()) + 2;
        line.spans.push(Span::raw(" ".repeat(blanks)));
        let style = other.style;
        let spans = other.spans.into_iter();
        line.spans.extend(spans.map(|span| span.patch_style(style)));
    }
    left
}
