//! One line of an access log: status and time. Pure, whatever the bytes.

pub use justitia_args::probe::{Field, Unit};

/// The time in a line, seconds. `None` if there is none, as with nginx's `-`.
pub(super) fn seconds(field: &Field, line: &str, unit: Unit) -> Option<f64> {
    let word = match field {
        Field::Last => line.split_whitespace().next_back()?,
        Field::Word(number) => line.split_whitespace().nth(number - 1)?,
        Field::After(text) => line.get(line.find(text.as_str())? + text.len()..)?,
    };
    let word = word.trim_start_matches([' ', '"', '\'', '[']);
    let end = word
        .find(|char: char| !char.is_ascii_digit() && char != '.')
        .unwrap_or(word.len());
    let number = word.get(..end)?.parse::<f64>().ok()?;
    Some(match unit {
        Unit::Seconds => number,
        Unit::Milliseconds => number / 1e3,
        Unit::Microseconds => number / 1e6,
    })
}

/// True if the status after the quoted request is 500 or more. A line without a status did not fail.
pub(super) fn failed(line: &str) -> bool {
    let Some((_, rest)) = line.split_once('"') else {
        return false;
    };
    let mut escaped = false;
    let end = rest.find(|char: char| {
        let ends = char == '"' && !escaped;
        escaped = char == '\\' && !escaped;
        ends
    });
    let status = end.and_then(|end| rest[end + 1..].split_whitespace().next());
    status
        .filter(|status| status.len() == 3)
        .and_then(|status| status.parse::<u16>().ok())
        .is_some_and(|status| status >= 500)
}
