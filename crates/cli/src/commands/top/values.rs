//! A row of the table: its numbers and cells. A name that does not fit its cell is cut.
//!
//! SHARE and IDEAL are a group's parts of the contending groups' bandwidth and weight, the same groups as for
//! PV and share error. A group that does not contend has neither.

use justitia_policy::color::Color;
use justitia_report::status::{source_words, GroupStatus, Report};
use ratatui::style::Style;

use super::bars;
use super::columns::{Column, Field, Shown, CACHE_TEXT};
use super::format;
use super::theme::{letter, Theme, STRONG};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Path of the group, by which the selection follows it.
    pub(crate) path: String,
    /// Text of the first column; in the tree, the branch lines and the last component of the path.
    pub(crate) label: String,
    /// ID of a managed group; `None`: an unmanaged ancestor of managed groups.
    pub(crate) id: Option<u64>,
    pub(crate) values: Values,
}

/// The values of a row. Sizes are in bytes, rates per second.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Values {
    /// The number of each column, in the order of [`Field`].
    pub(crate) numbers: [Option<f64>; Field::ALL.len()],
    /// Source of the weight.
    pub(crate) source: Option<&'static str>,
    /// The page-cache threshold in force.
    pub(crate) threshold: Option<f64>,
    /// Part of the contenders' weight.
    pub(crate) ideal: Option<f64>,
    pub(crate) color: Option<Color>,
}

/// The sort key of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Key<'a> {
    /// In descending order; unknown numbers are last in both directions.
    Number(Option<f64>),
    /// In alphabetical order.
    Text(&'a str),
}

/// The numbers of all groups of a report, in the report's order.
pub(crate) fn values(report: &Report) -> Vec<Values> {
    let contends = |group: &&GroupStatus| group.verdict.as_ref().is_some_and(|v| v.contending);
    let contenders = || report.groups.iter().filter(contends);
    let verdicts = || contenders().filter_map(|group| group.verdict.as_ref());
    let weight: f64 = verdicts().map(|v| v.proportion).sum();
    // One unknown bandwidth makes all shares unknown.
    let moved: Option<f64> = verdicts().map(|v| v.bytes_per_s).sum();
    let of = |part: Option<f64>, whole: Option<f64>| Some(part? / whole.filter(|w| *w > 0.0)?);
    let all = report.groups.iter().map(|group| {
        let mut values = Values::of(group);
        if let Some(verdict) = group.verdict.as_ref().filter(|v| v.contending) {
            values.set_share(of(verdict.bytes_per_s, moved));
            values.ideal = of(Some(verdict.proportion), Some(weight));
        }
        values
    });
    all.collect()
}

impl Values {
    fn of(group: &GroupStatus) -> Values {
        let verdict = group.verdict.as_ref();
        Values {
            numbers: Field::ALL.map(|field| (field.about().number)(group)),
            source: Some(source_words(group.weight_source)),
            threshold: verdict.map(|v| v.threshold_bytes as f64),
            ideal: None,
            color: verdict.map(|v| v.color),
        }
    }

    /// The number of a column.
    pub(crate) fn number(&self, field: Field) -> Option<f64> {
        self.numbers[field as usize]
    }

    /// The sort key of a column; `path` is the group's.
    pub(crate) fn key<'a>(&'a self, field: Field, path: &'a str) -> Key<'a> {
        match field.about().shown {
            Shown::Text if field == Field::Group => Key::Text(path),
            Shown::Text => Key::Text(self.source.unwrap_or("")),
            Shown::Drawn | Shown::Words(_) => Key::Number(self.number(field)),
        }
    }

    /// Sets the part of the contenders' bandwidth.
    fn set_share(&mut self, share: Option<f64>) {
        for field in [Field::Share, Field::ShareBar] {
            self.numbers[field as usize] = share;
        }
    }

    /// These values, and the `other` ones where these are unknown.
    pub(crate) fn or(&self, other: &Values) -> Values {
        let mut values = self.clone();
        for (number, other) in values.numbers.iter_mut().zip(other.numbers) {
            *number = number.or(other);
        }
        values.threshold = values.threshold.or(other.threshold);
        values.ideal = values.ideal.or(other.ideal);
        values
    }

    /// The sums over groups, for values that can be added. One unknown part makes a sum unknown.
    pub(crate) fn sum<'a>(parts: &(impl Iterator<Item = &'a Values> + Clone)) -> Values {
        use Field::{Cache, Entitled, Rate, Reclaim, Refaults, Throttled};
        let mut sum = Values {
            threshold: parts.clone().map(|v| v.threshold).sum(),
            ..Values::default()
        };
        for field in [Entitled, Cache, Rate, Refaults, Reclaim, Throttled] {
            sum.numbers[field as usize] = parts.clone().map(|v| v.number(field)).sum();
        }
        // Only contenders have shares.
        let contenders = || parts.clone().filter(|v| v.ideal.is_some());
        if contenders().next().is_some() {
            sum.set_share(contenders().map(|v| v.number(Field::Share)).sum());
            sum.ideal = contenders().map(|v| v.ideal).sum();
        }
        sum
    }
}

/// A cell, padded to the column's width. `top_share` is the share at which share bars are full.
pub(crate) fn cell(row: &Row, column: Column, theme: Theme, top_share: f64) -> (String, Style) {
    let values = &row.values;
    let width = column.width;
    let plain = Style::new();
    let color = values.color.map_or(plain, |color| theme.color(color));
    let text = match (column.field, column.field.about().shown) {
        (Field::Group, _) => name(row, width, theme),
        (Field::Color, _) => letter(values.color).to_owned(),
        (Field::Cache, _) => cache(values, width, theme),
        (Field::Share, _) => share(values),
        (Field::ShareBar, _) => share_bar(values, width, theme, top_share),
        (field, Shown::Words(words)) => words(values.number(field)),
        (_, Shown::Text | Shown::Drawn) => values.source.unwrap_or("-").to_owned(),
    };
    let style = match column.field {
        Field::Color => color.patch(STRONG),
        Field::OfIdeal => color,
        _ => plain,
    };
    let text = format::cut_end(&text, width, theme.ellipsis());
    (format::pad(&text, width, column.field.right()), style)
}

/// Characters that begin a row below another one in the tree.
const BRANCHES: [char; 6] = ['├', '└', '│', '|', '`', ' '];

/// Cuts a row of the tree that begins with branch lines at its end, and any other name at its front: the ends of
/// paths and of pods' names differ.
fn name(row: &Row, width: usize, theme: Theme) -> String {
    if row.label.starts_with(BRANCHES) {
        format::cut_end(&row.label, width, theme.ellipsis())
    } else {
        format::cut_front(&row.label, width, theme.ellipsis())
    }
}

pub(crate) fn cache(values: &Values, width: usize, theme: Theme) -> String {
    let (file, threshold) = (values.number(Field::Cache), values.threshold);
    let share = file
        .zip(threshold)
        .map(|(file, threshold)| match threshold {
            // Any page cache is above a threshold of zero.
            0.0 => (2.0 * file).min(2.0),
            _ => file / threshold,
        });
    let text = format!("{}/{}", format::limit(file), format::limit(threshold));
    let bar = bars::bar(share, width.saturating_sub(CACHE_TEXT + 1), theme.unicode);
    format!("{bar} {}", format::pad(&text, CACHE_TEXT, true))
}

fn share(values: &Values) -> String {
    let share = values.number(Field::Share);
    if share.is_none() && values.ideal.is_none() {
        return "-".into();
    }
    let percent = format::percent(share);
    let share = percent.trim_end_matches('%');
    format!("{share}/{}", format::percent(values.ideal))
}

fn share_bar(values: &Values, width: usize, theme: Theme, top: f64) -> String {
    let of_top = |share: Option<f64>| share.map(|share| share / top.max(f64::MIN_POSITIVE));
    let (share, ideal) = (of_top(values.number(Field::Share)), of_top(values.ideal));
    bars::bar_with_mark(share, ideal, width, theme.unicode)
}
