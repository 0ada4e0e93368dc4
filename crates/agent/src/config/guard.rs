//! The section `[guard]`, and amounts of memory.

use justitia_policy::config::{Amount, GuardConfig};
use justitia_policy::units::Bytes;

use super::{Section, Source};
use crate::error::Result;

const KEYS: [&str; 3] = ["enabled", "reserve", "root_share"];

/// More than this part of memory is neither a reserve nor a share.
const MOST_PERCENT: f64 = 90.0;

impl Source<'_> {
    pub(super) fn guard(&self, section: &Section) -> Result<GuardConfig> {
        let mut config = GuardConfig::default();
        for (key, value) in section {
            let amount = |what: &str| {
                let text: String = self.typed(key, value, what)?;
                parse_amount(key.get_ref(), &text)
                    .map_err(|(cause, remedy)| self.error(&value.span(), &cause, &remedy))
            };
            match key.get_ref().as_str() {
                "enabled" => config.enabled = self.typed(key, value, "true or false")?,
                "reserve" => config.reserve = amount("a text such as \"2%\" or \"1G\"")?,
                "root_share" => config.root_share = amount("a text such as \"10%\" or \"1G\"")?,
                unknown => return Err(self.unknown_key(key, unknown, &KEYS)),
            }
        }
        Ok(config)
    }
}

/// An amount of memory such as `2%` or `512M`. Errors as cause and remedy; `key` is for them.
fn parse_amount(key: &str, text: &str) -> std::result::Result<Amount, (String, String)> {
    let Some(number) = text.trim().strip_suffix('%') else {
        return parse_size(key, text).map(Amount::Bytes);
    };
    match number.trim().parse::<f64>() {
        Ok(percent) if (0.0..=MOST_PERCENT).contains(&percent) => Ok(Amount::Percent(percent)),
        _ => Err((
            format!("{key} {text} is not a part of memory from 0% to {MOST_PERCENT}%"),
            "use for example 2%, or a size such as 512M".into(),
        )),
    }
}

/// A size such as `4G`, `512M`, `64K`, `1.5G` or `4096` (bytes), with binary units. Errors as cause
/// and remedy; `what` is for them.
pub fn parse_size(what: &str, text: &str) -> std::result::Result<Bytes, (String, String)> {
    let trimmed = text.trim();
    let letters = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = trimmed[letters.len()..].to_ascii_lowercase();
    let shift = match unit.as_str() {
        "" | "b" => Some(0),
        "k" | "kib" => Some(10),
        "m" | "mib" => Some(20),
        "g" | "gib" => Some(30),
        "t" | "tib" => Some(40),
        _ => None,
    };
    let bytes = shift.and_then(|shift| {
        let number: f64 = letters.trim().parse().ok()?;
        let bytes = number * 2f64.powi(shift);
        (number >= 0.0 && bytes < 2f64.powi(60)).then(|| Bytes::from_f64(bytes))
    });
    bytes.ok_or_else(|| {
        (
            format!("{what} {text} is not a size"),
            "use for example 4G, 512M or 64K".into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units_and_nonsense_is_refused() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 64 << 10),
            ("1.5G", 3 << 29),
            ("2 GiB", 2 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse_size("SIZE", text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "G", "-1G", "4X", "inf", "NaN", "1e30G", "4G5"] {
            assert!(parse_size("SIZE", text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_amount_is_a_size_or_a_part() {
        assert_eq!(parse_amount("reserve", "2%"), Ok(Amount::Percent(2.0)));
        let half = Amount::Bytes(Bytes::mib(512));
        assert_eq!(parse_amount("reserve", "512M"), Ok(half));
        for text in ["-1%", "91%", "%", "much"] {
            let (cause, _) = parse_amount("reserve", text).unwrap_err();
            assert!(cause.contains("reserve"), "{cause}");
        }
    }
}
