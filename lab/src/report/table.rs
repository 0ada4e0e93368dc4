//! Tables: a caption, headings and rows of plain text. One model, rendered as markup and as text.

use std::fmt::{Display, Write};

use super::html::{details, escape, fixed, number, percent};
use crate::analysis::aggregate::Range;
use crate::policy::Policy;

/// A cell, plain text.
#[derive(Debug, Clone)]
pub enum Cell {
    Text(String),
    /// A median and, in small type, its range over the runs.
    Ranged(String, String),
    /// The name of a policy beside its color.
    Policy(Policy),
    /// A text that is good or bad.
    Judged(bool, String),
}

impl<T: Display> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.to_string())
    }
}

impl Cell {
    pub fn number(value: Option<f64>, digits: usize) -> Self {
        number(value, digits).into()
    }

    pub fn percent(value: Option<f64>, digits: usize) -> Self {
        percent(value, digits).into()
    }

    /// A median with its range, if there is a range to show.
    pub fn ranged(value: Option<f64>, range: Option<Range>, digits: usize, runs: usize) -> Self {
        let words = |range: Range| [range.min, range.max].map(|end| fixed(end, digits));
        Self::with_range(number(value, digits), range.map(words), runs)
    }

    /// A text with the two ends of its range, if there is a range to show.
    pub fn with_range(text: String, ends: Option<[String; 2]>, runs: usize) -> Self {
        match ends.filter(|_| runs > 1) {
            Some(ends) => Self::Ranged(text, ends.join(" to ")),
            None => Self::Text(text),
        }
    }

    pub fn html(&self) -> String {
        match self {
            Self::Text(text) => escape(text),
            Self::Ranged(text, range) => {
                format!("{}<small>{}</small>", escape(text), escape(range))
            }
            Self::Policy(policy) => format!(
                "<span class=\"swatch\" style=\"background:var(--{name})\"></span>{name}",
                name = policy.name()
            ),
            Self::Judged(good, text) => {
                let class = if *good { "good" } else { "bad" };
                format!("<span class=\"{class}\">{}</span>", escape(text))
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) | Self::Judged(_, text) => text.clone(),
            Self::Ranged(text, range) => format!("{text} ({range})"),
            Self::Policy(policy) => policy.name().to_owned(),
        }
    }
}

/// Its first column names the rows; the others are numbers, unless it is a table of facts.
#[derive(Debug, Default)]
pub struct Table {
    caption: String,
    head: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
}

/// A column of a table: its heading, and the cell of an item.
pub type Column<T> = (&'static str, fn(&T) -> Cell);

impl Table {
    pub fn new<H: Into<Cell>>(caption: &str, head: impl IntoIterator<Item = H>) -> Self {
        Self {
            caption: caption.to_owned(),
            head: head.into_iter().map(H::into).collect(),
            rows: Vec::new(),
        }
    }

    /// A table with a row for each item.
    pub fn of<T>(caption: &str, columns: &[Column<T>], items: impl IntoIterator<Item = T>) -> Self {
        let mut table = Self::new(caption, columns.iter().map(|(heading, _)| heading));
        for item in items {
            table.row(columns.iter().map(|(_, cell)| cell(&item)));
        }
        table
    }

    /// A table of names and values, without headings.
    pub fn facts(caption: &str) -> Self {
        Self::new(caption, [""; 0])
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn fact(&mut self, name: &str, value: impl Display) {
        self.row([name.into(), value.into()]);
    }

    /// The same table with its rows as columns.
    #[must_use]
    pub fn transposed(&self) -> Self {
        let lines: Vec<_> = std::iter::once(&self.head).chain(&self.rows).collect();
        let cell = |at: usize| move |line: &&Vec<Cell>| line.get(at).cloned();
        let column = |at: usize| lines.iter().filter_map(cell(at)).collect();
        Self {
            caption: self.caption.clone(),
            head: column(0),
            rows: (1..self.head.len()).map(column).collect(),
        }
    }

    pub fn html(&self) -> String {
        let class = if self.head.is_empty() {
            "facts"
        } else {
            "numbers"
        };
        let caption = escape(&self.caption);
        let mut html = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\">\
             <table class=\"{class}\"><caption>{caption}</caption>"
        );
        if !self.head.is_empty() {
            html.push_str("<thead><tr>");
            for cell in &self.head {
                let _ = write!(html, "<th scope=\"col\">{}</th>", cell.html());
            }
            html.push_str("</tr></thead>");
        }
        html.push_str("<tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (i, cell) in row.iter().enumerate() {
                let tag = if i == 0 { "th scope=\"row\"" } else { "td" };
                let _ = write!(html, "<{tag}>{}</{}>", cell.html(), &tag[..2]);
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table></div>\n");
        html
    }

    /// The table behind its caption, closed at first or open.
    pub fn folded(&self, open: bool, summary: &Cell) -> String {
        details(open, &summary.html(), &self.html())
    }

    /// The table for a terminal: every column is as wide as its widest cell. Names are flush left, numbers flush
    /// right.
    pub fn text(&self) -> String {
        let lines = std::iter::once(&self.head).chain(&self.rows);
        let lines = lines.map(|cells| cells.iter().map(Cell::text).collect());
        let lines: Vec<Vec<String>> = lines.collect();
        let mut widths = vec![0; self.head.len()];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        let is_word = |cell: &String| cell.starts_with(char::is_alphabetic);
        let is_name = |i: usize| lines.iter().filter_map(|line| line.get(i)).all(is_word);
        let mut text = format!("{}\n", self.caption);
        for line in &lines {
            for (i, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                let _ = match i {
                    0 => write!(text, "{cell:<width$}"),
                    _ if is_name(i) => write!(text, "  {cell:<width$}"),
                    _ => write!(text, "  {cell:>width$}"),
                };
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_shown_only_over_several_runs() {
        let range = Some(Range { min: 1.0, max: 2.0 });
        assert_eq!(Cell::ranged(Some(1.5), range, 1, 1).html(), "1.5");
        let ranged = Cell::ranged(Some(1.5), range, 1, 3);
        assert_eq!(ranged.html(), "1.5<small>1.0 to 2.0</small>");
        assert_eq!(ranged.text(), "1.5 (1.0 to 2.0)");
    }

    #[test]
    fn text_stays_text_in_markup_and_aligns_by_characters() {
        let mut table = Table::new("of <all>", ["Name", "–"]);
        table.row(["<b>".into(), Cell::number(Some(10.0), 0)]);
        assert!(table
            .html()
            .contains("<th scope=\"row\">&lt;b&gt;</th><td>10</td>"));
        assert_eq!(table.text(), "of <all>\nName   –\n<b>   10\n");
        assert_eq!(
            table.transposed().text(),
            "of <all>\nName  <b>\n–      10\n"
        );
    }
}
