//! Small pieces of markup: escaping, numbers. Everything except constants of this crate goes through
//! [`escape`].

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

pub fn percent(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(
        || "–".to_owned(),
        |value| format!("{}\u{a0}%", fixed(value * 100.0, digits)),
    )
}

/// Details under a summary, both markup.
pub fn details(open: bool, summary: &str, content: &str) -> String {
    let open = if open { " open" } else { "" };
    format!("<details{open}><summary>{summary}</summary>{content}</details>\n")
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
}
