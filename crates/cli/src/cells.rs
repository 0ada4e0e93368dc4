//! Measures, cuts and pads texts in terminal cells. A wide letter takes two.

use ratatui::text::Span;

/// Width of a text in terminal cells.
pub(crate) fn width(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        Span::raw(text).width()
    }
}

/// Cuts the end of a text to fit `cells`.
pub(crate) fn cut_end(text: &str, cells: usize, ellipsis: char) -> String {
    if width(text) <= cells {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut left = cells.saturating_sub(1);
    for c in text.chars() {
        let wide = width(c.encode_utf8(&mut [0; 4]));
        if wide > left {
            break;
        }
        left -= wide;
        kept.push(c);
    }
    if cells > 0 {
        kept.push(ellipsis);
    }
    kept
}

/// Cuts the front of a text to fit `cells`: the ends of paths distinguish groups.
pub(crate) fn cut_front(text: &str, cells: usize, ellipsis: char) -> String {
    if width(text) <= cells {
        return text.to_owned();
    }
    let backwards: String = text.chars().rev().collect();
    let cut = cut_end(&backwards, cells, ellipsis);
    cut.chars().rev().collect()
}

/// Pads a text with blanks to `cells`; `right`: aligned to the right.
pub(crate) fn pad(text: &str, cells: usize, right: bool) -> String {
    let blanks = " ".repeat(cells.saturating_sub(width(text)));
    if right {
        blanks + text
    } else {
        text.to_owned() + &blanks
    }
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
