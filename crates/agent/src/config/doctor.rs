//! The section `[doctor]`: findings that the operator accepts.
//!
//! ```toml
//! [doctor]
//! silence = [
//!     { check = "swap-none", reason = "the nodes have no swap by decision" },
//!     { check = "limit-too-small", group = "/batch/*", reason = "batch may thrash" },
//! ]
//! ```
//!
//! `check` must be the id of a check. `group` is a path or glob and may be left out. `reason` may not be left
//! out: a later reader must be able to tell whether it still holds.

use justitia_discover::Glob;
use justitia_doctor::{find_check, Silence, CHECKS};
use serde::{Deserialize, Deserializer};

use super::did_you_mean;
use super::values::{error, glob, text};

/// An example of `silence`, for error messages.
pub(super) const SILENCE: &str =
    "[{ check = \"swap-none\", group = \"/batch/*\", reason = \"why\" }]";
/// Remedy for an incomplete entry.
pub(super) const EXAMPLE: &str =
    "write silence = [{ check = \"swap-none\", group = \"/batch/*\", reason = \"why\" }]";

#[derive(Deserialize)]
#[serde(remote = "Silence", deny_unknown_fields)]
struct Entry {
    #[serde(deserialize_with = "check")]
    check: String,
    #[serde(default, deserialize_with = "some_glob")]
    group: Option<Glob>,
    #[serde(deserialize_with = "reason")]
    reason: String,
}

pub(super) fn silences<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Silence>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Section {
        #[serde(default)]
        silence: Vec<Accepted>,
    }
    #[derive(Deserialize)]
    struct Accepted(#[serde(with = "Entry")] Silence);
    let entries = Section::deserialize(from)?.silence.into_iter();
    Ok(entries.map(|Accepted(silence)| silence).collect())
}

fn check<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    text(from, |id| {
        let known = find_check(id).map(|_| id.to_owned());
        known.ok_or_else(|| {
            let ids: Vec<&str> = CHECKS.iter().map(|check| check.id).collect();
            (format!("unknown check {id}"), did_you_mean(id, &ids))
        })
    })
}

fn some_glob<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Glob>, D::Error> {
    glob(from).map(Some)
}

fn reason<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let reason = String::deserialize(from)?.trim().to_owned();
    if reason.is_empty() {
        return Err(error(("an entry has no reason".into(), EXAMPLE.into())));
    }
    Ok(reason)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Settings;

    fn parse(text: &str) -> crate::error::Result<Settings> {
        Settings::parse(text, Path::new("/c"))
    }

    #[test]
    fn silences_are_read_with_and_without_a_group() {
        let text = "[doctor]\nsilence = [\n  { check = 'swap-none', reason = 'so decided' },\n  \
                    { check = 'limit-too-small', group = '/batch/*', reason = 'batch' },\n]\n";
        let silences = parse(text).unwrap().silences;
        assert_eq!(silences.len(), 2);
        assert_eq!(silences[0].check, "swap-none");
        assert_eq!(
            (silences[0].group.as_ref(), silences[0].reason.as_str()),
            (None, "so decided")
        );
        assert!(silences[1].group.as_ref().unwrap().matches("/batch/x"));
        assert_eq!(parse("").unwrap().silences, []);
    }
}
