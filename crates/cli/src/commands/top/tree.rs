//! Arranges the groups as a tree of their paths.
//!
//! Managed groups are below their ancestors. An ancestor shows the sums of the groups below it; a managed one
//! shows its own values where they are known, such as its weight and its page cache. A
//! chain of unmanaged ancestors with one child each is one line.

use std::collections::BTreeMap;

use justitia_report::status::Report;
use justitia_report::text::printable;

use super::rows::{wanted, Sort};
use super::values::{values, Row, Values};

/// Lines before a name: of a node that has a later sibling, of the last node, and below each of the two.
const UNICODE: [&str; 4] = ["├ ", "└ ", "│ ", "  "];
const ASCII: [&str; 4] = ["|- ", "`- ", "|  ", "   "];

/// A component of a path, and the nodes below it.
#[derive(Debug, Default)]
struct Node<'a> {
    path: String,
    name: String,
    /// The managed group; `None`: an unmanaged ancestor.
    group: Option<(u64, &'a Values)>,
    values: Values,
    below: BTreeMap<&'a str, Node<'a>>,
}

/// The filtered groups and their ancestors. Siblings are in the order of `sort`.
pub(crate) fn tree(report: &Report, filter: &str, sort: Sort, unicode: bool) -> Vec<Row> {
    let values = values(report);
    let mut root = Node::default();
    for (group, values) in report.groups.iter().zip(&values) {
        if wanted(group, filter) {
            root.insert(&group.path, (group.id, values));
        }
    }
    root.add_up();
    let mut rows = Vec::new();
    // The root is shown only if it is managed.
    if let Some((id, values)) = root.group {
        rows.push(Row {
            path: "/".into(),
            label: "/".into(),
            id: Some(id),
            values: values.clone(),
        });
    }
    push(root.below, "", true, sort, unicode, &mut rows);
    rows
}

impl<'a> Node<'a> {
    fn insert(&mut self, path: &'a str, group: (u64, &'a Values)) {
        let mut node = self;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let above = &node.path;
            let fresh = Node {
                path: format!("{above}/{name}"),
                name: name.to_owned(),
                ..Node::default()
            };
            node = node.below.entry(name).or_insert(fresh);
        }
        node.group = Some(group);
    }

    /// Computes the numbers of every node: a managed group has its own, an ancestor the sums. A managed
    /// ancestor, such as a pod, has no verdict: what it lacks are the sums.
    fn add_up(&mut self) {
        for node in self.below.values_mut() {
            node.add_up();
        }
        let sum = || Values::sum(&self.below.values().map(|node| &node.values));
        self.values = match self.group {
            Some((_, own)) if self.below.is_empty() => own.clone(),
            Some((_, own)) => own.or(&sum()),
            None => sum(),
        };
    }

    /// Merges chains of unmanaged ancestors with a single child.
    fn compressed(mut self) -> Node<'a> {
        while self.group.is_none() && self.below.len() == 1 {
            let Some((_, mut only)) = self.below.pop_first() else {
                break;
            };
            only.name = format!("{}/{}", self.name, only.name);
            self = only;
        }
        self
    }
}

fn push(
    nodes: BTreeMap<&str, Node>,
    indent: &str,
    top: bool,
    sort: Sort,
    unicode: bool,
    rows: &mut Vec<Row>,
) {
    let [branch, corner, stem, blank] = if unicode { UNICODE } else { ASCII };
    let mut nodes: Vec<Node> = nodes.into_values().map(Node::compressed).collect();
    nodes.sort_by(|a, b| sort.compare((&a.path, &a.values), (&b.path, &b.values)));
    let count = nodes.len();
    for (at, node) in nodes.into_iter().enumerate() {
        let last = at + 1 == count;
        let name = printable(&node.name).into_owned();
        let (label, deeper) = match (top, last) {
            (true, _) => (format!("/{name}"), String::new()),
            (false, false) => (format!("{indent}{branch}{name}"), format!("{indent}{stem}")),
            (false, true) => (
                format!("{indent}{corner}{name}"),
                format!("{indent}{blank}"),
            ),
        };
        rows.push(Row {
            path: node.path,
            label,
            id: node.group.map(|(id, _)| id),
            values: node.values,
        });
        push(node.below, &deeper, false, sort, unicode, rows);
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::Field;
    use super::super::tests::{group, report};
    use super::*;
    use justitia_report::status::Names;

    const BY_NAME: Sort = Sort::by(Field::Group);

    fn labels(paths: &[&str], filter: &str) -> Vec<String> {
        let groups = paths.iter().map(|path| group(path, 100)).collect();
        let rows = tree(&report(groups), filter, BY_NAME, true);
        rows.into_iter().map(|row| row.label).collect()
    }

    #[test]
    fn groups_hang_below_their_ancestors_and_lone_ancestors_are_one_line() {
        let paths = ["/k/pods/a/x", "/k/pods/a/y", "/k/pods/b/z", "/vm"];
        let expected = ["/k/pods", "├ a", "│ ├ x", "│ └ y", "└ b/z", "/vm"];
        assert_eq!(labels(&paths, ""), expected);
    }

    #[test]
    fn a_managed_ancestor_has_a_line_of_its_own() {
        assert_eq!(labels(&["/a", "/a/b"], ""), ["/a", "└ b"]);
        assert_eq!(labels(&["/", "/a"], ""), ["/", "/a"]);
    }

    #[test]
    fn a_filter_keeps_the_ancestors_of_what_it_finds() {
        let paths = ["/k/a/x", "/k/b/y", "/k/b/z"];
        assert_eq!(labels(&paths, "b/"), ["/k/b", "├ y", "└ z"]);
    }

    #[test]
    fn a_filter_finds_the_names_of_the_list() {
        let mut shop = group("/k/3f1c", 100);
        shop.names = Some(Names {
            kind: "container".into(),
            name: "shop".into(),
            ..Names::default()
        });
        let rows = tree(
            &report(vec![shop, group("/k/other", 100)]),
            "SHOP",
            BY_NAME,
            true,
        );
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].path, "/k/3f1c");
    }

    #[test]
    fn an_ancestor_shows_the_sum_of_what_is_below_it() {
        let groups = vec![group("/k/a", 100), group("/k/b", 300)];
        let rows = tree(&report(groups), "", BY_NAME, true);
        let rate = |at: usize| rows[at].values.number(Field::Rate).unwrap();
        assert_eq!(
            (rows[0].id, rows[0].values.number(Field::Weight)),
            (None, None)
        );
        assert!((rate(0) - rate(1) - rate(2)).abs() < 1.0);
    }

    #[test]
    fn a_managed_ancestor_shows_its_own_page_cache_and_the_bandwidth_below_it() {
        let mut groups = vec![
            group("/k/pod", 300),
            group("/k/pod/a", 100),
            group("/k/pod/b", 200),
        ];
        groups[0].verdict = None;
        groups.push(group("/k/other", 100));
        let rows = tree(&report(groups), "", BY_NAME, true);
        let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["/k", "├ other", "└ pod", "  ├ a", "  └ b"]);
        let number = |at: usize, field| rows[at].values.number(field).unwrap();
        assert!((number(2, Field::Rate) - 300.0 * 3e4).abs() < 1.0);
        assert!((number(0, Field::Rate) - 400.0 * 3e4).abs() < 1.0);
        assert!((number(2, Field::Weight) - 300.0).abs() < 1e-9);
        assert!((number(2, Field::Low) - f64::from(300 << 20)).abs() < 1.0);
        let own = f64::from(300 << 20) * 0.75;
        assert!((number(2, Field::Cache) - own).abs() < 1.0);
        let below = number(3, Field::Share) + number(4, Field::Share);
        assert!((number(2, Field::Share) - below).abs() < 1e-9);
    }

    #[test]
    fn siblings_are_sorted_and_stay_with_their_parent() {
        let mut groups = vec![group("/k/a", 100), group("/k/b", 300), group("/z", 1)];
        groups[2].verdict.as_mut().unwrap().bytes_per_s = Some(9e9);
        let rows = tree(&report(groups), "", Sort::by(Field::Rate), true);
        let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["/z", "/k", "├ b", "└ a"]);
    }
}
