//! Colors: how well a group is (MemOpLight, section IV), inferred from stalls when not declared.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How well a group is.
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
    /// The color of a group that declares none: no stall is green; a group that stalls and gets
    /// less than its weighted share is red; one at or above its share is yellow. A group whose
    /// stalls are unknown is red, the paper's start color.
    pub fn infer(contending: Option<bool>, of_ideal: Option<f64>) -> Color {
        match (contending, of_ideal) {
            (Some(false), _) => Color::Green,
            (Some(true), Some(of_ideal)) if of_ideal >= 1.0 => Color::Yellow,
            _ => Color::Red,
        }
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Color::Green => "green",
            Color::Yellow => "yellow",
            Color::Red => "red",
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
    fn what_is_unknown_is_red() {
        assert_eq!(Color::infer(None, Some(2.0)), Color::Red);
        assert_eq!(Color::infer(Some(true), None), Color::Red);
    }
}
