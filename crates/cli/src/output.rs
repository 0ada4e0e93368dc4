//! All output of the commands: tables that fit the terminal, JSON, and color on terminals that show it.
//!
//! Output contains names that untrusted users chose. All text is printed as a [`Page`], which replaces line
//! breaks and terminal controls in such names.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::ops::Deref;

use justitia_agent::{Error, Result};
use justitia_policy::color::Color;
use justitia_policy::units::Bytes;
use justitia_report::say;
use justitia_report::status::{KnobStatus, Problem};
pub(crate) use justitia_report::text::number;
use justitia_report::text::{printable, printable_json};
use serde::Serialize;

use crate::cells;

/// Narrowest cut of the first column, in cells.
const LEAST: usize = 8;
/// Narrowest cut of the other columns: no number is wider, because a number without its front is another one.
const NUMBER: usize = 16;

/// Text to print. `write!` and `writeln!` add a line. Line breaks are kept only at its beginning and end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Page {
    text: String,
    screen: Screen,
}

impl Page {
    /// An empty page for a file.
    pub(crate) fn new() -> Page {
        Page::default()
    }

    /// An empty page for a screen.
    pub(crate) fn on(screen: Screen) -> Page {
        Page {
            text: String::new(),
            screen,
        }
    }

    /// A page of one line.
    pub(crate) fn of(line: impl fmt::Display) -> Page {
        Page::own(format!("{}\n", printable(&line.to_string())))
    }

    /// A page of text that the program itself generated, such as completions. It is not sanitized.
    pub(crate) fn own(text: String) -> Page {
        Page {
            text,
            ..Page::default()
        }
    }

    /// Adds text that needs no sanitizing.
    pub(crate) fn push_str(&mut self, words: &'static str) {
        self.text.push_str(words);
    }

    pub(crate) fn append(&mut self, page: &Page) {
        self.text.push_str(&page.text);
    }

    pub(crate) fn table<T>(&mut self, table: &Table<T>) {
        self.append(&table.render(self.screen));
    }

    /// Called by `write!`.
    pub(crate) fn write_fmt(&mut self, line: fmt::Arguments<'_>) {
        let line = line.to_string();
        let words = line.trim_matches('\n');
        let start = line.len() - line.trim_start_matches('\n').len();
        self.text.push_str(&line[..start]);
        self.text.push_str(&printable(words));
        if !words.is_empty() {
            self.text.push_str(&line[start + words.len()..]);
        }
    }

    pub(crate) fn paint(&mut self, color: Color, words: &str) {
        let words = printable(words);
        self.text.push_str(&self.screen.paint(color, &words));
    }

    /// Adds cause and remedy of a problem.
    pub(crate) fn problem(&mut self, problem: &Problem) {
        writeln!(self, "\nproblem: {}", problem.cause);
        writeln!(self, "  {}", problem.remedy);
    }

    /// Adds a text wrapped to the screen. `first` begins its first line, and `rest` begins the others.
    pub(crate) fn wrapped(&mut self, first: &str, rest: &str, words: &str) {
        let width = self.screen.width.unwrap_or(usize::MAX);
        let mut line = first.to_owned();
        let mut empty = true;
        for word in words.split(' ') {
            let length = cells::width(&line) + cells::width(word) + usize::from(!empty);
            if length > width && !empty {
                writeln!(self, "{line}");
                rest.clone_into(&mut line);
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        writeln!(self, "{line}");
    }

    /// The first line that begins with these words.
    #[cfg(test)]
    pub(crate) fn line(&self, words: &str) -> &str {
        let found = self.lines().find(|line| line.starts_with(words));
        found.unwrap_or_else(|| panic!("no {words}:\n{self}"))
    }

    /// Prints to stdout. A closed pipe (`| head`) is not an error.
    pub(crate) fn print(&self) -> Result<()> {
        self.flush().map(|_| ())
    }

    /// As [`Page::print`]; `false`: the reader has closed the pipe.
    pub(crate) fn flush(&self) -> Result<bool> {
        say::print(&self.text).map_err(|error| say::unprinted(&error))
    }
}

impl Deref for Page {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

pub(crate) fn print_line(line: fmt::Arguments<'_>) -> Result<()> {
    Page::of(line).print()
}

/// Prints a record as JSON, or as text for the screen.
pub(crate) fn print(
    json: bool,
    record: &impl Serialize,
    text: impl FnOnce(Screen) -> Page,
) -> Result<()> {
    if json {
        return print_json(record);
    }
    text(Screen::stdout()).print()
}

/// Prints a record as JSON, indented.
pub(crate) fn print_json(record: &impl Serialize) -> Result<()> {
    json(serde_json::to_string_pretty(record))?.print()
}

/// Prints a record as one line of JSON; `false`: the reader has closed the pipe.
pub(crate) fn print_json_line(record: &impl Serialize) -> Result<bool> {
    json(serde_json::to_string(record))?.flush()
}

fn json(text: serde_json::Result<String>) -> Result<Page> {
    let text = text.map_err(unexpected)?;
    Ok(Page::own(format!("{}\n", printable_json(&text))))
}

/// An error that is not the user's.
pub(crate) fn unexpected(error: impl fmt::Display) -> Error {
    Error::failed(error, "report this with the command line")
}

/// Shows the progress of a long run if stderr is a terminal. Dropping it ends its line.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// A line is shown.
    open: bool,
}

impl Progress {
    /// Shows a line over the previous one.
    pub(crate) fn show(&mut self, line: fmt::Arguments<'_>) {
        if io::stderr().is_terminal() {
            self.open = true;
            // The spaces cover the end of a longer line before.
            say::complain(&format!("\r{}        ", printable(&line.to_string())));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.open {
            say::complain("\n");
        }
    }
}

/// Properties of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Width in columns; `None`: unlimited.
    pub(crate) width: Option<usize>,
    /// The terminal shows colors and the user wants them.
    pub(crate) colors: bool,
}

impl Screen {
    /// The properties of a file.
    pub(crate) const FILE: Screen = Screen {
        width: None,
        colors: false,
    };

    /// A terminal without colors.
    #[cfg(test)]
    pub(crate) const fn wide(columns: usize) -> Screen {
        Screen {
            width: Some(columns),
            colors: false,
        }
    }

    /// The properties of stdout: a terminal has its width, a file has no limit. `COLUMNS` overrides the width
    /// of both.
    pub(crate) fn stdout() -> Screen {
        let terminal = io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let columns = std::env::var("COLUMNS")
            .ok()
            .and_then(|columns| columns.parse().ok())
            .filter(|&columns| columns > 0);
        let width = columns.or_else(|| {
            let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
            Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
        });
        Screen {
            width,
            colors: terminal && !no_color,
        }
    }

    fn paint(self, color: Color, text: &str) -> String {
        let code = match color {
            Color::Green => 32,
            Color::Yellow => 33,
            Color::Red => 31,
        };
        if self.colors {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A table with aligned columns that fits the screen, and a row for each `T`.
#[derive(Debug)]
pub(crate) struct Table<T> {
    rows: Vec<T>,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    /// Aligned to the right, as numbers are.
    right: bool,
    /// On a narrow terminal, columns of the highest rank are left out first; columns of rank 0 never are.
    rank: u8,
    /// Its head, and its cell in each row.
    cells: Vec<Cell>,
}

impl<T> Table<T> {
    pub(crate) fn of(rows: impl IntoIterator<Item = T>) -> Table<T> {
        Table {
            rows: rows.into_iter().collect(),
            columns: Vec::new(),
        }
    }

    /// Adds a column of words.
    pub(crate) fn left<C: Into<Cell>>(
        mut self,
        head: &str,
        rank: u8,
        cell: impl Fn(&T) -> C,
    ) -> Table<T> {
        let cells = self.rows.iter().map(|row| cell(row).into());
        self.columns.push(Column {
            right: false,
            rank,
            cells: std::iter::once(head.into()).chain(cells).collect(),
        });
        self
    }

    /// Adds a column of numbers.
    pub(crate) fn right<C: Into<Cell>>(
        self,
        head: &str,
        rank: u8,
        cell: impl Fn(&T) -> C,
    ) -> Table<T> {
        let mut table = self.left(head, rank, cell);
        if let Some(column) = table.columns.last_mut() {
            column.right = true;
        }
        table
    }

    /// As [`Table::render`], for a table of all managed groups.
    pub(crate) fn render_groups(&self, screen: Screen) -> Page {
        if self.rows.is_empty() {
            return Page::of("no cgroup to manage yet");
        }
        self.render(screen)
    }

    pub(crate) fn render(&self, screen: Screen) -> Page {
        let shown = self.layout(screen);
        let mut text = String::new();
        for row in 0..=self.rows.len() {
            let mut line = String::new();
            for (column, width) in &shown {
                push_cell(&mut line, &column.cells[row], *width, column.right, screen);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        Page { text, screen }
    }

    /// The columns that fit, with their widths.
    fn layout(&self, screen: Screen) -> Vec<(&Column, usize)> {
        let length = |cell: &Cell| cells::width(&cell.text);
        let width = |column: &Column| column.cells.iter().map(length).max();
        let columns = self.columns.iter();
        let mut shown: Vec<(&Column, usize)> = columns
            .map(|column| (column, width(column).unwrap_or(0)))
            .collect();
        let total = |shown: &[(&Column, usize)]| {
            let sum: usize = shown.iter().map(|(_, width)| width + 2).sum();
            sum.saturating_sub(2)
        };
        let limit = screen.width.unwrap_or(usize::MAX);
        while total(&shown) > limit {
            let last = (0..shown.len()).max_by_key(|&at| (shown[at].0.rank, at));
            match last.filter(|&at| shown[at].0.rank > 0) {
                Some(at) => shown.remove(at),
                None => break,
            };
        }
        // If the table is still too wide, cut the widest column from its front, which is usually that of the
        // groups: the ends of paths distinguish them.
        for _ in limit..total(&shown) {
            let least = |at: usize| if at == 0 { LEAST } else { NUMBER };
            let spare = |at: usize| shown[at].1.saturating_sub(least(at));
            let Some(widest) = (0..shown.len()).rev().max_by_key(|&at| spare(at)) else {
                break;
            };
            if spare(widest) > 0 {
                shown[widest].1 -= 1;
            }
        }
        shown
    }
}

/// The text of a table's cell, and the color that it is painted in.
#[derive(Debug)]
pub(crate) struct Cell {
    text: String,
    color: Option<Color>,
}

impl From<(String, Option<Color>)> for Cell {
    fn from((text, color): (String, Option<Color>)) -> Cell {
        let text = printable(&text).into_owned();
        Cell { text, color }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::from((text, None))
    }
}

/// A dash without a value.
impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or_else(|| "-".into(), Into::into)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::from(text.to_owned())
    }
}

fn push_cell(line: &mut String, cell: &Cell, width: usize, right: bool, screen: Screen) {
    let cut = cells::cut_front(&cell.text, width, '…');
    let padding = " ".repeat(width.saturating_sub(cells::width(&cut)));
    let painted = match cell.color {
        Some(color) => screen.paint(color, &cut),
        None => cut,
    };
    let (first, second) = if right {
        (padding, painted)
    } else {
        (painted, padding)
    };
    line.extend([&first, &second, "  "]);
}

/// Bytes, or a dash.
pub(crate) fn bytes(bytes: impl Into<Option<u64>>) -> String {
    let bytes = bytes.into();
    bytes.map_or_else(|| "-".into(), |bytes| Bytes(bytes).to_string())
}

/// A bandwidth in 10^6 bytes per second, or a dash.
pub(crate) fn megabytes_per_s(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), |rate| format!("{:.2}", rate / 1e6))
}

/// A bandwidth with its unit, or a dash.
pub(crate) fn bandwidth(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), |rate| format!("{:.2} MB/s", rate / 1e6))
}

/// A ratio with two decimals, or a dash.
pub(crate) fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"))
}

/// A share as a percentage, or a dash.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1}%", share * 100.0))
}

/// A knob's value before the agent changed it, in words.
pub(crate) fn prior_value(knob: &KnobStatus) -> String {
    match (knob.foreign, &knob.prior) {
        (true, _) => "set by somebody else, left alone".into(),
        (false, Some(prior)) => knob_value(prior, knob.knob.is_memory()),
        (false, None) => "not changed".into(),
    }
}

/// A knob's value: a memory knob's bytes as a readable size, anything else unchanged.
pub(crate) fn knob_value(value: &str, memory: bool) -> String {
    match value.parse() {
        Ok(bytes) if memory => Bytes(bytes).to_string(),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(screen: Screen) -> Page {
        let rows = [
            ("/app/a", "100", Color::Red),
            ("/app/with/a/long/path", "10000", Color::Green),
        ];
        Table::of(rows)
            .left("GROUP", 0, |row| row.0)
            .right("WEIGHT", 0, |row| row.1)
            .left("COLOR", 1, |row| (row.2.to_string(), Some(row.2)))
            .render(screen)
    }

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let text = table(Screen::FILE);
        assert_eq!(
            &*text,
            "GROUP                  WEIGHT  COLOR\n\
             /app/a                    100  red\n\
             /app/with/a/long/path   10000  green\n"
        );
    }

    #[test]
    fn a_narrow_terminal_loses_columns_first_and_then_the_fronts_of_paths() {
        for width in [36, 30, 20] {
            let text = table(Screen::wide(width));
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{width}:\n{text}"
            );
        }
        let text = table(Screen::wide(20));
        assert!(!text.contains("COLOR") && text.contains('…'), "{text}");
        assert!(text.contains("long/path"), "{text}");
    }

    #[test]
    fn a_long_value_is_cut_before_a_table_is_too_wide() {
        let rows = [(
            "cost:sda",
            "8:0 ctrl=user model=linear rbps=1 wbps=2",
            "1023.0 MiB",
        )];
        let table = Table::of(rows)
            .left("GROUP", 0, |row| row.0)
            .right("THEN", 0, |row| row.1)
            .right("CACHE", 0, |row| row.2);
        let text = table.render(Screen::wide(44));
        assert!(
            text.lines().all(|line| line.chars().count() <= 44),
            "{text}"
        );
        assert!(
            text.contains("cost:sda") && text.contains("…=linear rbps=1 wbps=2  1023.0 MiB"),
            "{text}"
        );
        // Nothing is left to cut.
        assert!(table.render(Screen::wide(1)).contains("1023.0 MiB"));
    }

    #[test]
    fn wide_letters_take_two_cells() {
        let rows = [("/app/数据库", "1"), ("/app/longer-name", "2")];
        let table = Table::of(rows)
            .left("GROUP", 0, |row| row.0)
            .right("N", 0, |row| row.1);
        for (screen, cells) in [(Screen::FILE, 19), (Screen::wide(12), 12)] {
            let text = table.render(screen);
            assert!(
                text.lines().all(|line| cells::width(line) == cells),
                "{text}"
            );
        }
        let mut page = Page::on(Screen::wide(12));
        page.wrapped("", "", "数据库 数据库 ab");
        assert_eq!(&*page, "数据库\n数据库 ab\n");
    }

    #[test]
    fn color_does_not_disturb_alignment() {
        let text = table(Screen {
            width: None,
            colors: true,
        });
        assert!(text.contains("  100  \x1b[31mred\x1b[0m"), "{text:?}");
    }

    #[test]
    fn names_begin_no_line_and_a_terminal_obeys_none_of_them() {
        let name = "/app/a\n\x1b[31mproblem: none";
        let mut page = Page::new();
        writeln!(page, "\ngroup {name}");
        page.problem(&Problem {
            group: None,
            cause: name.into(),
            remedy: name.into(),
        });
        let screen = Screen::FILE;
        let painted = |name: &&str| ((*name).to_owned(), Some(Color::Red));
        let table = Table::of([name]).left("GROUP", 0, painted);
        page.append(&table.render(screen));
        let shown = "/app/a??[31mproblem: none";
        assert_eq!(
            &*page,
            format!("\ngroup {shown}\n\nproblem: {shown}\n  {shown}\nGROUP\n{shown}\n")
        );
    }

    #[test]
    fn an_unknown_value_is_a_dash() {
        assert_eq!(bytes(None), "-");
        assert_eq!(megabytes_per_s(Some(1.5e6)), "1.50");
        assert_eq!(knob_value("1048576", true), "1.0 MiB");
        assert_eq!(knob_value("max", true), "max");
        assert_eq!(knob_value("100", false), "100");
    }
}
