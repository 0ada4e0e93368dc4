//! The help that `?` opens: the keys, then the meaning of each column.

use ratatui::text::{Line, Span};

use super::columns::Field;
use super::theme::STRONG;

#[rustfmt::skip]
const KEYS: [(&str, &str); 13] = [
    ("Up Down PgUp PgDn Home End", "select a group (also k j g G)"),
    ("Enter", "open or close the pane of the selected group"),
    ("s S, Right Left", "sort by the next column, the previous one"),
    ("r", "reverse the order"),
    ("/", "only groups with a text in path or name; Esc: all"),
    ("t", "tree of the paths, or plain list"),
    ("p, Space", "pause; updates are kept meanwhile"),
    ("Ctrl-L", "draw everything again"),
    ("Ctrl-Z", "suspend"),
    ("?", "this help; up and down scroll, any other key closes"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("- is unknown", "* at a knob: somebody else set it, left alone"),
];

pub(crate) fn lines() -> Vec<Line<'static>> {
    let keys = KEYS.map(|(key, does)| entry(26, key, does));
    let columns = Field::ALL.map(|field| entry(15, field.about().head, field.about().says));
    let mut lines = keys.to_vec();
    lines.push(Line::default());
    lines.extend(columns);
    lines
}

fn entry(width: usize, what: &'static str, says: &'static str) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!("{what:<width$}"), STRONG),
        Span::raw(format!("  {says}")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_fits_eighty_columns() {
        for line in lines() {
            assert!(line.width() <= 80, "{line}");
        }
    }
}
