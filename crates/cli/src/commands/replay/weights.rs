//! Overrides of recorded values: weights by `--weight GROUP=N`, then by the configuration's `[weights]`; page
//! cache beyond a share by `--more GROUP=SIZE`.

use std::cell::Cell;

use justitia_agent::config::{parse_weight, GLOB_REMEDY, SIZE_REMEDY};
use justitia_agent::{Error, Result, Settings};
use justitia_discover::Glob;
use justitia_policy::snapshot::Group;
use justitia_policy::units::{Bytes, Weight};

#[derive(Debug)]
pub(super) struct Weights {
    named: Named<Weight>,
    globs: Vec<(Glob, Weight)>,
}

/// Values of arguments `GROUP=VALUE`: a group by its path, or the last part of it.
#[derive(Debug)]
pub(super) struct Named<T> {
    /// Name, value, and whether the record has a group of this name.
    values: Vec<(String, T, Cell<bool>)>,
}

impl<T: Copy> Named<T> {
    /// The value for this group; the last one wins.
    pub(super) fn of(&self, group: &Group) -> Option<T> {
        let last = group.path.rsplit('/').next().unwrap_or_default();
        let names = |(name, ..): &&(String, T, Cell<bool>)| {
            let name = name.trim_end_matches('/');
            group.path == name || last == name
        };
        let (_, value, used) = self.values.iter().rfind(names)?;
        used.set(true);
        Some(*value)
    }

    /// Refuses a name that no group of the record has.
    pub(super) fn check_used(&self) -> Result<()> {
        match self.values.iter().find(|(.., used)| !used.get()) {
            Some((name, ..)) => Err(Error::usage(
                format!("no group {name} in this record"),
                "justitia replay FILE lists its groups",
            )),
            None => Ok(()),
        }
    }
}

/// Parses arguments. `what` names the value in errors, `example` is an example of an argument.
fn named<T>(
    arguments: &[String],
    what: &str,
    example: &str,
    read: impl Fn(&str, &str) -> Result<T>,
) -> Result<Named<T>> {
    let one = |argument: &String| {
        let (group, value) = argument.rsplit_once('=').ok_or_else(|| {
            Error::usage(
                format!("{what} {argument} is not of the form GROUP=VALUE"),
                format!("write for example {example}"),
            )
        })?;
        Ok((group.to_owned(), read(group, value)?, Cell::new(false)))
    };
    let values = arguments.iter().map(one).collect::<Result<_>>()?;
    Ok(Named { values })
}

/// Parses `--more GROUP=SIZE`.
pub(super) fn more(arguments: &[String]) -> Result<Named<Bytes>> {
    named(arguments, "--more", "--more db=200M", |group, size| {
        justitia_quantity::size(size).map(Bytes).map_err(|why| {
            Error::usage(format_args!("--more {size} of {group} {why}"), SIZE_REMEDY)
        })
    })
}

impl Weights {
    pub(super) fn new(arguments: &[String], settings: Option<&Settings>) -> Result<Weights> {
        let globs = settings.map(|settings| settings.weights.as_slice());
        let globs = globs.unwrap_or_default().iter().map(|(glob, weight)| {
            let glob = Glob::new(glob).map_err(|error| Error::usage(error, GLOB_REMEDY))?;
            Ok((glob, *weight))
        });
        let weight = |group: &str, number: &str| {
            Ok(parse_weight(
                &format!("--weight {number} of {group}"),
                number,
            )?)
        };
        Ok(Weights {
            named: named(arguments, "--weight", "--weight db=800", weight)?,
            globs: globs.collect::<Result<_>>()?,
        })
    }

    /// The new weight of this group; `None`: the recorded one.
    pub(super) fn of(&self, group: &Group) -> Option<Weight> {
        if let Some(weight) = self.named.of(group) {
            return Some(weight);
        }
        // Globs apply to managed groups, not to their unmanaged ancestors.
        group.weight?;
        let matches = |(glob, _): &&(Glob, Weight)| glob.matches(&group.path);
        self.globs.iter().find(matches).map(|(_, weight)| *weight)
    }

    /// See [`Named::check_used`].
    pub(super) fn check_used(&self) -> Result<()> {
        self.named.check_used()
    }
}
