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
    pub(super) named: Named<Weight>,
    globs: Vec<(Glob, Weight)>,
}

/// Values of arguments `GROUP=VALUE`: a group by its path, or the last part of it.
#[derive(Debug)]
pub(super) struct Named<T> {
    /// Name, value, and whether the record has a group of this name.
    values: Vec<(String, T, Cell<bool>)>,
}

impl<T: Copy> Named<T> {
    pub(super) fn new(values: &[(String, T)]) -> Named<T> {
        let unused = |(name, value): &(String, T)| (name.clone(), *value, Cell::new(false));
        Named {
            values: values.iter().map(unused).collect(),
        }
    }

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

/// Group and value of an argument. `option` and `example` are for errors.
fn pair<'a>(option: &str, argument: &'a str, example: &str) -> Result<(&'a str, &'a str)> {
    argument.rsplit_once('=').ok_or_else(|| {
        Error::usage(
            format!("{option} {argument} is not of the form GROUP=VALUE"),
            format!("write for example {option} {example}"),
        )
    })
}

/// Parses the value of `--weight`.
pub(super) fn weight(argument: &str) -> Result<(String, Weight)> {
    let (group, number) = pair("--weight", argument, "db=800")?;
    let weight = parse_weight(&format!("--weight {number} of {group}"), number)?;
    Ok((group.to_owned(), weight))
}

/// Parses the value of `--more`.
pub(super) fn more(argument: &str) -> Result<(String, Bytes)> {
    let (group, size) = pair("--more", argument, "db=200M")?;
    let refused = |why| Error::usage(format!("--more {size} of {group} {why}"), SIZE_REMEDY);
    let bytes = justitia_quantity::size(size).map_err(refused)?;
    Ok((group.to_owned(), Bytes(bytes)))
}

impl Weights {
    pub(super) fn new(named: &[(String, Weight)], settings: Option<&Settings>) -> Result<Weights> {
        let globs = settings.map(|settings| settings.weights.as_slice());
        let globs = globs.unwrap_or_default().iter().map(|(glob, weight)| {
            let glob = Glob::new(glob).map_err(|error| Error::usage(error, GLOB_REMEDY))?;
            Ok((glob, *weight))
        });
        Ok(Weights {
            named: Named::new(named),
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
}
