//! The columns: their heads, numbers and layout.
//!
//! On a narrow screen columns of low rank are shown first. Nothing is wrapped: columns that do not fit are
//! left out.

use justitia_policy::plan::Knob;
use justitia_report::status::{GroupStatus, VerdictStatus};

use super::format::{count, limit, percent, rate, ratio};

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
pub(crate) const CACHE_TEXT: usize = 11;
/// Longest bar in cells.
const LONGEST_BAR: usize = 24;
/// A name may take up to this many cells, or a fifth of the width if that is more, before columns are added.
const NAME: usize = 16;

/// The content of a column.
#[derive(Clone, Copy)]
pub(crate) enum Shown {
    /// A text, by which it is sorted.
    Text,
    /// A drawing.
    Drawn,
    /// Its number in words.
    Words(fn(Option<f64>) -> String),
}

use Shown::{Drawn, Text, Words};

/// The number of a column for a group, by which it is sorted.
type Number = fn(&GroupStatus) -> Option<f64>;

/// The properties of a column.
pub(crate) struct About {
    /// Columns of low rank are shown first. The group is always shown.
    rank: usize,
    pub(crate) head: &'static str,
    /// Width of its longest usual text in cells.
    width: usize,
    pub(crate) shown: Shown,
    pub(crate) number: Number,
    /// Its meaning, for the help.
    pub(crate) says: &'static str,
}

/// Defines the columns, in display order: field, rank, head, width, content, number and meaning of each.
macro_rules! columns {
    ($($field:ident, $rank:expr, $head:expr, $width:expr, $shown:expr, $number:expr, $says:expr;)+) => {
        /// A column of the table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Field {
            $($field,)+
        }

        impl Field {
            /// All columns in display order.
            pub(crate) const ALL: [Field; COLUMNS.len()] = [$(Field::$field),+];
        }

        const COLUMNS: &[About] = &[$(About {
            rank: $rank,
            head: $head,
            width: $width,
            shown: $shown,
            number: $number,
            says: $says,
        },)+];
    };
}

columns! {
    Group, 0, "GROUP", 1, Text, none, "path below the cgroup2 mount";
    Color, 1, "C", 1, Drawn, |g| Some(f64::from(verdict(g)?.color as u8)),
        "color: Green no stall, Yellow stalls, Red and below its share";
    Weight, 4, "WEIGHT", 5, Words(whole), |g| Some(f64::from(g.weight)), "the one number its owner set";
    Entitled, 11, "ENTITLED", 5, Words(limit), |g| Some(verdict(g)?.entitlement_bytes as f64),
        "page cache its weight earns it now";
    Cache, 5, "CACHE/THRESHOLD", BAR + 1 + CACHE_TEXT, Drawn, |g| Some(g.file_bytes? as f64),
        "page cache against what is protected";
    Rate, 2, "MB/S", 7, Words(rate), |g| verdict(g)?.bytes_per_s, "read and written through the page cache";
    Share, 10, "SHARE/IDEAL", 11, Drawn, none, "of the contenders' bandwidth, of their weight";
    ShareBar, 16, "SHARE|IDEAL", 16, Drawn, none, "the same; the line is the ideal";
    OfIdeal, 3, "OF IDEAL", 5, Words(ratio), |g| verdict(g)?.of_ideal,
        "bandwidth over weighted share, smoothed; 1 is ideal";
    Hits, 7, "HIT", 5, Words(percent), |g| verdict(g)?.cache.hit_ratio,
        "requested pages that were in the page cache";
    Refaults, 9, "REF/S", 5, Words(count), |g| verdict(g)?.cache.refault_pages_per_s,
        "pages evicted and read again, per second";
    Stall, 6, "STALL", 5, Words(percent), |g| verdict(g)?.stalled,
        "part of the time some task waited for memory or I/O";
    Gain, 8, "GAIN", 5, Words(ratio), |g| Some(verdict(g)?.gain), "the feedback's factor on its share";
    Throttled, 14, "THROT", 5, Words(ratio), |g| verdict(g)?.cache.throttled_s_per_s,
        "seconds per second asleep above memory.high";
    Reclaim, 15, "RECL", 5, Words(ratio), |g| verdict(g)?.cache.reclaim_s_per_s,
        "seconds per second in direct reclaim";
    Low, 13, "LOW", 5, Words(limit), |g| g.knob_number(Knob::MemoryLow), Knob::MemoryLow.file_name();
    High, 12, "HIGH", 5, Words(limit), |g| g.knob_number(Knob::MemoryHigh), Knob::MemoryHigh.file_name();
    ForOthers, 17, "FOR", 5, Words(limit), |g| Some(verdict(g)?.held_for_others_bytes? as f64),
        "page cache it holds of others' files";
    ByOthers, 18, "BY", 5, Words(limit), |g| Some(verdict(g)?.held_by_others_bytes? as f64),
        "page cache of its files that others hold";
    From, 19, "FROM", 12, Text, none, "where its weight comes from";
}

/// A text has no number, and a share is one of all contenders.
fn none(_: &GroupStatus) -> Option<f64> {
    None
}

fn verdict(group: &GroupStatus) -> Option<&VerdictStatus> {
    group.verdict.as_ref()
}

impl Field {
    pub(crate) fn about(self) -> &'static About {
        &COLUMNS[self as usize]
    }

    fn width(self) -> usize {
        self.about().width.max(self.about().head.len())
    }

    /// True if the column is aligned to the right, as numbers are.
    pub(crate) fn right(self) -> bool {
        self == Field::Share || matches!(self.about().shown, Shown::Words(_))
    }

    /// The next or the previous column in display order.
    pub(crate) fn step(self, forward: bool) -> Field {
        let count = Field::ALL.len();
        let by = if forward { 1 } else { count - 1 };
        Field::ALL[(self as usize + by) % count]
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

fn whole(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.0}"))
}

#[cfg(test)]
mod tests;
