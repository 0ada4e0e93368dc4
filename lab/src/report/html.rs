//! Small pieces of markup: escaping, numbers, tables. Everything except constants of this crate goes through
//! [`escape`].

use std::fmt::{Display, Write};

use crate::analysis::aggregate::Range;

/// Makes text safe between tags and inside double-quoted attributes. Control characters that HTML forbids
/// become a replacement character.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// An entry of a legend. `color`: a variable of the style sheet.
pub fn legend_entry(color: &str, text: &str) -> String {
    let text = escape(text);
    format!("<li><i style=\"background:var({color})\"></i>{text}</li>")
}

/// A number with `digits` decimals, or a dash if it is unknown.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| fixed(value, digits))
}

/// A number with `digits` decimals and a true minus sign; never "-0".
pub fn fixed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let is_zero = text.bytes().all(|b| !b.is_ascii_digit() || b == b'0');
    if is_zero {
        text.trim_start_matches('-').to_owned()
    } else {
        text.replacen('-', "\u{2212}", 1)
    }
}

/// A share as a percentage.
pub fn percent(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(
        || "–".to_owned(),
        |value| format!("{}\u{a0}%", fixed(value * 100.0, digits)),
    )
}

/// A median with its range in small type, if there is a range to show.
pub fn with_range(value: Option<f64>, range: Option<Range>, digits: usize, runs: usize) -> String {
    let mut text = number(value, digits);
    if let (Some(range), true) = (range, runs > 1) {
        let _ = write!(
            text,
            "<small>{} to {}</small>",
            fixed(range.min, digits),
            fixed(range.max, digits)
        );
    }
    text
}

/// Details under a summary, both markup.
pub fn details(open: bool, summary: &str, content: &str) -> String {
    let open = if open { " open" } else { "" };
    format!("<details{open}><summary>{summary}</summary>{content}</details>\n")
}

/// A table. Cells are markup already; the first column is a row header, the others are numbers.
#[derive(Debug, Default)]
pub struct Table {
    caption: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    text: bool,
}

/// A column of a table: its heading, and the cell of an item, both markup.
pub type Column<T> = (&'static str, fn(&T) -> String);

impl Table {
    /// A table with a row for each item.
    pub fn of<T>(caption: &str, columns: &[Column<T>], items: impl IntoIterator<Item = T>) -> Self {
        let head: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
        let mut table = Self::numbers(caption, &head);
        for item in items {
            table.row(columns.iter().map(|(_, cell)| cell(&item)).collect());
        }
        table
    }

    /// A table of numbers under a caption, both markup.
    pub fn numbers(caption: &str, head: &[&str]) -> Self {
        let head = head.iter().map(|cell| (*cell).to_owned()).collect();
        Self {
            caption: caption.to_owned(),
            head,
            ..Self::default()
        }
    }

    /// A table of names and values.
    pub fn facts(caption: &str) -> Self {
        Self {
            caption: caption.to_owned(),
            text: true,
            ..Self::default()
        }
    }

    /// Adds a row of cells, all markup.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Adds a name and a value, both plain text.
    pub fn fact(&mut self, name: &str, value: impl Display) {
        self.rows
            .push(vec![escape(name), escape(&value.to_string())]);
    }

    pub fn render(&self) -> String {
        let class = if self.text { "facts" } else { "numbers" };
        let mut html = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table class=\"{class}\"><caption>{}</caption>",
            self.caption, self.caption
        );
        if !self.head.is_empty() {
            html.push_str("<thead><tr>");
            for cell in &self.head {
                let _ = write!(html, "<th scope=\"col\">{cell}</th>");
            }
            html.push_str("</tr></thead>");
        }
        html.push_str("<tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (i, cell) in row.iter().enumerate() {
                let tag = if i == 0 { "th scope=\"row\"" } else { "td" };
                let _ = write!(html, "<{tag}>{cell}</{}>", &tag[..2]);
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table></div>\n");
        html
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_guest_says_becomes_markup() {
        assert_eq!(
            escape("<b a=\"x\">&'\u{1b}[0m"),
            "&lt;b a=&quot;x&quot;&gt;&amp;&#39;\u{fffd}[0m"
        );
    }

    #[test]
    fn numbers_have_their_digits_and_the_unknown_a_dash() {
        assert_eq!(number(Some(1.2345), 2), "1.23");
        assert_eq!(number(None, 2), "–");
        assert_eq!(fixed(-0.001, 2), "0.00");
        assert_eq!(fixed(-1.5, 1), "\u{2212}1.5");
        assert_eq!(percent(Some(0.123), 1), "12.3\u{a0}%");
    }

    #[test]
    fn a_range_is_shown_only_over_several_runs() {
        let range = Some(Range { min: 1.0, max: 2.0 });
        assert_eq!(with_range(Some(1.5), range, 1, 1), "1.5");
        assert_eq!(
            with_range(Some(1.5), range, 1, 3),
            "1.5<small>1.0 to 2.0</small>"
        );
    }
}
