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

/// A column of the table. [`COLUMNS`] describes each.
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

/// The content of a column for a group.
#[derive(Clone, Copy)]
enum Shown {
    /// A text.
    Text,
    /// Something that [`cell`] draws, and the number that it is sorted by.
    Drawn(fn(&Values) -> Option<f64>),
    Size(fn(&Values) -> Option<u64>),
    /// A number, and its words.
    Number(fn(&Values) -> Option<f64>, fn(Option<f64>) -> String),
    /// The text of a knob that holds bytes.
    Knob(fn(&Values) -> Option<&str>),
}

/// The properties of a column.
struct About {
    field: Field,
    /// Columns of low rank are shown first. The group is always shown.
    rank: usize,
    head: &'static str,
    /// Width of its longest usual text in cells.
    width: usize,
    shown: Shown,
    /// Its meaning, for the help.
    says: &'static str,
}

const fn about(
    field: Field,
    rank: usize,
    head: &'static str,
    width: usize,
    shown: Shown,
    says: &'static str,
) -> About {
    About {
        field,
        rank,
        head,
        width,
        shown,
        says,
    }
}

/// All columns, in display order, which is that of [`Field`].
#[rustfmt::skip]
static COLUMNS: [About; 20] = {
    use format::{count, percent, rate, ratio};
    use Field as F;
    use Shown::{Drawn, Knob as Limit, Number, Size, Text};
    [
        about(F::Group, 0, "GROUP", 1, Text, "path below the cgroup2 mount"),
        about(F::Color, 1, "C", 1, Drawn(|v| v.color.map(badness)),
            "color: Green no stall, Yellow stalls, Red and below its share"),
        about(F::Weight, 4, "WEIGHT", 5, Number(|v| v.weight.map(f64::from), whole), "the one number its owner set"),
        about(F::Entitled, 11, "ENTITLED", 5, Size(|v| v.entitled), "page cache its weight earns it now"),
        about(F::Cache, 5, "CACHE/THRESHOLD", BAR + 1 + CACHE_TEXT, Drawn(|v| v.file.map(|bytes| bytes as f64)),
            "page cache against what is protected"),
        about(F::Rate, 2, "MB/S", 7, Number(|v| v.rate, rate), "read and written through the page cache"),
        about(F::Share, 10, "SHARE/IDEAL", 11, Drawn(|v| v.share), "of the contenders' bandwidth, of their weight"),
        about(F::ShareBar, 16, "SHARE|IDEAL", 16, Drawn(|v| v.share), "the same; the line is the ideal"),
        about(F::OfIdeal, 3, "OF IDEAL", 5, Number(|v| v.of_ideal, ratio),
            "bandwidth over weighted share, smoothed; 1 is ideal"),
        about(F::Hits, 7, "HIT", 5, Number(|v| v.hits, percent), "requested pages that were in the page cache"),
        about(F::Refaults, 9, "REF/S", 5, Number(|v| v.refaults, count), "pages evicted and read again, per second"),
        about(F::Stall, 6, "STALL", 5, Number(|v| v.stalled, percent),
            "part of the time some task waited for memory or I/O"),
        about(F::Gain, 8, "GAIN", 5, Number(|v| v.gain, ratio), "the feedback's factor on its share"),
        about(F::Throttled, 14, "THROT", 5, Number(|v| v.throttled, ratio),
            "seconds per second asleep above memory.high"),
        about(F::Reclaim, 15, "RECL", 5, Number(|v| v.reclaim, ratio), "seconds per second in direct reclaim"),
        about(F::Low, 13, "LOW", 5, Limit(|v| v.low.as_deref()), Knob::MemoryLow.file_name()),
        about(F::High, 12, "HIGH", 5, Limit(|v| v.high.as_deref()), Knob::MemoryHigh.file_name()),
        about(F::ForOthers, 17, "FOR", 5, Size(|v| v.for_others), "page cache it holds of others' files"),
        about(F::ByOthers, 18, "BY", 5, Size(|v| v.by_others), "page cache of its files that others hold"),
        about(F::From, 19, "FROM", 12, Text, "where its weight comes from"),
    ]
};

impl Field {
    /// All columns in display order.
    pub(crate) const ALL: [Field; COLUMNS.len()] = {
        let mut all = [Field::Group; COLUMNS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = COLUMNS[at].field;
            at += 1;
        }
        all
    };

    fn about(self) -> &'static About {
        &COLUMNS[self as usize]
    }

    pub(crate) fn head(self) -> &'static str {
        self.about().head
    }

    /// Its meaning, for the help.
    pub(crate) fn says(self) -> &'static str {
        self.about().says
    }

    fn width(self) -> usize {
        self.about().width.max(self.head().len())
    }

    /// True if the column is aligned to the right, as numbers are.
    pub(crate) fn right(self) -> bool {
        self == Field::Share || !matches!(self.about().shown, Shown::Text | Shown::Drawn(_))
    }

    /// The next or the previous column in display order.
    pub(crate) fn step(self, forward: bool) -> Field {
        let count = Field::ALL.len();
        let by = if forward { 1 } else { count - 1 };
        Field::ALL[(self as usize + by) % count]
    }

    /// The sort key of the column.
    pub(crate) fn key<'a>(self, path: &'a str, values: &'a Values) -> Key<'a> {
        Key::Number(match self.about().shown {
            Shown::Text if self == Field::Group => return Key::Text(path),
            Shown::Text => return Key::Text(values.source.unwrap_or("")),
            Shown::Drawn(of) | Shown::Number(of, _) => of(values),
            Shown::Size(of) => of(values).map(|bytes| bytes as f64),
            Shown::Knob(of) => knob_bytes(of(values)),
        })
    }
}

/// A color as a sort key.
fn badness(color: Color) -> f64 {
    match color {
        Color::Red => 2.0,
        Color::Yellow => 1.0,
        Color::Green => 0.0,
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
    ranked.sort_by_key(|field| field.about().rank);
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
    shown.sort_by_key(|&field| field as usize);
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
    let text = match (column.field, column.field.about().shown) {
        (Field::Group, _) => name(row, width, theme),
        (Field::Color, _) => letter(values.color).to_owned(),
        (Field::Cache, _) => cache(values, width, theme),
        (Field::Share, _) => share(values),
        (Field::ShareBar, _) => share_bar(values, width, theme, top_share),
        (_, Shown::Size(of)) => format::size(of(values)),
        (_, Shown::Number(of, words)) => words(of(values)),
        (_, Shown::Knob(of)) => knob(of(values)),
        (_, Shown::Text | Shown::Drawn(_)) => values.source.unwrap_or("-").to_owned(),
    };
    let style = match column.field {
        Field::Color => color.patch(strong()),
        Field::OfIdeal => color,
        _ => plain,
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

fn whole(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.0}"))
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
