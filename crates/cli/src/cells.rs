//! Measures, cuts and pads texts in terminal cells. A wide letter takes two.

use ratatui::text::Span;
use unicode_truncate::{Alignment, UnicodeTruncateStr as _};

/// Width of a text in terminal cells.
pub(crate) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts the end of a text to fit `cells`.
pub(crate) fn cut_end(text: &str, cells: usize, ellipsis: char) -> String {
    match cells.checked_sub(1) {
        _ if width(text) <= cells => text.to_owned(),
        None => String::new(),
        Some(rest) => format!("{}{ellipsis}", text.unicode_truncate(rest).0),
    }
}

/// Cuts the front of a text to fit `cells`: the ends of paths distinguish groups.
pub(crate) fn cut_front(text: &str, cells: usize, ellipsis: char) -> String {
    match cells.checked_sub(1) {
        _ if width(text) <= cells => text.to_owned(),
        None => String::new(),
        Some(rest) => format!("{ellipsis}{}", text.unicode_truncate_start(rest).0),
    }
}

/// Pads a text with blanks to `cells`; `right`: aligned to the right.
pub(crate) fn pad(text: &str, cells: usize, right: bool) -> String {
    let align = if right {
        Alignment::Right
    } else {
        Alignment::Left
    };
    text.unicode_pad(cells, align, false).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_is_as_wide_as_it_may_be_also_with_wide_letters() {
        for text in ["/app/with/a/long/path", "/app/数据库服务器", "/app/ä"] {
            for cells in 0..30 {
                for cut in [cut_end(text, cells, '…'), cut_front(text, cells, '…')] {
                    assert!(width(&cut) <= cells, "{cut:?} in {cells}");
                }
            }
        }
        assert_eq!(cut_front("/app/with/a/path", 7, '…'), "…a/path");
        assert_eq!(cut_end("/app/with/a/path", 7, '…'), "/app/w…");
    }
}
