//! Values that a probe's arguments are parsed into.

use std::fmt;
use std::str::FromStr;

/// A limit for a number of the user's own choice: `>0.5` (or `0.5`) or `<100`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// Larger numbers cross it.
    Above(f64),
    /// Smaller numbers cross it.
    Below(f64),
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Threshold, String> {
        let text = text.trim();
        let (below, rest) = match text.strip_prefix('<') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('>').unwrap_or(text)),
        };
        match rest.trim().parse::<f64>() {
            Ok(limit) if limit.is_finite() && below => Ok(Threshold::Below(limit)),
            Ok(limit) if limit.is_finite() => Ok(Threshold::Above(limit)),
            _ => Err("is not a limit\nuse for example '>0.5' or '<100'".to_owned()),
        }
    }
}

/// Position of the time in a line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    Last,
    /// The n-th word, from 1. Words within quotes or brackets count one by one.
    Word(usize),
    /// Right after this text, such as `rt=` or `"request_time":`.
    After(String),
}

/// Unit of time in the log.
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
            Ok(0) => Err("is no field: they count from 1\nuse for example last or 1".to_owned()),
            Ok(number) => Ok(Field::Word(number)),
            Err(_) if text.is_empty() => {
                Err("is no field\nuse last, a number, or the text before it".into())
            }
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
            _ => Err("is not a unit\nuse one of: s, ms, us".to_owned()),
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
