//! Values of the configuration: which ones are accepted, and the errors of the others.
//!
//! An error of serde is one text. The errors made here are a line of cause and a line of remedy.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use justitia_cgroup::gate::Order;
use justitia_discover::Glob;
use justitia_policy::config::{Amount, FeedbackConfig, GuardConfig};
use justitia_policy::cost::CostModel;
use justitia_policy::units::{Bytes, Weight};
use justitia_policy::Color;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{did_you_mean, example};
use crate::error::Error;
use justitia_report::feed::{parse_listen, Listen};

/// Remedy for a weight out of range.
pub const WEIGHT_REMEDY: &str = "use a whole number from 1 to 10000; 100 is the default";
/// Remedy for a malformed glob.
pub const GLOB_REMEDY: &str = "write a path below the cgroup2 mount, for example /app/*";
/// Remedy for a wrong size.
pub const SIZE_REMEDY: &str = "use for example 4G, 512M or 64K";
/// Placeholder in a cause for the key of the value.
pub(super) const KEY: &str = "{key}";
const COLORS: &[&str] = &["green", "yellow", "red"];
/// The most that a group gives at once, percent: its color can follow only after the memory is gone.
const MOST_TAKEN_PERCENT: f64 = 50.0;
const SHORTEST: Duration = Duration::from_millis(100);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// The largest reserve or share, percent of memory.
const MOST_PERCENT: f64 = 90.0;

/// An example of `max_loss`.
pub(super) const MAX_LOSS: &str = "\"3%\"";

/// `[feedback]`.
#[derive(Deserialize)]
#[serde(
    remote = "FeedbackConfig",
    default = "FeedbackConfig::default",
    deny_unknown_fields
)]
pub(super) struct Feedback {
    #[serde(deserialize_with = "not_negative")]
    smoothing_s: f64,
    #[serde(deserialize_with = "not_negative")]
    integral_per_s: f64,
    #[serde(deserialize_with = "not_negative")]
    proportional: f64,
    #[serde(deserialize_with = "from_one")]
    gain_limit: f64,
    #[serde(deserialize_with = "not_negative")]
    dead_band: f64,
    #[serde(deserialize_with = "not_negative")]
    stall_share: f64,
}

/// `[guard]`.
#[derive(Deserialize)]
#[serde(
    remote = "GuardConfig",
    default = "GuardConfig::default",
    deny_unknown_fields
)]
pub(super) struct Guard {
    enabled: bool,
    #[serde(deserialize_with = "reserve")]
    reserve: Amount,
    #[serde(deserialize_with = "root_share")]
    root_share: Amount,
}

/// The operator's settings of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GateSettings {
    /// Hold it, in the modes that know weights (`justitia`, `proportional`).
    pub enabled: bool,
    /// Order of waiting writers.
    #[serde(deserialize_with = "order")]
    pub order: Order,
    /// With order `aging`, what a waiter gains when it is passed over, 0 to 10000; with 0 the
    /// highest weight always goes next.
    #[serde(deserialize_with = "aging")]
    pub aging: u32,
}

impl Default for GateSettings {
    fn default() -> Self {
        GateSettings {
            enabled: false,
            order: Order::default(),
            // The paper's.
            aging: 100,
        }
    }
}

/// The operator's settings of disks that BFQ does not schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskSettings {
    /// Those that io.cost serves by weight while groups contend.
    pub iocost: IoCost,
    /// io.cost models by the disk's name.
    #[serde(deserialize_with = "models")]
    pub models: BTreeMap<String, CostModel>,
}

/// The disks that io.cost may serve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IoCost {
    /// `false`.
    None,
    /// `true`: all but those below a volume that writes in one thread for all groups.
    #[default]
    Some,
    /// `"all"`.
    All,
}

impl<'de> Deserialize<'de> for IoCost {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(from)? {
            toml::Value::Boolean(false) => Ok(IoCost::None),
            toml::Value::Boolean(true) => Ok(IoCost::Some),
            toml::Value::String(text) if text == "all" => Ok(IoCost::All),
            other => Err(error((
                format!("{KEY} is {other}"),
                "use true, false or \"all\"".to_owned(),
            ))),
        }
    }
}

fn models<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, CostModel>, D::Error> {
    let texts = BTreeMap::<String, String>::deserialize(from)?;
    let models = texts.into_iter().map(|(disk, text)| {
        if disk.is_empty() {
            return Err(error((
                "a model's disk has no name".to_owned(),
                "use the name in /sys/block, such as nvme0n1".to_owned(),
            )));
        }
        let model = CostModel::parse(&format!("ctrl=user {text}")).filter(CostModel::is_whole);
        let remedy = "write rbps, rseqiops, rrandiops, wbps, wseqiops and wrandiops, each =NUMBER";
        model.map(|model| (disk.clone(), model)).ok_or_else(|| {
            error((
                format!("the model of {disk} is incomplete"),
                remedy.to_owned(),
            ))
        })
    });
    models.collect()
}

pub(super) type Said<T> = Result<T, (String, String)>;

/// A value that is written as a text.
pub(super) fn text<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Said<T>,
) -> Result<T, D::Error> {
    parse(&String::deserialize(from)?).map_err(error)
}

pub(super) fn error<E: serde::de::Error>((cause, remedy): (String, String)) -> E {
    E::custom(format_args!("{cause}\n{remedy}"))
}

macro_rules! texts {
    ($($name:ident: $type:ty = $parse:expr;)*) => {$(
        pub(super) fn $name<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
            text(from, $parse)
        }
    )*};
}

texts! {
    interval: Duration = |text| parse_interval("interval", text);
    listen: Option<Listen> = parse_listen;
    color_ttl: Duration = |text| parse_time("color_ttl", text, SHORTEST..=HOUR);
    color_period: Duration = |text| parse_time("color_period", text, SHORTEST..=MINUTE);
    reserve: Amount = |text| parse_amount("reserve", text);
    root_share: Amount = |text| parse_amount("root_share", text);
    max_loss: f64 = parse_max_loss;
    order: Order = parse_order;
    glob: Glob = parse_glob;
    state_dir: PathBuf = |text| parse_absolute("state_dir", text);
    socket: Option<PathBuf> = |text| parse_absolute("socket", text).map(Some);
}

/// A path that means the same file in every directory: the agent and the commands start in different ones.
fn parse_absolute(key: &str, text: &str) -> Said<PathBuf> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        return Ok(path);
    }
    let example = example(key).unwrap_or_default();
    Err((
        format!("{key} {text:?} is not an absolute path"),
        format!("write {key} = {example}"),
    ))
}

/// Paths of the page's certificate and its key, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and its intermediate certificates.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// An example of `tls`, for error messages.
pub(super) const TLS_EXAMPLE: &str =
    "{ certificate = \"/etc/justitia/page.pem\", key = \"/etc/justitia/page.key\" }";

/// `tls`: both files or none.
pub(super) fn tls<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TlsFiles>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Files {
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
    }
    match Files::deserialize(from)? {
        Files {
            certificate: Some(certificate),
            key: Some(key),
        } if certificate.is_absolute() && key.is_absolute() => {
            Ok(Some(TlsFiles { certificate, key }))
        }
        _ => Err(error((
            "tls is not the absolute paths of a certificate and its key".to_owned(),
            format!("write tls = {TLS_EXAMPLE}"),
        ))),
    }
}

/// Checks a list of globs and keeps their texts.
pub(super) fn globs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let globs = Vec::<String>::deserialize(from)?;
    for text in &globs {
        parse_glob(text).map_err(error)?;
    }
    Ok(globs)
}

/// `[weights]`, sorted from specific to general: exact paths first, then the longest glob.
pub(super) fn weights<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<(String, Weight)>, D::Error> {
    #[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Key(#[serde(deserialize_with = "key")] String);
    #[derive(Deserialize)]
    struct Number(#[serde(deserialize_with = "weight")] Weight);
    let weights = BTreeMap::<Key, Number>::deserialize(from)?;
    let mut weights: Vec<_> = weights
        .into_iter()
        .map(|(Key(key), Number(weight))| (key, weight))
        .collect();
    weights.sort_by_key(|(glob, _)| (glob.contains(['*', '?', '[']), Reverse(glob.len())));
    Ok(weights)
}

fn key<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    text(from, |text| parse_glob(text).map(|_| text.to_owned()))
}

pub(super) fn weight<'de, D: Deserializer<'de>>(from: D) -> Result<Weight, D::Error> {
    let what = |value: &_| format!("weight {value} of {KEY}");
    Weight::new(whole(from, 1, what, WEIGHT_REMEDY)?).map_err(D::Error::custom)
}

fn aging<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let what = |value: &_| format!("{KEY} {value}");
    whole(from, 0, what, "use 100, the paper's, or leave it out")
}

fn whole<'de, D: Deserializer<'de>>(
    from: D,
    least: u32,
    what: impl Fn(&toml::Value) -> String,
    remedy: &str,
) -> Result<u32, D::Error> {
    const MOST: u32 = 10_000;
    let value = toml::Value::deserialize(from)?;
    let number = value.as_integer().and_then(|n| u32::try_from(n).ok());
    number
        .filter(|n| (least..=MOST).contains(n))
        .ok_or_else(|| {
            let cause = format!("{} is not a number from {least} to {MOST}", what(&value));
            error((cause, remedy.to_owned()))
        })
}

pub(super) fn color_percent<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let percent = f64::deserialize(from)?;
    if percent > 0.0 && percent <= MOST_TAKEN_PERCENT {
        return Ok(percent);
    }
    let cause = format!("{KEY} {percent} is not a number above 0 and up to {MOST_TAKEN_PERCENT}");
    Err(error((cause, "use for example 2, the paper's".to_owned())))
}

fn not_negative<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    at_least(from, 0.0)
}

fn from_one<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    at_least(from, 1.0)
}

fn at_least<'de, D: Deserializer<'de>>(from: D, least: f64) -> Result<f64, D::Error> {
    let number = f64::deserialize(from)?;
    if number.is_finite() && number >= least {
        return Ok(number);
    }
    let cause = format!("{KEY} {number} is not a number from {least}");
    let remedy = "use a larger number, or leave it out for the default".to_owned();
    Err(error((cause, remedy)))
}

fn parse_glob(text: &str) -> Said<Glob> {
    Glob::new(text).map_err(|error| (error.to_string(), GLOB_REMEDY.to_owned()))
}

fn parse_order(word: &str) -> Said<Order> {
    let known = Order::ALL.into_iter().find(|order| order.name() == word);
    known.ok_or_else(|| {
        let names = Order::ALL.map(Order::name);
        (format!("unknown order {word}"), did_you_mean(word, &names))
    })
}

/// Parses `max_loss` into percent; 0 for `off`.
fn parse_max_loss(text: &str) -> Said<f64> {
    if text.trim() == "off" {
        return Ok(0.0);
    }
    let percent = text.trim().strip_suffix('%');
    let percent = percent.and_then(|number| number.trim().parse::<f64>().ok());
    percent
        .filter(|percent| (0.0..=MOST_PERCENT).contains(percent))
        .ok_or_else(|| {
            let cause =
                format!("max_loss {text} is not a part of all traffic from 0% to {MOST_PERCENT}%");
            (cause, "use for example 3%, or off".to_owned())
        })
}

/// An amount of memory such as `2%` or `512M`. Errors as cause and remedy; `key` is for them.
fn parse_amount(key: &str, text: &str) -> Said<Amount> {
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

/// A size, see [`justitia_quantity::size`]. Errors as cause and remedy; `what` is for them.
pub fn parse_size(what: &str, text: &str) -> Said<Bytes> {
    let refused = |why| (format!("{what} {text} {why}"), SIZE_REMEDY.to_owned());
    justitia_quantity::size(text).map(Bytes).map_err(refused)
}

/// A weight. Errors as cause and remedy; `what` is for them.
pub fn parse_weight(what: &str, text: &str) -> Said<Weight> {
    let number = text.trim().parse().ok();
    let weight = number.and_then(|number| Weight::new(number).ok());
    weight.ok_or_else(|| {
        let cause = format!("{what} is not a number from 1 to 10000");
        (cause, WEIGHT_REMEDY.to_owned())
    })
}

/// A color by its name, in any case.
pub fn parse_color(word: &str) -> Result<Color, Error> {
    Color::from_name(word)
        .ok_or_else(|| Error::usage(format!("unknown color {word}"), did_you_mean(word, COLORS)))
}

/// A time within a range, see [`justitia_quantity::time`]. Errors as cause and remedy; `what` is the option or
/// key, for them.
pub fn parse_time(what: &str, text: &str, range: RangeInclusive<Duration>) -> Said<Duration> {
    justitia_quantity::time(text)
        .filter(|time| range.contains(time))
        .ok_or_else(|| {
            let range = justitia_quantity::from_to(&range);
            (
                format!("{what} {text} is not a time {range}"),
                "use for example 1s, 500ms or 2m".into(),
            )
        })
}

/// A time between two steps. Errors as those of [`parse_time`].
pub fn parse_interval(what: &str, text: &str) -> Said<Duration> {
    parse_time(what, text, SHORTEST..=MINUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

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
