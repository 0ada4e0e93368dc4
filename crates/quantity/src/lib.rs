//! Parses sizes and times as people write them, in arguments and in the configuration. The caller checks the
//! range; [`from_to`] words it.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Larger sizes are mistakes.
const MOST_BYTES: u64 = 1 << 60;

/// Bytes of a size such as `4G`, `512M`, `64KiB`, `1.5G` or `4096`, with binary units.
///
/// # Errors
/// The reason, as the end of a sentence: `is not a size`.
pub fn size(text: &str) -> Result<u64, String> {
    let bytes = bytes(text).ok_or("is not a size")?;
    if bytes > MOST_BYTES as f64 {
        return Err(format!("is not a size up to {}", exact(MOST_BYTES)));
    }
    Ok(bytes.round() as u64)
}

fn bytes(text: &str) -> Option<f64> {
    let (number, unit) = split(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    (number >= 0.0 && number.is_finite()).then_some(number * 2_f64.powi(shift))
}

/// A time such as `250us`, `500ms`, `1.5s`, `2m`, `1h` or `5` (seconds). `None`: it is not a time.
pub fn time(text: &str) -> Option<Duration> {
    let (number, unit) = split(text);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

/// A range of times in words: `from 100ms to 60s`.
pub fn from_to(range: &RangeInclusive<Duration>) -> String {
    let words = |time: &Duration| match time.as_micros() {
        us if us % 3_600_000_000 == 0 => format!("{}h", us / 3_600_000_000),
        us if us % 1_000_000 == 0 => format!("{}s", us / 1_000_000),
        us if us % 1000 == 0 => format!("{}ms", us / 1000),
        us => format!("{us}us"),
    };
    format!("from {} to {}", words(range.start()), words(range.end()))
}

/// A size in the largest unit that keeps it exact: `256M`, `1000`.
pub fn exact(bytes: u64) -> String {
    let unit = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    let unit = unit
        .into_iter()
        .find(|(shift, _)| bytes > 0 && bytes % (1 << shift) == 0);
    unit.map_or_else(
        || bytes.to_string(),
        |(shift, unit)| format!("{}{unit}", bytes >> shift),
    )
}

/// The number and the letters behind it.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    (number.trim_end(), &text[number.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units_and_nonsense_is_refused() {
        for (text, bytes) in [
            ("4096", 4096),
            ("0", 0),
            ("64K", 64 << 10),
            ("128kib", 128 << 10),
            ("768M", 768 << 20),
            ("1.5G", 3 << 29),
            (" 2 GiB ", 2 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(size(&exact(bytes)), Ok(bytes), "{text}");
        }
        assert_eq!([exact(768 << 20), exact(1000)], ["768M", "1000"]);
        for text in ["", "G", "-1G", "4X", "inf", "NaN", "4G5", "4 G x", "1ß"] {
            assert_eq!(size(text), Err("is not a size".into()), "{text}");
        }
        for text in ["1e30G", "1048577T", "99999999999G", "1e308T"] {
            let said = size(text).unwrap_err();
            assert_eq!(said, "is not a size up to 1048576T", "{text}");
        }
    }

    #[test]
    fn times_are_understood_with_and_without_unit() {
        for (text, time_us) in [
            ("250us", 250),
            ("50ms", 50_000),
            ("1.5s", 1_500_000),
            ("2", 2_000_000),
            (" 2 m", 120_000_000),
            ("1h", 3_600_000_000),
            ("0", 0),
        ] {
            assert_eq!(time(text), Some(Duration::from_micros(time_us)), "{text}");
        }
        let range = |from, to| from_to(&(Duration::from_micros(from)..=Duration::from_micros(to)));
        assert_eq!(range(1, 3_600_000_000), "from 1us to 1h");
        assert_eq!(range(100_000, 60_000_000), "from 100ms to 60s");
        for text in ["", "s", "-1s", "soon", "2d", "2M", "NaN", "inf", "1e300h"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
