//! False colors, and values that are no color.

use serde::{Deserialize, Serialize};

use crate::policy::by_name;
use justitia_machine::error::LabError;

/// Declared by a container instead of its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lie {
    /// Always GREEN.
    Green,
    /// Always RED.
    Red,
    /// RED and GREEN alternately.
    Flap,
    /// Bytes that are no color.
    Garbage,
    /// Almost as much as an extended attribute can hold.
    Huge,
    /// Nothing: its probe is dead.
    Silent,
}

impl Lie {
    const NAMES: [(Self, &'static str); 6] = [
        (Self::Green, "green"),
        (Self::Red, "red"),
        (Self::Flap, "flap"),
        (Self::Garbage, "garbage"),
        (Self::Huge, "huge"),
        (Self::Silent, "silent"),
    ];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// The container and the lie of `--lie NAME=WHAT`.
    ///
    /// # Errors
    /// There is no such lie; the error names the nearest one.
    pub fn of_option(text: &str) -> Result<(&str, Self), LabError> {
        let (name, what) = text.split_once('=').unwrap_or((text, ""));
        let cause = || format!("--lie {text}: unknown lie '{what}'");
        let (lie, _) = by_name(Self::NAMES, |(_, name)| name, what, cause)?;
        Ok((name, lie))
    }
}
