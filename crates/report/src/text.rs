//! Sanitizes untrusted text for a terminal and a log.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Replaces each harmful character by `?`. Untrusted users choose the names of cgroups, containers and files.
/// A harmful character controls the terminal, changes how its neighbors are read, or is invisible, so that
/// two names look alike: control characters (C0 with line breaks, DEL, C1), line and paragraph separators,
/// format characters (direction marks, joiners, zero-width spaces, tags) and noncharacters.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_harmful) {
        let shown = |c| if is_harmful(c) { '?' } else { c };
        Cow::Owned(text.chars().map(shown).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// `1 group`, `3 groups`.
pub fn number(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// The word of an enum's value in JSON.
pub fn word(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    text.trim_matches('"').to_owned()
}

/// Escapes the harmful characters of [`printable`] in JSON, except its line breaks. A JSON parser reads the
/// same text.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let harmful = |c: char| is_harmful(c) && c != '\n';
    if !json.chars().any(harmful) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if harmful(c) {
            // JSON escapes a character beyond the Basic Multilingual Plane as a surrogate pair.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    Cow::Owned(text)
}

fn is_harmful(c: char) -> bool {
    // Unicode's Cc, Zl, Zp, Cf and noncharacters, and fillers that render as nothing.
    c.is_control()
        || u32::from(c) & 0xfffe == 0xfffe
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fdd0}'..='\u{fdef}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(number(1, "group"), "1 group");
        assert_eq!([0, 2].map(|n| number(n, "group")), ["0 groups", "2 groups"]);
    }

    #[test]
    fn characters_that_a_terminal_obeys_become_question_marks() {
        let hostile = "/app/\x1b[2Jx\x7f\u{9b}31m\u{202e}cod\u{2066}\u{2028}\n\t\rend";
        assert_eq!(printable(hostile), "/app/?[2Jx??31m?cod?????end");
        assert_eq!(printable("/app/größe-Ω"), "/app/größe-Ω");
        let unseen = "/app/d\u{200b}b\u{ad}\u{2060}\u{e0041}\u{fffe}\u{10ffff}\u{fe0f}\u{3164}";
        assert_eq!(printable(unseen), "/app/d?b???????");
    }

    proptest! {
        #[test]
        fn printable_json_has_the_same_value_without_harmful_characters(text in ".*", tail in "[\u{80}-\u{9f}\u{2028}-\u{202e}\u{e0001}-\u{e00ff}\u{1fffe}]*") {
            let text = text + &tail;
            let json = serde_json::to_string(&text).unwrap();
            let shown = printable_json(&json);
            prop_assert!(!shown.chars().any(is_harmful));
            prop_assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }
    }
}
