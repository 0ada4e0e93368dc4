//! Knobs that were left changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// Path relative to the cgroup mount -> value.
pub type Knobs = BTreeMap<String, String>;

/// A knob whose value differs between two readings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnobDifference {
    /// Path relative to the cgroup mount.
    pub knob: String,
    /// Value before the agent started; `None` if the knob did not exist.
    pub before: Option<String>,
    /// Value after the agent ended; `None` if the knob did not exist.
    pub after: Option<String>,
}

impl KnobDifference {
    /// Knobs that differ, sorted by path.
    pub fn between(before: &Knobs, after: &Knobs) -> Vec<Self> {
        let mut knobs: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        knobs.retain(|knob| before.get(*knob) != after.get(*knob));
        let difference = |knob: &String| Self {
            knob: knob.clone(),
            before: before.get(knob).cloned(),
            after: after.get(knob).cloned(),
        };
        knobs.into_iter().map(difference).collect()
    }
}

impl fmt::Display for KnobDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after] =
            [&self.before, &self.after].map(|v| v.as_deref().unwrap_or("(absent)"));
        write!(f, "{}: {before:?} -> {after:?}", self.knob)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::map;

    #[test]
    fn a_changed_a_new_and_a_lost_knob_are_all_differences() {
        let found = KnobDifference::between(
            &map([
                ("a/memory.low", "0"),
                ("a/memory.high", "max"),
                ("b/memory.low", "0"),
            ]),
            &map([
                ("a/memory.low", "5"),
                ("a/memory.high", "max"),
                ("c/memory.low", "0"),
            ]),
        );
        let names: Vec<&str> = found.iter().map(|d| d.knob.as_str()).collect();
        assert_eq!(names, ["a/memory.low", "b/memory.low", "c/memory.low"]);
        assert_eq!(found[1].after, None);
        assert_eq!(found[2].before, None);
        assert_eq!(found[0].to_string(), "a/memory.low: \"0\" -> \"5\"");
        assert_eq!(found[1].to_string(), "b/memory.low: \"0\" -> \"(absent)\"");
    }
}
