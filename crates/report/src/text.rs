//! Text of others on a terminal and in a log.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text without what a terminal obeys or what changes how its neighbors are read: control characters
/// (C0 with line breaks, DEL, C1), marks of direction, line and paragraph separators and noncharacters.
/// Each becomes `?`. Names of cgroups, containers and files are anybody's.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_harmful) {
        let shown = |c| if is_harmful(c) { '?' } else { c };
        Cow::Owned(text.chars().map(shown).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// JSON in which no terminal finds anything to obey either, and every reader the same text.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let harmful = |c: char| is_harmful(c) && c != '\n';
    if !json.chars().any(harmful) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if harmful(c) {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    Cow::Owned(text)
}

fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_obeys_becomes_a_question_mark() {
        let hostile = "/app/\x1b[2Jx\x7f\u{9b}31m\u{202e}cod\u{2066}\u{2028}\n\t\rend";
        assert_eq!(printable(hostile), "/app/?[2Jx??31m?cod?????end");
        assert_eq!(printable("/app/größe-Ω"), "/app/größe-Ω");
    }

    proptest! {
        #[test]
        fn json_says_the_same_without_them(text in ".*", tail in "[\u{80}-\u{9f}\u{2028}-\u{202e}]*") {
            let text = text + &tail;
            let json = serde_json::to_string(&text).unwrap();
            let shown = printable_json(&json);
            prop_assert!(!shown.chars().any(is_harmful));
            prop_assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }
    }
}
