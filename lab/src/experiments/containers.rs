//! The containers of an experiment: weights, names, and individual differences.

use serde::{Deserialize, Serialize};

use crate::args::RunArgs;
use crate::choices::in_range;
use crate::policy::by_name;
use crate::protocol::Lie;
use justitia_machine::error::{LabError, Result};

/// Maximum number of containers in one guest.
pub const MAX_CONTAINERS: usize = 64;
/// Working and pausing time for `--idle NAME` without a number.
const DEFAULT_DUTY_S: u32 = 15;
/// Growth for `--anon-growth NAME` without a number.
const DEFAULT_ANON_GROWTH: u64 = 8 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Name; slashes nest.
    pub name: String,
    /// I/O weight, 1 to 10000.
    pub weight: u32,
    /// Works for this long, then pauses as long; `None`: works all the time.
    pub duty_s: Option<u32>,
    pub anon_growth_bytes_per_s: u64,
    /// The false color that it declares each second; `None`: nothing.
    pub lie: Option<Lie>,
    /// The unprivileged user who owns it; `None`: root's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
}

/// The containers of a command line, with `default` weights unless it names some.
pub fn containers(args: &RunArgs, default: &[u32]) -> Result<Vec<ContainerSpec>> {
    let weights: Vec<u32> = match args.containers {
        Some(count) => {
            in_range("--containers", count, 1, MAX_CONTAINERS as u64)?;
            (1..=count).map(|i| i * 100).collect()
        }
        None if args.weights.is_empty() => default.to_vec(),
        None => args.weights.clone(),
    };
    if weights.len() > MAX_CONTAINERS {
        return Err(LabError::usage(
            format!("{} containers are too many", weights.len()),
            format!("name at most {MAX_CONTAINERS} weights"),
        ));
    }
    for &weight in &weights {
        in_range("--weights", weight, 1, 10_000)?;
    }
    let names = names(args, &weights)?;
    let mut specs: Vec<ContainerSpec> = names
        .into_iter()
        .zip(weights)
        .map(|(name, weight)| ContainerSpec {
            name,
            weight,
            ..ContainerSpec::default()
        })
        .collect();
    for text in &args.load.idle {
        let (name, value) = name_and_value(text);
        let duty = match value {
            None => DEFAULT_DUTY_S,
            Some(text) => text.parse().ok().filter(|&s| s > 0).ok_or_else(|| {
                LabError::usage(
                    format!("--idle {text} of {name} is not a number of seconds from 1"),
                    "use a whole number, as in w100=15",
                )
            })?,
        };
        named(&mut specs, "--idle", name)?.duty_s = Some(duty);
    }
    for text in &args.load.anon_growth {
        let (name, value) = name_and_value(text);
        let growth = match value {
            None => DEFAULT_ANON_GROWTH,
            Some(text) => crate::args::size(text).map_err(|_| {
                LabError::usage(
                    format!("--anon-growth {text} of {name} is not a size"),
                    "use a size such as 8M",
                )
            })?,
        };
        named(&mut specs, "--anon-growth", name)?.anon_growth_bytes_per_s = growth;
    }
    for text in &args.load.lie {
        let (name, lie) = Lie::of_option(text)?;
        named(&mut specs, "--lie", name)?.lie = Some(lie);
    }
    Ok(specs)
}

/// Given names, validated, or `w100`, `w200`, ... with a number appended if weights repeat.
fn names(args: &RunArgs, weights: &[u32]) -> Result<Vec<String>> {
    if args.names.is_empty() {
        return Ok(weights
            .iter()
            .enumerate()
            .map(|(i, weight)| {
                let earlier = weights[..i].iter().filter(|&w| w == weight).count();
                if earlier == 0 {
                    format!("w{weight}")
                } else {
                    format!("w{weight}-{}", earlier + 1)
                }
            })
            .collect());
    }
    if args.names.len() != weights.len() {
        return Err(LabError::usage(
            format!(
                "{} names for {} containers",
                args.names.len(),
                weights.len()
            ),
            "give --names as many names as there are weights",
        ));
    }
    for (i, name) in args.names.iter().enumerate() {
        let good_part = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if name.len() > 100 || !name.split('/').all(good_part) {
            return Err(LabError::usage(
                format!("'{name}' cannot name a container"),
                "use letters, digits, '-', '_' and '.', with '/' between levels",
            ));
        }
        let clash = args.names[..i].iter().find(|other| {
            name == *other
                || name.starts_with(&format!("{other}/"))
                || other.starts_with(&format!("{name}/"))
        });
        if let Some(other) = clash {
            return Err(LabError::usage(
                format!("'{name}' and '{other}' cannot both be containers"),
                "give every container a name of its own, none inside another",
            ));
        }
    }
    Ok(args.names.clone())
}

fn name_and_value(text: &str) -> (&str, Option<&str>) {
    text.split_once('=')
        .map_or((text, None), |(name, value)| (name, Some(value)))
}

fn named<'a>(
    specs: &'a mut [ContainerSpec],
    option: &str,
    name: &str,
) -> Result<&'a mut ContainerSpec> {
    let cause = || format!("{option} {name}: no such container");
    by_name(specs, |spec| &spec.name, name, cause)
}
