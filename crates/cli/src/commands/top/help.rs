//! The help that `?` opens: the keys, then the meaning of each column.

use ratatui::text::{Line, Span};

use super::columns::Field;
use super::theme::STRONG;
use crate::output::{Page, Screen};

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

/// The help for a screen of this width.
pub(crate) fn lines(screen: usize) -> Vec<Line<'static>> {
    let keys = KEYS.iter();
    let keys = keys.flat_map(|(key, does)| entry(26, key, does, screen));
    let mut lines: Vec<_> = keys.collect();
    lines.push(Line::default());
    let columns = Field::ALL.iter().map(|field| field.about());
    lines.extend(columns.flat_map(|about| entry(15, about.head, about.says, screen)));
    lines
}

/// A key or a head, and what it says, wrapped to the screen.
fn entry(width: usize, what: &str, says: &str, screen: usize) -> Vec<Line<'static>> {
    let mut page = Page::on(Screen {
        width: Some(screen.saturating_sub(width + 2)),
        ..Screen::FILE
    });
    page.wrapped("", "", says);
    let lines = page.lines().enumerate().map(|(at, says)| {
        let what = if at == 0 { what } else { "" };
        Line::from(vec![
            Span::styled(format!("{what:<width$}"), STRONG),
            Span::raw(format!("  {says}")),
        ])
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_fits_the_screen_and_loses_no_word() {
        let words = |screen| {
            let lines = lines(screen);
            assert!(lines.iter().all(|line| line.width() <= screen), "{lines:?}");
            let text: Vec<_> = lines.iter().map(ToString::to_string).collect();
            let text = text.join(" ");
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(80).len(), KEYS.len() + 1 + Field::ALL.len());
        assert_eq!(words(60), words(80));
        assert_eq!(words(48), words(80));
    }
}
