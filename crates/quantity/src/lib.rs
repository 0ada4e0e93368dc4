//! Parses sizes and times as people write them, in arguments and in the configuration. The caller checks the
//! range and words the error message.

use std::time::Duration;

/// Larger sizes are mistakes.
const MOST_BYTES: f64 = (1_u64 << 60) as f64;

/// Bytes of a size such as `4G`, `512M`, `64KiB`, `1.5G` or `4096`, with binary units. `None`: it is
/// not a size.
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * 2_f64.powi(shift);
    (0.0..MOST_BYTES)
        .contains(&bytes)
        .then(|| bytes.round() as u64)
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
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "G",
            "-1G",
            "4X",
            "inf",
            "NaN",
            "1e30G",
            "4G5",
            "99999999999G",
            "4 G x",
            "1ß",
        ] {
            assert_eq!(size(text), None, "{text}");
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
        for text in ["", "s", "-1s", "soon", "2d", "2M", "NaN", "inf", "1e300h"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
