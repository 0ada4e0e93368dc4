//! A strict parser of the part of the `OpenMetrics` text format that the agent uses.

use std::collections::BTreeMap;

/// Samples by name and labels. Labels are sorted by name.
pub(crate) struct Metrics {
    /// The type of each family.
    pub(crate) kinds: BTreeMap<String, String>,
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

impl Metrics {
    /// Parses a text, and panics if it breaks the rules of the format.
    pub(crate) fn read(text: &str) -> Metrics {
        let body = text.strip_suffix("# EOF\n").expect("the end mark");
        let mut kinds = BTreeMap::new();
        let mut samples = BTreeMap::new();
        let mut family = String::new();
        for line in body.lines() {
            if let Some(about) = line.strip_prefix("# ") {
                let (what, about) = about.split_once(' ').expect("a name");
                let (name, about) = about.split_once(' ').expect("something about it");
                match what {
                    "TYPE" => {
                        name.clone_into(&mut family);
                        let before = kinds.insert(family.clone(), about.to_owned());
                        assert!(before.is_none(), "{name} comes twice");
                    }
                    "UNIT" => assert!(name.ends_with(&format!("_{about}")), "{line}"),
                    "HELP" => assert!(!about.is_empty(), "{line}"),
                    _ => panic!("{line}"),
                }
                assert_eq!(name, family, "{line}");
                continue;
            }
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').expect("an end")),
                None => (series, ""),
            };
            let suffix = match kinds[&family].as_str() {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            assert_eq!(name, format!("{family}{suffix}"), "{line}");
            let value = match value {
                "+Inf" => f64::INFINITY,
                number => number.parse().expect("a number"),
            };
            let series = (name.to_owned(), read_labels(labels));
            let before = samples.insert(series, value);
            assert!(before.is_none(), "{line} comes twice");
        }
        Metrics { kinds, samples }
    }

    /// The value of the only series of this name that has at least these labels; `None`: it has no sample.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut found = self.samples.iter().filter(|((n, has), _)| {
            n == name
                && labels
                    .iter()
                    .all(|&(label, value)| has.get(label).is_some_and(|v| v == value))
        });
        let value = found.next().map(|(_, value)| *value);
        assert!(
            found.next().is_none(),
            "more than one {name} with {labels:?}"
        );
        value
    }

    /// The number of samples with this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.samples.keys().filter(|(n, _)| n == name).count()
    }

    /// The labels of the only sample with this name.
    pub(crate) fn labels(&self, name: &str) -> &BTreeMap<String, String> {
        let mut found = self.samples.keys().filter(|(n, _)| n == name);
        let (_, labels) = found.next().expect("a sample");
        assert!(found.next().is_none(), "more than one {name}");
        labels
    }
}

/// Parses labels `name="value",..` without braces. Quotes, backslashes and line breaks in values are escaped.
fn read_labels(mut text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").expect("a label");
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().expect("a closing quote") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().expect("an escaped character") {
                    (_, 'n') => '\n',
                    (_, c) => c,
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{text}");
        let rest = &rest[end + 1..];
        text = rest.strip_prefix(',').unwrap_or(rest);
    }
    labels
}
