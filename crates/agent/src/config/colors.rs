//! Keys about colors, and times with units.

use std::ops::RangeInclusive;
use std::time::Duration;

use justitia_policy::config::MemoplightConfig;
use justitia_policy::Color;
use toml::Spanned;

use super::{unknown_word, Section, Settings, Source};
use crate::error::{Error, Result};

/// The colors' names.
pub const COLORS: &[&str] = &["green", "yellow", "red"];

/// What may be taken from a group at once, percent.
const MOST_PERCENT: f64 = 50.0;

impl Source<'_> {
    pub(super) fn set_color(
        &self,
        settings: &mut Settings,
        key: &Spanned<String>,
        value: &Spanned<toml::Value>,
    ) -> Result<()> {
        let time = |range| {
            let text: String = self.typed(key, value, "a text such as \"5s\"")?;
            parse_time(key.get_ref(), &text, range)
                .map_err(|(cause, remedy)| self.error(&value.span(), &cause, &remedy))
        };
        let colors = &mut settings.policy.colors;
        match key.get_ref().as_str() {
            "color_ttl" => settings.color_ttl = time(0.1..=3600.0)?,
            "color_period" => colors.period_s = time(0.1..=60.0)?.as_secs_f64(),
            "color_yellow" => colors.yellow = self.typed(key, value, "true or false")?,
            _ => {
                let percent: f64 = self.typed(key, value, "a number")?;
                if !(percent > 0.0 && percent <= MOST_PERCENT) {
                    return Err(self.error(
                        &value.span(),
                        &format!("{} is {percent}", key.get_ref()),
                        "use a number above 0, at most 50; the paper's is 2",
                    ));
                }
                colors.percent = percent;
            }
        }
        Ok(())
    }

    pub(super) fn memoplight(&self, section: &Section) -> Result<MemoplightConfig> {
        let mut config = MemoplightConfig::default();
        for (key, value) in section {
            let set = match key.get_ref().as_str() {
                "working_set" => &mut config.working_set,
                unknown => {
                    return Err(self.unknown_key(key, unknown, &["working_set"]));
                }
            };
            *set = self.typed(key, value, "true or false")?;
        }
        Ok(config)
    }
}

/// A color by its name, in any case.
pub fn parse_color(word: &str) -> Result<Color> {
    Color::from_name(word).ok_or_else(|| {
        let (cause, remedy) = unknown_word("color", word, COLORS);
        Error::usage(cause, remedy)
    })
}

/// A time such as `500ms`, `5s`, `2m`, `1h` or `5` (seconds), within these seconds. Errors as cause
/// and remedy; `key` is for them.
pub fn parse_time(
    key: &str,
    text: &str,
    range: RangeInclusive<f64>,
) -> std::result::Result<Duration, (String, String)> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))
        .unwrap_or((text, 1.0));
    let seconds = number.trim().parse::<f64>().map(|number| number * unit);
    match seconds {
        Ok(seconds) if range.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err((
            format!(
                "{key} {text} is not a time from {} to {} s",
                range.start(),
                range.end()
            ),
            "use for example 5s, 500ms, 2m or 1h".into(),
        )),
    }
}
