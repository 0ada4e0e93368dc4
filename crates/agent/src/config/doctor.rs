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
//! `check` must be the id of one, `group` is a path or glob and may be left out, `reason` may not:
//! who comes later must be able to tell whether it still holds.

use std::collections::BTreeMap;

use justitia_discover::Glob;
use justitia_doctor::{find_check, Silence, CHECKS};
use serde::Deserialize;
use toml::Spanned;

use super::{did_you_mean, Source, GLOB_REMEDY};
use crate::error::Result;

type Table = BTreeMap<Spanned<String>, Spanned<toml::Value>>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Top {
    doctor: Table,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TopOfLists {
    doctor: Lists,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Lists {
    silence: Vec<Spanned<Table>>,
}

const EXAMPLE: &str =
    "write silence = [{ check = \"swap-none\", group = \"/batch/*\", reason = \"why\" }]";

impl Source<'_> {
    /// Reads the section; the keys first, so that a misspelt one is named.
    pub(super) fn silences(&self) -> Result<Vec<Silence>> {
        let top: Top = self.toml()?;
        for (key, value) in &top.doctor {
            if key.get_ref() != "silence" {
                return Err(self.unknown_key(key, key.get_ref(), &["silence"]));
            }
            let tables = value.get_ref().as_array();
            if !tables.is_some_and(|tables| tables.iter().all(toml::Value::is_table)) {
                let cause = "silence is not a list of tables";
                return Err(self.error(&value.span(), cause, EXAMPLE));
            }
        }
        let lists: TopOfLists = self.toml()?;
        let silences = lists.doctor.silence.iter();
        silences.map(|silence| self.silence(silence)).collect()
    }

    fn silence(&self, entry: &Spanned<Table>) -> Result<Silence> {
        let (mut check, mut group, mut reason) = (None, None, None);
        for (key, value) in entry.get_ref() {
            let text: String = self.typed(key, value, "a text in quotes")?;
            let span = value.span();
            match key.get_ref().as_str() {
                "check" if find_check(&text).is_none() => {
                    let ids: Vec<&str> = CHECKS.iter().map(|check| check.id).collect();
                    let cause = format!("unknown check {text}");
                    return Err(self.error(&span, &cause, &did_you_mean(&text, &ids)));
                }
                "check" => check = Some(text),
                "group" => {
                    let glob = Glob::new(&text);
                    let glob =
                        glob.map_err(|error| self.error(&span, &error.to_string(), GLOB_REMEDY));
                    group = Some(glob?);
                }
                "reason" => reason = Some(text.trim().to_owned()),
                unknown => {
                    return Err(self.unknown_key(key, unknown, &["check", "group", "reason"]));
                }
            }
        }
        let missing = |key: &str| {
            let cause = format!("an entry of silence has no {key}");
            self.error(&entry.span(), &cause, EXAMPLE)
        };
        Ok(Silence {
            check: check.ok_or_else(|| missing("check"))?,
            group,
            reason: reason
                .filter(|reason| !reason.is_empty())
                .ok_or_else(|| missing("reason"))?,
        })
    }
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

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_what_there_is() {
        for (text, cause, remedy) in [
            (
                "[doctor]\nsilences = []\n",
                "/c:2: unknown key silences",
                "mean silence?",
            ),
            (
                "[doctor]\nsilence = 'all'\n",
                "/c:2: silence is not a list",
                "reason =",
            ),
            (
                "[doctor]\nsilence = [\n{ check = 'swap-off', reason = 'x' }]\n",
                "/c:3: unknown check swap-off",
                "mean swap-none?",
            ),
            (
                "[doctor]\nsilence = [\n\n{ check = 'swap-none' }]\n",
                "/c:4: an entry of silence has no reason",
                "reason =",
            ),
            (
                "[doctor]\nsilence = [{ check = 'swap-none', reason = ' ' }]\n",
                "/c:2: an entry of silence has no reason",
                "reason =",
            ),
            (
                "[doctor]\nsilence = [{ reason = 'x' }]\n",
                "has no check",
                "check =",
            ),
            (
                "[doctor]\nsilence = [{ check = 'swap-none', why = 'x' }]\n",
                "/c:2: unknown key why",
                "check, group, reason",
            ),
            (
                "[doctor]\nsilence = [{ check = 'swap-none', group = '/a[1]', reason = 'x' }]\n",
                "/c:2: glob \"/a[1]\"",
                "/app/*",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.cause.contains(cause), "{text}: {}", error.cause);
            assert!(error.remedy.contains(remedy), "{text}: {}", error.remedy);
        }
    }
}
