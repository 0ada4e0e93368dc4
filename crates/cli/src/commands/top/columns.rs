//! The columns: their heads, cells, sort keys and layout.
//!
//! On a narrow screen columns of low rank are shown first. Nothing is wrapped: columns that do not fit are
//! left out, and names are cut.

use justitia_policy::color::Color;
use justitia_policy::plan::Knob;
use ratatui::style::Style;

use super::bars;
use super::format;
use super::theme::{letter, strong, Theme};
use super::values::{Key, Row, Values};

/// A column of the table. [`Field::words`] describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Group,
    /// The letter of its color.
    Color,
    Weight,
    /// Page cache it is entitled to.
    Entitled,
    /// Page cache and threshold, with a bar.
    Cache,
    /// Bandwidth.
    Rate,
    /// Share of the contenders' bandwidth, and share of their weight.
    Share,
    /// [`Field::Share`] as a bar.
    ShareBar,
    /// Bandwidth over its weighted share.
    OfIdeal,
    /// Hit ratio.
    Hits,
    /// Refaults per second.
    Refaults,
    /// Share of the period in which it waited.
    Stall,
    /// The feedback's gain.
    Gain,
    /// Time asleep above `memory.high`.
    Throttled,
    /// Time in direct reclaim.
    Reclaim,
    /// `memory.low`.
    Low,
    /// `memory.high`.
    High,
    /// Page cache held for others.
    ForOthers,
    /// Page cache held by others.
    ByOthers,
    From,
}

/// A column on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) field: Field,
    /// Width in cells.
    pub(crate) width: usize,
}

/// Cells between columns on a wide and on a narrow screen.
const GAPS: (usize, usize) = (2, 1);
/// From this width on, a screen is wide.
const ROOMY: usize = 130;
/// Cells of the bar of `CACHE`, and of its text.
const BAR: usize = 8;
const CACHE_TEXT: usize = 11;
/// Longest bar in cells.
const LONGEST_BAR: usize = 24;
/// A name may take up to this many cells, or a fifth of the width if that is more, before columns are added.
const NAME: usize = 16;

impl Field {
    /// All columns in display order.
    pub(crate) const ALL: [Field; 20] = [
        Field::Group,
        Field::Color,
        Field::Weight,
        Field::Entitled,
        Field::Cache,
        Field::Rate,
        Field::Share,
        Field::ShareBar,
        Field::OfIdeal,
        Field::Hits,
        Field::Refaults,
        Field::Stall,
        Field::Gain,
        Field::Throttled,
        Field::Reclaim,
        Field::Low,
        Field::High,
        Field::ForOthers,
        Field::ByOthers,
        Field::From,
    ];

    /// The head, and its meaning for the help.
    pub(crate) fn words(self) -> (&'static str, &'static str) {
        match self {
            Field::Group => ("GROUP", "path below the cgroup2 mount"),
            Field::Color => (
                "C",
                "color: Green no stall, Yellow stalls, Red and below its share",
            ),
            Field::Weight => ("WEIGHT", "the one number its owner set"),
            Field::Entitled => ("ENTITLED", "page cache its weight earns it now"),
            Field::Cache => ("CACHE/THRESHOLD", "page cache against what is protected"),
            Field::Rate => ("MB/S", "read and written through the page cache"),
            Field::Share => (
                "SHARE/IDEAL",
                "of the contenders' bandwidth, of their weight",
            ),
            Field::ShareBar => ("SHARE|IDEAL", "the same; the line is the ideal"),
            Field::OfIdeal => (
                "OF IDEAL",
                "bandwidth over weighted share, smoothed; 1 is ideal",
            ),
            Field::Hits => ("HIT", "requested pages that were in the page cache"),
            Field::Refaults => ("REF/S", "pages evicted and read again, per second"),
            Field::Stall => (
                "STALL",
                "part of the time some task waited for memory or I/O",
            ),
            Field::Gain => ("GAIN", "the feedback's factor on its share"),
            Field::Throttled => ("THROT", "seconds per second asleep above memory.high"),
            Field::Reclaim => ("RECL", "seconds per second in direct reclaim"),
            Field::Low => ("LOW", Knob::MemoryLow.file_name()),
            Field::High => ("HIGH", Knob::MemoryHigh.file_name()),
            Field::ForOthers => ("FOR", "page cache it holds of others' files"),
            Field::ByOthers => ("BY", "page cache of its files that others hold"),
            Field::From => ("FROM", "where its weight comes from"),
        }
    }

    pub(crate) fn head(self) -> &'static str {
        self.words().0
    }

    /// Columns of low rank are shown first. The group is always shown.
    fn rank(self) -> usize {
        use Field as F;
        const RANKS: [Field; 20] = [
            F::Group,
            F::Color,
            F::Rate,
            F::OfIdeal,
            F::Weight,
            F::Cache,
            F::Stall,
            F::Hits,
            F::Gain,
            F::Refaults,
            F::Share,
            F::Entitled,
            F::High,
            F::Low,
            F::Throttled,
            F::Reclaim,
            F::ShareBar,
            F::ForOthers,
            F::ByOthers,
            F::From,
        ];
        RANKS.iter().position(|&other| other == self).unwrap_or(0)
    }

    /// Width of its longest usual text in cells.
    fn width(self) -> usize {
        let text = match self {
            Field::Group | Field::Color => 1,
            Field::Cache => BAR + 1 + CACHE_TEXT,
            Field::Share => 11,
            Field::ShareBar => 16,
            Field::Rate => 7,
            Field::From => 12,
            _ => 5,
        };
        text.max(self.head().len())
    }

    /// True if the column is aligned to the right, as numbers are.
    pub(crate) fn right(self) -> bool {
        !matches!(
            self,
            Field::Group | Field::Color | Field::Cache | Field::ShareBar | Field::From
        )
    }

    /// The next or the previous column in display order.
    pub(crate) fn step(self, forward: bool) -> Field {
        let count = Field::ALL.len();
        let at = Field::ALL.iter().position(|&other| other == self);
        let by = if forward { 1 } else { count - 1 };
        Field::ALL[(at.unwrap_or(0) + by) % count]
    }

    /// The sort key of the column.
    pub(crate) fn key<'a>(self, path: &'a str, values: &'a Values) -> Key<'a> {
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        Key::Number(match self {
            Field::Group => return Key::Text(path),
            Field::From => return Key::Text(values.source.unwrap_or("")),
            Field::Color => values.color.map(|color| match color {
                Color::Red => 2.0,
                Color::Yellow => 1.0,
                Color::Green => 0.0,
            }),
            Field::Weight => values.weight.map(f64::from),
            Field::Entitled => bytes(values.entitled),
            Field::Cache => bytes(values.file),
            Field::Rate => values.rate,
            Field::Share | Field::ShareBar => values.share,
            Field::OfIdeal => values.of_ideal,
            Field::Hits => values.hits,
            Field::Refaults => values.refaults,
            Field::Stall => values.stalled,
            Field::Gain => values.gain,
            Field::Throttled => values.throttled,
            Field::Reclaim => values.reclaim,
            Field::Low => knob_bytes(values.low.as_deref()),
            Field::High => knob_bytes(values.high.as_deref()),
            Field::ForOthers => bytes(values.for_others),
            Field::ByOthers => bytes(values.by_others),
        })
    }
}

/// A limit as a sort key: `max` is above all others.
fn knob_bytes(value: Option<&str>) -> Option<f64> {
    match value {
        Some("max") => Some(f64::INFINITY),
        value => value?.parse().ok(),
    }
}

/// The columns that fit, with their widths, and the cells between them. `longest` is the width of the longest
/// name.
pub(crate) fn layout(width: usize, longest: usize) -> (Vec<Column>, usize) {
    let roomy = width >= ROOMY;
    let gap = if roomy { GAPS.0 } else { GAPS.1 };
    let least = longest.clamp(Field::Group.width(), NAME.max(width / 5));
    let mut ranked = Field::ALL;
    ranked.sort_by_key(|field| field.rank());
    let mut shown = vec![Field::Group];
    let mut used = least;
    for field in ranked.into_iter().skip(1) {
        if used + gap + field.width() > width {
            // The remaining columns are less important than room for longer names.
            break;
        }
        used += gap + field.width();
        shown.push(field);
    }
    shown.sort_by_key(|field| Field::ALL.iter().position(|other| other == field));
    let mut left = width.saturating_sub(used);
    let name = (longest.max(least) - least).min(left);
    left -= name;
    let bar = left.min(LONGEST_BAR - BAR);
    let columns = shown.into_iter().map(|field| Column {
        field,
        width: match field {
            Field::Group => (least + name).min(width),
            Field::Cache => field.width() + bar,
            _ => field.width(),
        },
    });
    (columns.collect(), gap)
}

/// A cell, padded to the column's width. `top_share` is the share at which share bars are full.
pub(crate) fn cell(row: &Row, column: Column, theme: Theme, top_share: f64) -> (String, Style) {
    let values = &row.values;
    let width = column.width;
    let plain = Style::new();
    let color = values.color.map_or(plain, |color| theme.color(color));
    let (text, style) = match column.field {
        Field::Group => (name(row, width, theme), plain),
        Field::Color => (letter(values.color).to_owned(), color.patch(strong())),
        Field::Weight => (number(values.weight), plain),
        Field::Entitled => (format::size(values.entitled), plain),
        Field::Cache => (cache(values, width, theme), plain),
        Field::Rate => (format::rate(values.rate), plain),
        Field::Share => (share(values), plain),
        Field::ShareBar => (share_bar(values, width, theme, top_share), plain),
        Field::OfIdeal => (format::ratio(values.of_ideal), color),
        Field::Hits => (format::percent(values.hits), plain),
        Field::Refaults => (format::count(values.refaults), plain),
        Field::Stall => (format::percent(values.stalled), plain),
        Field::Gain => (format::ratio(values.gain), plain),
        Field::Throttled => (format::ratio(values.throttled), plain),
        Field::Reclaim => (format::ratio(values.reclaim), plain),
        Field::Low => (knob(values.low.as_deref()), plain),
        Field::High => (knob(values.high.as_deref()), plain),
        Field::ForOthers => (format::size(values.for_others), plain),
        Field::ByOthers => (format::size(values.by_others), plain),
        Field::From => (values.source.unwrap_or("-").to_owned(), plain),
    };
    let text = format::cut_end(&text, width, theme.ellipsis());
    (format::pad(&text, width, column.field.right()), style)
}

/// Cuts a whole path at its front, and a name in the tree, which begins with branch lines, at its end.
fn name(row: &Row, width: usize, theme: Theme) -> String {
    if row.label.starts_with('/') {
        format::cut_front(&row.label, width, theme.ellipsis())
    } else {
        format::cut_end(&row.label, width, theme.ellipsis())
    }
}

fn cache(values: &Values, width: usize, theme: Theme) -> String {
    let share = match (values.file, values.threshold) {
        (Some(0), Some(_)) => Some(0.0),
        // Any page cache is above a threshold of zero.
        (Some(_), Some(0)) => Some(2.0),
        (Some(file), Some(threshold)) => Some(file as f64 / threshold as f64),
        _ => None,
    };
    let text = format!(
        "{}/{}",
        format::size(values.file),
        format::size(values.threshold)
    );
    let bar = bars::bar(share, width.saturating_sub(CACHE_TEXT + 1), theme.unicode);
    format!("{bar} {}", format::pad(&text, CACHE_TEXT, true))
}

fn share(values: &Values) -> String {
    if values.share.is_none() && values.ideal.is_none() {
        return "-".into();
    }
    let percent = format::percent(values.share);
    let share = percent.trim_end_matches('%');
    format!("{share}/{}", format::percent(values.ideal))
}

fn share_bar(values: &Values, width: usize, theme: Theme, top: f64) -> String {
    let of_top = |share: Option<f64>| share.map(|share| share / top.max(f64::MIN_POSITIVE));
    let (share, ideal) = (of_top(values.share), of_top(values.ideal));
    bars::bar_with_mark(share, ideal, width, theme.unicode)
}

fn number(value: Option<u32>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

fn knob(value: Option<&str>) -> String {
    match value.map(|value| (value, value.parse())) {
        Some((_, Ok(bytes))) => format::size(Some(bytes)),
        Some((word, Err(_))) => word.to_owned(),
        None => "-".into(),
    }
}

#[cfg(test)]
mod tests;
