//! Draws the screen: two lines of host and policy, the table, the pane of the selected group, a line of keys.
//!
//! Lines are cut to the width and never wrapped. Parts that do not fit are left out as a whole, the least
//! important first.

use justitia_report::status::{GateStatus, Report};
use justitia_report::text::{printable, word};
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::Frame;

use super::app::App;
use super::columns::{layout, Column, Field};
use super::format::cut;
use super::rows;
use super::theme::{letter, Theme, FAINT, SELECTED, STRONG};
use super::values::{cell, Row};
use super::{detail, format, help};
use crate::output::{number, Page};

/// From this many lines on, the screen has room for the table and a pane.
const PANE_FROM: usize = 18;
/// Rows that the table keeps if a pane is open.
const ROWS_BESIDE: usize = 5;

/// A part of a line, shown or left out as a whole. The highest rank is left out first.
struct Part {
    rank: u8,
    spans: Vec<Span<'static>>,
}

pub(crate) fn draw(frame: &mut Frame, app: &mut App) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let lines = lines(app, width, height);
    for (y, line) in (area.y..area.bottom()).zip(&lines) {
        frame.buffer_mut().set_line(area.x, y, line, area.width);
        if line.style == SELECTED {
            let row = Rect {
                y,
                height: 1,
                ..area
            };
            frame.buffer_mut().set_style(row, line.style);
        }
    }
}

/// The lines of a screen of this size.
fn lines(app: &mut App, width: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = header(app, width);
    // On a screen with few lines the table takes precedence.
    lines.truncate(height.saturating_sub(3).max(1));
    let body = height.saturating_sub(lines.len() + 1);
    if let Some(line) = app.help {
        let help = help::lines(width);
        let first = line.min(help.len().saturating_sub(body));
        app.help = Some(first);
        app.page = body.max(1);
        lines.extend(help.into_iter().skip(first).take(body));
    } else {
        lines.extend(middle(app, width, body));
    }
    lines.resize(height.saturating_sub(1), Line::default());
    for line in &mut lines {
        cut(line, width, app.theme.ellipsis());
    }
    if height > 1 {
        lines.push(footer(app, width));
    }
    lines
}

/// One frame as text, without selection and keys, with all rows.
pub(crate) fn plain(app: &App, width: usize) -> Page {
    let rows = app.rows();
    let mut lines = header(app, width);
    lines.push(Line::default());
    lines.extend(table(app, &rows, &rows, width));
    let mut text = Page::new();
    for line in lines {
        writeln!(text, "{}", line.to_string().trim_end());
    }
    for problem in &app.picture().report.problems {
        text.problem(problem);
    }
    text
}

/// The table and the pane, in `body` lines.
fn middle(app: &mut App, width: usize, body: usize) -> Vec<Line<'static>> {
    let rows = app.rows();
    let beside = app.detail && body >= PANE_FROM;
    let pane = match (app.detail, beside) {
        (false, _) => 0,
        (true, false) => body,
        // The pane takes the lines that the table does not need.
        (true, true) => body
            .saturating_sub(rows.len() + 2)
            .max(detail::HEIGHT.min(body - ROWS_BESIDE - 1)),
    };
    let page = (body - pane).saturating_sub(1);
    let at = app.settle(&rows, page);
    let mut lines = Vec::new();
    if page > 0 || pane == 0 {
        let shown = &rows[app.offset..(app.offset + page).min(rows.len())];
        lines = table(app, &rows, shown, width);
        if let Some(line) = lines.get_mut(1 + at - app.offset) {
            if !rows.is_empty() {
                *line = std::mem::take(line).style(SELECTED);
            }
        }
    }
    lines.truncate(body - pane);
    lines.resize(body - pane, Line::default());
    if let Some(row) = rows.get(at).filter(|_| pane > 0) {
        lines.extend(detail::lines(app.picture(), row, width, pane, app.theme));
    }
    lines.truncate(body);
    lines
}

/// The rows `shown` of all `rows`, for which the columns are laid out.
fn table(app: &App, rows: &[Row], shown: &[Row], width: usize) -> Vec<Line<'static>> {
    let longest = rows.iter().map(|row| format::width(&row.label)).max();
    let (columns, gap) = layout(width, longest.unwrap_or(0).max(5));
    let gap = Span::raw(" ".repeat(gap));
    let shares = shown
        .iter()
        .flat_map(|row| [row.values.number(Field::Share), row.values.ideal]);
    let top_share = shares.flatten().fold(0.0, f64::max);
    let mut lines = vec![head(app, &columns, &gap)];
    for row in shown {
        let cells = columns.iter().map(|&column| {
            let (text, style) = cell(row, column, app.theme, top_share);
            [Span::styled(text, style)]
        });
        lines.push(Line::from(cells.collect::<Vec<_>>().join(&gap)));
    }
    if shown.is_empty() {
        let nothing = match app.filter.as_str() {
            "" => "no cgroup to manage yet".to_owned(),
            filter => format!("no group's path or name contains {filter}"),
        };
        lines.push(Line::from(nothing));
    }
    lines
}

fn head(app: &App, columns: &[Column], gap: &Span<'static>) -> Line<'static> {
    let heads = columns.iter().map(|column| {
        let text = format::cut_end(
            column.field.about().head,
            column.width,
            app.theme.ellipsis(),
        );
        let text = format::pad(&text, column.width, column.field.right());
        let style = if column.field == app.sort.field {
            STRONG.patch(SELECTED)
        } else {
            STRONG
        };
        [Span::styled(text, style)]
    });
    Line::from(heads.collect::<Vec<_>>().join(gap))
}

/// Agent and share error, then memory and pressure, then problems.
fn header(app: &App, width: usize) -> Vec<Line<'static>> {
    let report = &app.picture().report;
    let theme = app.theme;
    let mut lines = Vec::new();
    if let Some(cause) = &app.away {
        // The socket's error begins with "no agent" if nobody listens.
        let cause = cause
            .strip_prefix("no agent listens")
            .map_or_else(|| cause.clone(), |rest| format!("nobody listens{rest}"));
        lines.push(Line::styled(format!("no agent: {cause}"), theme.alarm()));
    }
    let mut first = vec![
        pair(1, "mode", &word(&report.mode)),
        part(6, &word(&report.objective), FAINT),
    ];
    if app.paused() {
        first.insert(0, part(0, "PAUSED", SELECTED));
    }
    first.extend([
        pair(2, "PV", &format::ratio(report.pv)),
        pair(3, "share error", &format::percent(report.share_error)),
        part(2, &number(report.groups.len(), "group"), STRONG),
        color_parts(report, theme),
        pair(7, "step", &format!("{:.1} ms", report.tick_us as f64 / 1e3)),
    ]);
    let estimated = |name: &str| name.ends_with("estimated");
    if report.observer.as_deref().is_some_and(estimated) {
        first.push(part(4, "reads estimated", FAINT));
    }
    lines.push(fit(first, width));
    let host = &report.host;
    let stalled = &host.stalled;
    let mut second = vec![
        pair(1, "free", &format::size(host.free_bytes)),
        pair(5, "of", &format::size(host.total_bytes)),
        pair(6, "page cache", &format::size(host.file_bytes)),
        part(3, "pressure", FAINT),
        pair(2, "memory", &format::percent(stalled.memory_some)),
        pair(4, "full", &format::percent(stalled.memory_full)),
        pair(2, "io", &format::percent(stalled.io_some)),
    ];
    if let Some(guard) = &report.guard {
        second.push(pair(3, "reserve", &format::size(Some(guard.reserve_bytes))));
        let taken = format::size(Some(guard.taken_total_bytes));
        second.push(pair(5, "taken", &taken));
    }
    if let Some(gate) = &report.gate {
        second.push(pair(2, "gate", gate_word(gate)));
    }
    lines.push(fit(second, width));
    if let Some(problem) = report.problems.first() {
        let text = match report.problems.len() {
            1 => format!("problem: {}", problem.cause),
            count => format!("{count} problems: {}", problem.cause),
        };
        lines.push(Line::styled(printable(&text).into_owned(), theme.alarm()));
    }
    for line in &mut lines {
        cut(line, width, theme.ellipsis());
    }
    lines
}

/// The order of the gate's queue, or the reason why all writers pass.
fn gate_word(gate: &GateStatus) -> &str {
    if gate.is_closed() {
        &gate.order
    } else {
        "open"
    }
}

/// The number of groups of each color; empty before the first verdict.
fn color_parts(report: &Report, theme: Theme) -> Part {
    let seen = rows::colors(report).into_iter();
    let seen = seen.filter(|(_, count)| *count > 0).map(|(color, count)| {
        let style = theme.color(color).patch(STRONG);
        [
            Span::styled(letter(Some(color)), style),
            Span::raw(format!(" {count}")),
        ]
    });
    let spans = seen.collect::<Vec<_>>().join(&Span::raw(" "));
    Part { rank: 5, spans }
}

fn part(rank: u8, text: &str, style: ratatui::style::Style) -> Part {
    Part {
        rank,
        spans: vec![Span::styled(text.to_owned(), style)],
    }
}

fn pair(rank: u8, name: &str, value: &str) -> Part {
    Part {
        rank,
        spans: vec![
            Span::styled(format!("{name} "), FAINT),
            Span::styled(value.to_owned(), STRONG),
        ],
    }
}

/// As many parts as fit, separated by two blanks.
fn fit(mut parts: Vec<Part>, width: usize) -> Line<'static> {
    parts.retain(|part| part.width() > 0);
    let total = |parts: &[Part]| {
        let parts_width: usize = parts.iter().map(Part::width).sum();
        parts_width + 2 * parts.len().saturating_sub(1)
    };
    while parts.len() > 1 && total(&parts) > width {
        let least = (0..parts.len()).max_by_key(|&at| (parts[at].rank, at));
        parts.remove(least.unwrap_or(0));
    }
    let spans: Vec<Vec<Span>> = parts.into_iter().map(|part| part.spans).collect();
    Line::from(spans.join(&Span::raw("  ")))
}

impl Part {
    fn width(&self) -> usize {
        self.spans.iter().map(Span::width).sum()
    }
}

/// Sort order and filter, then the keys.
fn footer(app: &App, width: usize) -> Line<'static> {
    let theme = app.theme;
    if app.typing() {
        let cursor = if theme.unicode { '▏' } else { '_' };
        let text = format!("filter: {}{cursor}", printable(&app.filter));
        let text = format::cut_front(&text, width, theme.ellipsis());
        return Line::styled(text, STRONG);
    }
    let way = match (app.sort.field, app.sort.reverse) {
        (Field::Group | Field::From, false) => "A-Z",
        (Field::Group | Field::From, true) => "Z-A",
        (_, false) => "high first",
        (_, true) => "low first",
    };
    let order = format!("by {}, {way}", app.sort.field.about().head);
    let mut parts = vec![part(4, &order, STRONG)];
    if !app.filter.is_empty() {
        let filter = format!("filter {}", printable(&app.filter));
        parts.push(part(1, &filter, STRONG));
    }
    let keys = [
        (0, "q quit"),
        (0, "? help"),
        (2, "/ filter"),
        (2, "s sort"),
        (3, "r reverse"),
        (3, "t tree"),
        (3, "p pause"),
        (1, "Enter detail"),
    ];
    parts.extend(keys.map(|(rank, text)| part(rank, text, FAINT)));
    let mut line = fit(parts, width);
    cut(&mut line, width, theme.ellipsis());
    line
}

#[cfg(test)]
mod tests;
