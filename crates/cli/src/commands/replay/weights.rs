//! Other weights than the recorded ones: `--weight GROUP=N`, then the configuration's `[weights]`.

use std::cell::Cell;

use justitia_agent::config::{GLOB_REMEDY, WEIGHT_REMEDY};
use justitia_agent::{Error, Result, Settings};
use justitia_discover::Glob;
use justitia_policy::snapshot::Group;
use justitia_policy::units::Weight;

/// Which group gets which weight.
#[derive(Debug)]
pub(super) struct Weights {
    named: Vec<Named>,
    globs: Vec<(Glob, Weight)>,
}

#[derive(Debug)]
struct Named {
    group: String,
    weight: Weight,
    used: Cell<bool>,
}

impl Weights {
    /// From the arguments and the configuration.
    pub(super) fn new(arguments: &[String], settings: Option<&Settings>) -> Result<Weights> {
        let named = arguments.iter().map(|argument| named(argument));
        let globs = settings.map(|settings| settings.weights.as_slice());
        let globs = globs.unwrap_or_default().iter().map(|(glob, weight)| {
            let glob = Glob::new(glob).map_err(|error| Error::usage(error, GLOB_REMEDY))?;
            Ok((glob, *weight))
        });
        Ok(Weights {
            named: named.collect::<Result<_>>()?,
            globs: globs.collect::<Result<_>>()?,
        })
    }

    /// The weight for this group; `None`: the one it had.
    pub(super) fn of(&self, group: &Group) -> Option<Weight> {
        let names = |named: &&Named| {
            let name = named.group.trim_end_matches('/');
            let last = group.path.rsplit('/').next().unwrap_or_default();
            group.path == name || last == name
        };
        if let Some(named) = self.named.iter().rfind(names) {
            named.used.set(true);
            return Some(named.weight);
        }
        // Globs are for groups that are managed, not for those that hold them.
        group.weight?;
        let matches = |(glob, _): &&(Glob, Weight)| glob.matches(&group.path);
        self.globs.iter().find(matches).map(|(_, weight)| *weight)
    }

    /// A name that no group has is a mistake.
    pub(super) fn check_used(&self) -> Result<()> {
        match self.named.iter().find(|named| !named.used.get()) {
            Some(named) => Err(Error::usage(
                format!("no group {} in this record", named.group),
                "justitia replay FILE lists its groups",
            )),
            None => Ok(()),
        }
    }
}

fn named(argument: &str) -> Result<Named> {
    let (group, number) = argument.rsplit_once('=').ok_or_else(|| {
        Error::usage(
            format!("weight {argument} is not of the form GROUP=N"),
            "write for example --weight db=800",
        )
    })?;
    let weight = number.parse().ok();
    let weight = weight.and_then(|number| Weight::new(number).ok());
    let weight = weight.ok_or_else(|| {
        Error::usage(
            format!("weight {number} of {group} is not a number from 1 to 10000"),
            WEIGHT_REMEDY,
        )
    })?;
    Ok(Named {
        group: group.to_owned(),
        weight,
        used: Cell::new(false),
    })
}
