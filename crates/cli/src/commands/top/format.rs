//! Formats numbers in few characters, and cuts lines.
//!
//! Sizes are binary (K, M, G of 1024), bandwidth is in 10^6 bytes per second as in `status`. An unknown value
//! is a dash.

use ratatui::text::Line;

pub(crate) use crate::cells::{cut_end, cut_front, pad, width};

/// Cuts a line that is too long and adds an ellipsis. The styles of its spans are lost.
pub(crate) fn cut(line: &mut Line<'static>, width: usize, ellipsis: char) {
    if line.width() > width {
        let text = cut_end(&line.to_string(), width, ellipsis);
        *line = Line::styled(text, line.style);
    }
}

const UNKNOWN: &str = "-";

/// At most five characters: `512B`, `1.5K`, `200M`, `1023G`.
pub(crate) fn size(bytes: Option<u64>) -> String {
    let Some(bytes) = bytes else {
        return UNKNOWN.into();
    };
    let mut value = bytes as f64;
    let mut unit = 0;
    // A value that would round to 1024 becomes 1 of the next unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && value < 9.95);
    format!("{value:.decimals$}{}", UNITS[unit])
}

/// A size that may be a limit: an infinite one is none.
pub(crate) fn limit(bytes: Option<f64>) -> String {
    match bytes {
        Some(f64::INFINITY) => "max".into(),
        bytes => size(bytes.map(|bytes| bytes as u64)),
    }
}

const UNITS: [&str; 6] = ["B", "K", "M", "G", "T", "P"];

/// Bandwidth in MB/s, at most seven characters.
pub(crate) fn rate(bytes_per_s: Option<f64>) -> String {
    match bytes_per_s.map(|rate| rate / 1e6) {
        None => UNKNOWN.into(),
        Some(rate) if rate < 1000.0 => format!("{rate:.2}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

/// Events per second, at most five characters.
pub(crate) fn count(per_s: Option<f64>) -> String {
    match per_s {
        None => UNKNOWN.into(),
        Some(count) if count > 0.0 && count < 9.95 => format!("{count:.1}"),
        Some(count) if count < 9999.5 => format!("{count:.0}"),
        Some(count) if count < 999_500.0 => format!("{:.0}k", count / 1e3),
        Some(count) => format!("{:.0}M", count / 1e6),
    }
}

/// A share, at most five characters with the percent sign.
pub(crate) fn percent(share: Option<f64>) -> String {
    match share.map(|share| share * 100.0) {
        None => UNKNOWN.into(),
        Some(share) if share < 99.95 => format!("{share:.1}%"),
        Some(share) => format!("{share:.0}%"),
    }
}

/// A factor, at most five characters for all that occur.
pub(crate) fn ratio(ratio: Option<f64>) -> String {
    match ratio {
        None => UNKNOWN.into(),
        Some(ratio) if ratio < 99.995 => format!("{ratio:.2}"),
        Some(ratio) => format!("{ratio:.0}"),
    }
}

/// A time in seconds, minutes, hours or days.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_columns_whatever_they_are() {
        for power in 0..60 {
            let n = 2_f64.powi(power) * 0.9995;
            assert!(size(Some(n as u64)).len() <= 5, "{}", size(Some(n as u64)));
        }
        for power in 0..13 {
            let n = 10_f64.powi(power) * 0.9996;
            assert!(rate(Some(n)).len() <= 7, "{}", rate(Some(n)));
        }
        for n in [0.0, 0.4, 9.96, 9999.6, 999_600.0, 2e8] {
            assert!(count(Some(n)).len() <= 5, "{}", count(Some(n)));
        }
        for n in [0.0, 0.9994, 0.9999, 1.0, 99.0] {
            assert!(percent(Some(n)).len() <= 5, "{}", percent(Some(n)));
            assert!(ratio(Some(n * 99.0)).len() <= 5);
        }
    }

    #[test]
    fn sizes_have_the_unit_that_fits() {
        assert_eq!(size(Some(0)), "0B");
        assert_eq!(size(Some(1536)), "1.5K");
        assert_eq!(size(Some((1 << 20) - 1)), "1.0M");
        assert_eq!(size(Some(200 << 20)), "200M");
        assert_eq!(size(Some(u64::MAX)), "16384P");
    }

    #[test]
    fn an_unknown_value_is_a_dash_and_zero_is_not() {
        assert_eq!(size(None), "-");
        assert_eq!(count(None), "-");
        assert_eq!(count(Some(0.0)), "0");
        assert_eq!(percent(Some(0.0)), "0.0%");
    }
}
