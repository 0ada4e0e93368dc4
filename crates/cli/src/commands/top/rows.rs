//! Makes rows from a report: filters and sorts the groups.

use std::cmp::Ordering;

use justitia_policy::color::Color;
use justitia_report::status::{GroupStatus, Report};
use justitia_report::text::printable;

use super::columns::Field;
use super::values::{values, Key, Row, Values};

/// The sort order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sort {
    pub(crate) field: Field,
    pub(crate) reverse: bool,
}

impl Sort {
    /// Numbers in descending order, texts from A to Z.
    pub(crate) const fn by(field: Field) -> Sort {
        Sort {
            field,
            reverse: false,
        }
    }

    /// Compares two rows; paths break ties.
    pub(crate) fn compare(self, a: (&str, &Values), b: (&str, &Values)) -> Ordering {
        let turn = |order: Ordering| {
            if self.reverse {
                order.reverse()
            } else {
                order
            }
        };
        let order = match (a.1.key(self.field, a.0), b.1.key(self.field, b.0)) {
            (Key::Number(Some(a)), Key::Number(Some(b))) => turn(b.total_cmp(&a)),
            (Key::Number(Some(_)), _) => Ordering::Less,
            (_, Key::Number(Some(_))) => Ordering::Greater,
            (Key::Text(a), Key::Text(b)) => turn(a.cmp(b)),
            _ => Ordering::Equal,
        };
        order.then_with(|| a.0.cmp(b.0))
    }
}

/// True if a group's path or label contains the filter, ignoring case.
pub(crate) fn wanted(group: &GroupStatus, filter: &str) -> bool {
    let filter = filter.to_lowercase();
    [&group.path, group.label()]
        .iter()
        .any(|name| name.to_lowercase().contains(&filter))
}

/// The groups as a flat list.
pub(crate) fn list(report: &Report, filter: &str, sort: Sort) -> Vec<Row> {
    let groups = report.groups.iter().zip(values(report));
    let rows = groups.filter(|(group, _)| wanted(group, filter));
    let rows = rows.map(|(group, values)| Row {
        path: group.path.clone(),
        label: printable(group.label()).into_owned(),
        id: Some(group.id),
        values,
    });
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|a, b| sort.compare((&a.path, &a.values), (&b.path, &b.values)));
    rows
}

/// The number of groups of each color, green first.
pub(crate) fn colors(report: &Report) -> [(Color, usize); 3] {
    [Color::Green, Color::Yellow, Color::Red].map(|color| {
        let verdicts = report
            .groups
            .iter()
            .filter_map(|group| group.verdict.as_ref());
        (color, verdicts.filter(|v| v.color == color).count())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{group, report};
    use super::*;

    const BY_RATE: Sort = Sort::by(Field::Rate);

    fn three() -> Report {
        let mut groups = vec![
            group("/app/slow", 100),
            group("/app/Fast", 300),
            group("/app/new", 100),
        ];
        for (group, rate) in groups.iter_mut().zip([Some(1e6), Some(7e6), None]) {
            let verdict = group.verdict.as_mut().unwrap();
            verdict.bytes_per_s = rate;
            verdict.contending = rate.is_some();
        }
        report(groups)
    }

    fn paths(rows: &[Row]) -> Vec<&str> {
        rows.iter().map(|row| row.path.as_str()).collect()
    }

    #[test]
    fn unknown_comes_last_in_either_direction() {
        let down = list(&three(), "", BY_RATE);
        assert_eq!(paths(&down), ["/app/Fast", "/app/slow", "/app/new"]);
        let up = Sort {
            reverse: true,
            ..BY_RATE
        };
        let up = list(&three(), "", up);
        assert_eq!(paths(&up), ["/app/slow", "/app/Fast", "/app/new"]);
    }

    #[test]
    fn every_column_sorts_every_report_the_same_way_twice() {
        let mut backwards = three();
        backwards.groups.reverse();
        for field in Field::ALL {
            for reverse in [false, true] {
                let sort = Sort { field, reverse };
                assert_eq!(
                    paths(&list(&three(), "", sort)),
                    paths(&list(&backwards, "", sort)),
                    "{field:?}"
                );
            }
        }
    }

    #[test]
    fn a_filter_ignores_case_and_finds_paths_and_names() {
        assert_eq!(paths(&list(&three(), "fast", BY_RATE)), ["/app/Fast"]);
        assert!(list(&three(), "nobody", BY_RATE).is_empty());
    }

    #[test]
    fn shares_are_among_those_who_contend() {
        let rows = list(&three(), "", BY_RATE);
        let shares: Vec<_> = rows
            .iter()
            .map(|row| row.values.number(Field::Share))
            .collect();
        assert_eq!(shares, [Some(0.875), Some(0.125), None]);
        let ideal: f64 = rows.iter().filter_map(|row| row.values.ideal).sum();
        assert!((ideal - 1.0).abs() < 1e-9, "{ideal}");
        assert_eq!(rows[2].values.ideal, None);
    }

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown() {
        let parts = values(&three());
        let sum = Values::sum(&parts.iter());
        assert_eq!(sum.number(Field::Rate), None);
        assert!(sum.number(Field::Cache).is_some());
        assert_eq!(sum.number(Field::Share), Some(1.0));
        let rest = Values::sum(&parts[2..].iter());
        assert_eq!(rest.number(Field::Share), None);
    }
}
