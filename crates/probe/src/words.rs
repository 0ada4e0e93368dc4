//! Formats numbers for people.

/// A number with three significant digits or none after the point.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A time in seconds, in the unit that fits.
pub fn time(seconds: f64) -> String {
    if seconds.is_infinite() {
        "failed".to_owned()
    } else if seconds >= 1.0 {
        format!("{} s", number(seconds))
    } else if seconds >= 0.001 {
        format!("{} ms", number(seconds * 1e3))
    } else {
        format!("{} us", number(seconds * 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (1711.4, "1711"),
            (42.25, "42.2"),
            (5.0, "5"),
            (0.25, "0.25"),
            (0.0, "0"),
            (-3.5, "-3.5"),
            (100.0, "100"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn times_come_in_their_unit() {
        assert_eq!(time(0.0501), "50.1 ms");
        assert_eq!(time(2.0), "2 s");
        assert_eq!(time(0.000_25), "250 us");
        assert_eq!(time(f64::INFINITY), "failed");
    }
}
