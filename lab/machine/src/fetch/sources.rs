//! Determines which Debian archive this machine is configured to use.
//!
//! apt has two notations, one line per entry (`*.list`) and stanzas (`*.sources`, deb822). This module reads
//! both and writes one stanza for a wanted suite. The address and the key come from the machine's own entry,
//! never from this program. Pure: text in, text out.

/// One configured source: where it is, what it offers and who signs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    pub uris: Vec<String>,
    /// Suites, for example `bookworm`, `bookworm-updates`.
    pub suites: Vec<String>,
    /// Components, for example `main`.
    pub components: Vec<String>,
    /// Value of Signed-By: key files, or a key of several lines.
    pub signed_by: Option<String>,
}

/// Debian's release names, newest last, and its moving names.
const RELEASES: &str = "buster bullseye bookworm trixie forky duke sid oldoldstable oldstable \
    stable testing unstable";

/// Suffixes of the suites beside a release.
const POCKETS: &str = "-updates -security -backports -proposed-updates";

pub fn parse_list(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_list_line).collect()
}

fn parse_list_line(line: &str) -> Option<Source> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let rest = line.strip_prefix("deb")?;
    if !rest.starts_with([' ', '\t', '[']) {
        return None;
    }
    let rest = rest.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(after) => after.split_once(']')?,
        None => ("", rest),
    };
    let signed_by = options
        .split_whitespace()
        .filter_map(|option| option.split_once('='))
        .find(|(key, _)| key.eq_ignore_ascii_case("signed-by"))
        .map(|(_, value)| value.replace(',', " "));
    let mut words = rest.split_whitespace().map(str::to_owned);
    Some(Source {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        signed_by,
    })
}

/// Reads a `*.sources` file. Skips disabled stanzas and stanzas without binary packages.
pub fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            sources.extend(source_of(&fields));
            fields.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((key, value)) = line.split_once(':') {
            fields.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    sources
}

fn source_of(fields: &[(String, String)]) -> Option<Source> {
    let field = |key: &str| {
        fields
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    };
    let words = |key: &str| -> Vec<String> {
        field(key).map_or_else(Vec::new, |value| {
            value.split_whitespace().map(str::to_owned).collect()
        })
    };
    let disabled = field("enabled")
        .is_some_and(|value| ["no", "false", "0", "off", "without"].contains(&value.as_str()));
    let source = Source {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        signed_by: field("signed-by").cloned(),
    };
    let usable = !disabled
        && words("types").iter().any(|kind| kind == "deb")
        && !source.uris.is_empty()
        && !source.suites.is_empty();
    usable.then_some(source)
}

/// The source to use for `suite`: one that already lists it, else the archive that serves the same kind of
/// suite (security updates have an archive of their own). `None` when no Debian archive is configured.
pub fn source_for<'a>(sources: &'a [Source], suite: &str) -> Option<&'a Source> {
    let security = is_security(suite);
    sources
        .iter()
        .filter(|source| {
            source
                .components
                .iter()
                .any(|component| component == "main")
        })
        .filter(|source| {
            source
                .suites
                .iter()
                .any(|s| is_release(s) && is_security(s) == security)
        })
        .max_by_key(|source| {
            let listed = source.suites.iter().any(|listed| listed == suite);
            // Ties do not matter.
            (archive_likeness(source), listed)
        })
}

/// The stanza that adds `suites` of this source to apt.
pub fn stanza(source: &Source, suites: &[&str]) -> String {
    let signed_by = source
        .signed_by
        .as_ref()
        .map_or_else(String::new, |value| format!("Signed-By: {value}\n"));
    format!(
        "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\n{signed_by}",
        source.uris.join(" "),
        suites.join(" "),
    )
}

/// Other archives use Debian's release names too (database vendors, for example). Prefers a source signed
/// with Debian's own key, then one whose path ends in Debian's name.
fn archive_likeness(source: &Source) -> i32 {
    let key = match &source.signed_by {
        Some(value) if value.contains("debian-archive") => 2,
        Some(value) if value.contains('/') && !value.contains("BEGIN PGP") => -2,
        _ => 0,
    };
    let path = source.uris.iter().any(|uri| {
        let uri = uri.trim_end_matches('/');
        uri.ends_with("/debian") || uri.ends_with("/debian-security") || uri.starts_with("mirror")
    });
    key + i32::from(path)
}

fn is_release(suite: &str) -> bool {
    let suite = suite.split('/').next().unwrap_or_default();
    RELEASES.split(' ').any(|release| {
        let rest = suite.strip_prefix(release);
        rest.is_some_and(|rest| rest.is_empty() || POCKETS.split(' ').any(|pocket| pocket == rest))
    })
}

fn is_security(suite: &str) -> bool {
    suite.ends_with("-security")
}

#[cfg(test)]
mod tests;
