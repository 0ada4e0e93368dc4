//! Patterns of cgroup paths: `*` and `?` within a path component, `**` as a component for any
//! number of components (at the end: at least one). `/app/*` matches `/app/db`, not `/app/db/x`.

use std::fmt;

/// A pattern of cgroup paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    parts: Vec<String>,
}

/// A pattern that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("glob {glob:?}: {why}")]
pub struct GlobError {
    pub glob: String,
    /// The error in the pattern.
    pub why: &'static str,
}

impl Glob {
    /// Parses a pattern. The slash at its beginning may be left out.
    pub fn new(text: &str) -> Result<Glob, GlobError> {
        let wrong = |why| GlobError {
            glob: text.to_owned(),
            why,
        };
        let parts: Vec<String> = parts_of(text).map(str::to_owned).collect();
        if parts.is_empty() {
            return Err(wrong("names no cgroup; the root itself cannot be managed"));
        }
        for part in &parts {
            if part != "**" && part.contains("**") {
                return Err(wrong("** must stand alone between slashes"));
            }
            if part == "." || part == ".." {
                return Err(wrong("a cgroup path has no . or .. in it"));
            }
            if part.contains(['[', ']', '{', '}']) {
                return Err(wrong("knows *, ? and ** only, no brackets or braces"));
            }
        }
        Ok(Glob {
            text: text.to_owned(),
            parts,
        })
    }

    pub fn matches(&self, path: &str) -> bool {
        let mut parts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        if parts.last() == Some(&"**") {
            // At the end of a pattern, `**` stands for at least one component.
            parts.insert(parts.len() - 1, "*");
        }
        let path: Vec<&str> = parts_of(path).collect();
        let fits = |part: &&str, component: &&str| component_matches(part, component);
        wildcard(&parts, &path, |part| *part == "**", fits)
    }

    /// True if something below a path might match.
    pub fn may_match_below(&self, path: &str) -> bool {
        let mut parts = self.parts.iter();
        for component in parts_of(path) {
            match parts.next() {
                None => return false,
                Some(part) if part == "**" => return true,
                Some(part) if !component_matches(part, component) => return false,
                Some(_) => {}
            }
        }
        parts.next().is_some()
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

fn parts_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// Matches `*` and `?` within one component, bytewise.
fn component_matches(pattern: &str, text: &str) -> bool {
    let fits = |one: &u8, byte: &u8| *one == b'?' || one == byte;
    wildcard(
        pattern.as_bytes(),
        text.as_bytes(),
        |one| *one == b'*',
        fits,
    )
}

/// Whether a pattern matches all of a text, where a star stands for any number of items. Greedy, with one
/// point of return: each star tries again one item later when the rest does not match. The time is the product
/// of the lengths, whatever the pattern.
fn wildcard<P, T>(
    pattern: &[P],
    text: &[T],
    is_star: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() || p < pattern.len() {
        match (pattern.get(p), text.get(t)) {
            (Some(one), _) if is_star(one) => {
                retry = Some((p, t + 1));
                p += 1;
            }
            (Some(one), Some(item)) if fits(one, item) => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((star, next)) if next <= text.len() => {
                    p = star + 1;
                    t = next;
                    retry = Some((star, next + 1));
                }
                _ => return false,
            },
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn yes(glob: &str, path: &str) -> bool {
        Glob::new(glob).unwrap().matches(path)
    }

    #[test]
    fn a_star_stays_within_its_component() {
        assert!(yes("/app/*", "/app/db") && yes("app/*", "/app/db"));
        assert!(!yes("/app/*", "/app/db/x") && !yes("/app/*", "/app"));
        assert!(yes("/a*b/c?", "/axxb/cd") && !yes("/a*b", "/axbc"));
        assert!(yes("/*-*.scope", "/a-b-c.scope"));
    }

    #[test]
    fn two_stars_cross_components() {
        assert!(yes("/**/db", "/db") && yes("/**/db", "/a/b/db"));
        assert!(yes("/a/**/z", "/a/z") && yes("/a/**/y/**/z", "/a/1/y/2/3/z"));
        assert!(yes("/app/**", "/app/x/y") && !yes("/app/**", "/app"));
        assert!(!yes("/a/**/z", "/a/z/y"));
    }

    #[test]
    fn a_pattern_that_cannot_be_meant_is_refused() {
        for wrong in ["", "/", "/a**b", "/a/../b", "/[ab]", "/{a,b}"] {
            let error = Glob::new(wrong).unwrap_err();
            assert!(error.to_string().contains(&format!("{wrong:?}")));
        }
    }

    #[test]
    fn looking_below_is_worth_it_only_where_a_match_can_be() {
        let below = |glob: &str, path: &str| Glob::new(glob).unwrap().may_match_below(path);
        assert!(below("/app/*", "/") && below("/app/*", "/app"));
        assert!(!below("/app/*", "/app/db") && !below("/app/*", "/web"));
        assert!(below("/a/**", "/a/b/c") && below("/**/db", "/x/y"));
    }

    fn component() -> impl Strategy<Value = String> {
        "[ab]{1,3}"
    }

    /// The plain definition: exponential, but obviously right.
    fn by_definition(parts: &[String], path: &[&str]) -> bool {
        match (parts.split_first(), path.split_first()) {
            (None, None) => true,
            (Some((part, [])), Some(_)) if part == "**" => true,
            (Some((part, rest)), _) if part == "**" && !rest.is_empty() => {
                (0..=path.len()).any(|skip| by_definition(rest, &path[skip..]))
            }
            (Some((part, rest)), Some((first, tail))) => {
                simple(part.as_bytes(), first.as_bytes()) && by_definition(rest, tail)
            }
            _ => false,
        }
    }

    fn simple(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| simple(rest, &text[skip..])),
            Some((byte, rest)) => text.split_first().is_some_and(|(first, tail)| {
                (*byte == b'?' || byte == first) && simple(rest, tail)
            }),
        }
    }

    proptest! {
        #[test]
        fn the_matcher_agrees_with_the_definition(
            parts in proptest::collection::vec(
                prop_oneof![Just("**".to_owned()), "[ab?]{0,2}[*]?[ab]{0,2}"],
                1..5,
            ),
            path in proptest::collection::vec(component(), 1..6),
        ) {
            let text = format!("/{}", parts.join("/"));
            let Ok(glob) = Glob::new(&text) else { return Ok(()) };
            let path_text = format!("/{}", path.join("/"));
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            prop_assert_eq!(glob.matches(&path_text), by_definition(&glob.parts, &path));
            if glob.matches(&path_text) {
                for end in 0..path.len() {
                    let above = format!("/{}", path[..end].join("/"));
                    prop_assert!(glob.may_match_below(&above), "{above}");
                }
            }
        }
    }
}
