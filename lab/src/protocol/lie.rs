//! False colors, and values that are no color.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::policy::by_name;
use justitia_machine::error::Result;
use justitia_report::text::word;

/// Declared by a container instead of its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lie {
    Green,
    Red,
    Flap,
    Garbage,
    /// Almost as much as an extended attribute can hold.
    Huge,
    /// Nothing: its probe is dead.
    Silent,
}

impl Lie {
    pub fn name(self) -> String {
        word(&self)
    }

    /// The container and the lie of `--lie NAME=WHAT`. An error names the nearest lie.
    pub fn of_option(text: &str) -> Result<(&str, Self)> {
        let (name, what) = text.split_once('=').unwrap_or((text, ""));
        let cause = || format!("--lie {text}: unknown lie '{what}'");
        let named = Self::value_variants().iter().map(|lie| (lie.name(), *lie));
        let (_, lie) = by_name(named, |(name, _)| name, what, cause)?;
        Ok((name, lie))
    }
}
