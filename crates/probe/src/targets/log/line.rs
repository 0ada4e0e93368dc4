//! One line of an access log: status and time. Pure, whatever the bytes.

use std::fmt;
use std::str::FromStr;

/// Where the time stands in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// The last word.
    Last,
    /// The n-th word, from 1; what is in quotes or brackets counts by its words.
    Word(usize),
    /// Right after this text, such as `rt=` or `"request_time":`.
    After(String),
}

/// In what the log counts time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds: nginx's `$request_time`, Apache's `%T`.
    Seconds,
    /// Milliseconds: Apache's `%{ms}T`.
    Milliseconds,
    /// Microseconds: Apache's `%D`.
    Microseconds,
}

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Field, String> {
        if text == "last" {
            return Ok(Field::Last);
        }
        match text.parse::<usize>() {
            Ok(0) => Err("fields count from 1".to_owned()),
            Ok(number) => Ok(Field::Word(number)),
            Err(_) if text.is_empty() => Err("give last, a number, or the text before it".into()),
            Err(_) => Ok(Field::After(text.to_owned())),
        }
    }
}

impl FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Unit, String> {
        match text {
            "s" => Ok(Unit::Seconds),
            "ms" => Ok(Unit::Milliseconds),
            "us" => Ok(Unit::Microseconds),
            _ => Err(format!("{text} is not one of s, ms, us")),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Last => f.write_str("as the last word"),
            Field::Word(number) => write!(f, "as word {number}"),
            Field::After(text) => write!(f, "after {text}"),
        }
    }
}

impl Field {
    /// The time in a line, seconds. `None`: none there, as with nginx's `-`.
    pub(super) fn seconds(&self, line: &str, unit: Unit) -> Option<f64> {
        let word = match self {
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
}

/// Whether the status after the quoted request is 500 or more. A line without one did not fail.
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
