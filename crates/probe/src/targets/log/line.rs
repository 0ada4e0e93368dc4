//! One line of an access log: status and time. Pure, whatever the bytes.

pub use justitia_args::probe::{Field, Unit};

/// The time in a line, seconds. `None` if there is none, as with nginx's `-`.
pub(super) fn seconds(field: &Field, line: &str, unit: Unit) -> Option<f64> {
    let word = match field {
        Field::Last => line.split_whitespace().next_back()?,
        Field::Word(number) => line.split_whitespace().nth(number - 1)?,
        Field::After(text) => after_last(line, text)?,
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

/// The rest of the line after the last `text` that does not continue a word: a client chooses `?sort=5`, and
/// what comes last is the server's.
fn after_last<'a>(line: &'a str, text: &str) -> Option<&'a str> {
    let inner = |char: char| char.is_alphanumeric() || "_-?&".contains(char);
    let begins =
        |&(at, _): &(usize, &str)| !text.starts_with(inner) || !line[..at].ends_with(inner);
    let (at, _) = line.rmatch_indices(text).find(begins)?;
    line.get(at + text.len()..)
}

/// True if the status is 500 or more. It is `"status":` of a line in JSON, or else the first number of three
/// digits right after a quoted text, such as the request. A line without a status did not fail.
pub(super) fn failed(line: &str) -> bool {
    if let Some((_, rest)) = line.split_once("\"status\":") {
        return is_error(rest.trim_start_matches([' ', '"'])).unwrap_or(false);
    }
    let (mut escaped, mut within) = (false, false);
    let mut after_quoted = line.char_indices().filter_map(|(at, char)| {
        let quote = char == '"' && !escaped;
        escaped = char == '\\' && !escaped;
        within ^= quote;
        (quote && !within).then(|| line[at + 1..].trim_start())
    });
    after_quoted.find_map(is_error).unwrap_or(false)
}

/// True if the text begins with a status of 500 or more; `None`: it begins with no status.
fn is_error(text: &str) -> Option<bool> {
    let (status, rest) = text.split_at_checked(3)?;
    let ends = rest.is_empty() || rest.starts_with([' ', '\t', ',', '"', '}']);
    let is_status = ends && status.bytes().all(|byte| byte.is_ascii_digit());
    is_status.then(|| status >= "500")
}
