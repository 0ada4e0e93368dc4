//! Bars and sparklines of characters, Unicode or ASCII, with exactly the requested number of cells.

/// Left eighths of a cell.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// Heights of a sparkline.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Heights of a sparkline in ASCII, in ascending order.
const ASCII_HEIGHTS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// A bar that is full at 1. A larger share ends in an arrow; an unknown one is blank.
pub(crate) fn bar(share: Option<f64>, cells: usize, unicode: bool) -> String {
    let Some(share) = share else {
        return " ".repeat(cells);
    };
    let track = if unicode { '·' } else { '.' };
    let mut text: Vec<char> = filled(share, cells, unicode);
    text.resize(cells, track);
    // No arrow for an excess of up to a percent, such as a few pages above the threshold.
    if share > 1.01 {
        if let Some(last) = text.last_mut() {
            *last = if unicode { '»' } else { '>' };
        }
    }
    text.into_iter().collect()
}

/// A bar with a mark at its ideal end; both values are shares of the bar's length.
pub(crate) fn bar_with_mark(
    share: Option<f64>,
    mark: Option<f64>,
    cells: usize,
    unicode: bool,
) -> String {
    let mut text = share.map_or_else(Vec::new, |share| filled(share, cells, unicode));
    text.resize(cells, ' ');
    if let Some(mark) = mark {
        let at = (mark.clamp(0.0, 1.0) * cells as f64).round() as usize;
        if let Some(cell) = text.get_mut(at.min(cells.saturating_sub(1))) {
            *cell = if unicode { '│' } else { '|' };
        }
    }
    text.into_iter().collect()
}

/// The filled cells of a bar, at most `cells`.
fn filled(share: f64, cells: usize, unicode: bool) -> Vec<char> {
    let eighths = (share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    let (full, rest) = (eighths / 8, eighths % 8);
    if unicode {
        let mut text = vec!['█'; full];
        text.extend(rest.checked_sub(1).map(|rest| EIGHTHS[rest]));
        text
    } else {
        vec!['#'; full + usize::from(rest >= 4)]
    }
}

/// A sparkline of the newest values, the last at the right, on a scale from 0 to `top`. An unknown value is
/// blank, and zero is the lowest mark.
pub(crate) fn sparkline(values: &[Option<f32>], top: f32, cells: usize, unicode: bool) -> String {
    let heights = if unicode { &HEIGHTS } else { &ASCII_HEIGHTS };
    let newest = &values[values.len().saturating_sub(cells)..];
    let mut text = " ".repeat(cells - newest.len());
    text.extend(newest.iter().map(|value| {
        let Some(value) = value else {
            return ' ';
        };
        let share = if top > 0.0 { value / top } else { 0.0 };
        let height = (share.clamp(0.0, 1.0) * 7.0).round() as usize;
        // A value above zero never gets the mark of zero.
        heights[height.max(usize::from(*value > 0.0))]
    }));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_take_just_the_cells_they_are_given() {
        for unicode in [true, false] {
            for cells in 0..40 {
                for share in [
                    None,
                    Some(-1.0),
                    Some(0.0),
                    Some(0.37),
                    Some(1.0),
                    Some(7.0),
                ] {
                    assert_eq!(bar(share, cells, unicode).chars().count(), cells);
                    let marked = bar_with_mark(share, share, cells, unicode);
                    assert_eq!(marked.chars().count(), cells);
                }
                let line = sparkline(&[Some(1.0), None, Some(2.0)], 2.0, cells, unicode);
                assert_eq!(line.chars().count(), cells);
            }
        }
    }

    #[test]
    fn ascii_is_ascii() {
        assert_eq!(bar(Some(0.5), 8, false), "####....");
        assert_eq!(bar(Some(1.3), 4, false), "###>");
        assert_eq!(bar_with_mark(Some(0.5), Some(0.75), 8, false), "####  | ");
        assert_eq!(
            sparkline(&[Some(0.0), None, Some(1.0)], 1.0, 4, false),
            " _ #"
        );
    }

    #[test]
    fn a_bar_shows_eighths_and_what_is_above_its_end() {
        assert_eq!(bar(Some(0.5), 3, true), "█▌·");
        assert_eq!(bar(Some(1.0), 3, true), "███");
        assert_eq!(bar(Some(1.5), 3, true), "██»");
    }

    #[test]
    fn unknown_is_not_drawn_as_zero() {
        assert_eq!(bar(None, 3, true), "   ");
        assert_eq!(bar(Some(0.0), 3, true), "···");
        let line = sparkline(&[Some(0.0), None, Some(0.001), Some(8.0)], 8.0, 4, true);
        assert_eq!(line, "▁ ▂█");
    }

    #[test]
    fn the_newest_value_stands_to_the_right() {
        let values = [Some(1.0), Some(2.0), Some(4.0)];
        assert_eq!(sparkline(&values, 4.0, 2, true), "▅█");
    }
}
