//! Colors: how satisfied a group is (MemOpLight, section IV), declared by its application or inferred from
//! stalls.
//!
//! The agent finds declarations, parses them and checks whether they are fresh; the policy gets the result
//! ([`Declared`]). Only a fresh declaration counts. A missing, stale or malformed one counts as none and is
//! kept only to be displayed.
//!
//! Units: seconds. Texts are short printable ASCII; the agent ensures this.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Satisfaction of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Color {
    /// Satisfied; would not benefit from more.
    Green,
    /// Satisfied, but would do better with more.
    Yellow,
    /// Not satisfied.
    Red,
}

impl Color {
    /// The color of a group that declares none. A group that does not contend is green. A group that contends
    /// is yellow if it gets at least its weighted share, and red otherwise. A group whose contention is
    /// unknown, or whose share is unknown while it contends, is red, the paper's start color.
    pub fn infer(contending: Option<bool>, of_ideal: Option<f64>) -> Color {
        match (contending, of_ideal) {
            (Some(false), _) => Color::Green,
            (Some(true), Some(of_ideal)) if of_ideal >= 1.0 => Color::Yellow,
            _ => Color::Red,
        }
    }

    /// The color with this name, ignoring case.
    pub fn from_name(name: &str) -> Option<Color> {
        [Color::Green, Color::Yellow, Color::Red]
            .into_iter()
            .find(|color| color.name().eq_ignore_ascii_case(name))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Color::Green => "green",
            Color::Yellow => "yellow",
            Color::Red => "red",
        }
    }

    /// Satisfied, with or without a use for more.
    pub fn is_good(self) -> bool {
        self != Color::Red
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Standing of a declaration: it counts, or the reason why it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It changed within its time to live: it counts.
    Fresh,
    /// It did not change within its time to live: its writer is gone or hangs.
    Stale,
    /// The application removed it.
    Removed,
    /// It does not begin with a color.
    Malformed,
    /// It exceeds the maximum length of a declaration.
    TooLong,
    /// The kernel refused the read.
    Unreadable,
}

impl Standing {
    /// Its text for display.
    pub fn words(self) -> &'static str {
        match self {
            Standing::Fresh => "fresh",
            Standing::Stale => "stale",
            Standing::Removed => "removed",
            Standing::Malformed => "malformed",
            Standing::TooLong => "too long",
            Standing::Unreadable => "unreadable",
        }
    }
}

/// The way of a declaration to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// The xattr `user.justitia.color` of the group's directory.
    Xattr,
    /// The agent's socket.
    Socket,
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Channel::Xattr => "xattr",
            Channel::Socket => "socket",
        })
    }
}

/// The declaration of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Declared {
    /// It counts, or the reason why it does not.
    pub standing: Standing,
    /// The color; of a declaration that no longer counts, the last one that did. `None`: there never was one.
    pub color: Option<Color>,
    /// The way of the declaration to the agent.
    pub channel: Channel,
    /// Seconds since it last changed.
    pub unchanged_s: f64,
    /// The text after the color.
    pub reason: String,
}

impl Declared {
    /// The color, if it counts.
    pub fn fresh(&self) -> Option<Color> {
        self.color.filter(|_| self.standing == Standing::Fresh)
    }
}

/// The source of a verdict's color.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColorSource {
    /// The application declared it.
    Declared,
    /// Inferred from stalls and share.
    #[default]
    Inferred,
}

impl fmt::Display for ColorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ColorSource::Declared => "declared",
            ColorSource::Inferred => "inferred",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undeclared_color_follows_stall_and_share() {
        assert_eq!(Color::infer(Some(false), Some(0.1)), Color::Green);
        assert_eq!(Color::infer(Some(true), Some(0.9)), Color::Red);
        assert_eq!(Color::infer(Some(true), Some(1.0)), Color::Yellow);
    }

    #[test]
    fn an_unknown_group_is_red() {
        assert_eq!(Color::infer(None, Some(2.0)), Color::Red);
        assert_eq!(Color::infer(Some(true), None), Color::Red);
    }

    #[test]
    fn only_a_fresh_declaration_counts() {
        let mut declared = Declared {
            standing: Standing::Fresh,
            color: Some(Color::Green),
            channel: Channel::Xattr,
            unchanged_s: 0.0,
            reason: String::new(),
        };
        assert_eq!(declared.fresh(), Some(Color::Green));
        for standing in [
            Standing::Stale,
            Standing::Removed,
            Standing::Malformed,
            Standing::TooLong,
            Standing::Unreadable,
        ] {
            declared.standing = standing;
            assert_eq!(declared.fresh(), None, "{standing:?}");
        }
    }

    #[test]
    fn a_color_is_known_by_its_name_in_any_case() {
        assert_eq!(Color::from_name("GrEeN"), Some(Color::Green));
        assert_eq!(Color::from_name("greenish"), None);
        assert_eq!(Color::from_name(""), None);
    }
}
