//! The weight of a group, from the first place that states one: configuration, xattr, pod annotation, OCI
//! annotation, OCI blockIO, `io.weight` or `io.bfq.weight`, a pod's QoS class, 100. Which of these count
//! depends on the owner of the group's directory ([`Standing`]).

use std::collections::BTreeMap;

use justitia_cgroup::{xattr, Error, Group, GroupId};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use crate::Glob;

/// Values of knobs before an agent wrote to them.
pub type Priors = BTreeMap<(GroupId, Knob), Value>;

/// Place of a group in the tree, which decides whose statement of its weight counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its directory is root's.
    Roots,
    /// Root delegated its directory, or it is a container, whose root may write to root's directory. Its weight
    /// counts outside, so only root may state it.
    DelegationRoot,
    /// It lies below a delegated directory, or below a container. Its weight counts inside, whoever stated it.
    Inside,
}

/// Parses a weight in an attribute or a record.
pub(crate) fn parse(text: &str) -> Option<Weight> {
    Weight::new(text.trim().parse().ok()?).ok()
}

/// Weights stated for a group outside the kernel's files: `first` comes before these files, `last` after.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stated {
    pub(crate) first: Option<(Weight, WeightSource)>,
    pub(crate) last: Option<(Weight, WeightSource)>,
}

/// Reads at every scan the places that may change while a group lives. `file` is the weight in the kernel's files
/// ([`of_files`]). An attribute that does not parse counts as none. `stated` comes from somebody who may state the
/// group's weight.
pub(crate) fn of_group(
    group: &Group,
    standing: Standing,
    configured: &[(Glob, Weight)],
    stated: Stated,
    file: Option<Weight>,
) -> Result<(Weight, WeightSource), Error> {
    let attribute = |name| group.xattr(name).map(|text| parse(&text?));
    let by_config = configured
        .iter()
        .find(|(glob, _)| glob.matches(group.path()));
    if let Some((_, weight)) = by_config {
        return Ok((*weight, WeightSource::Config));
    }
    let by_xattr = match standing {
        Standing::Roots => attribute(xattr::WEIGHT)?,
        Standing::DelegationRoot => attribute(xattr::WEIGHT_OF_DELEGATED)?,
        Standing::Inside => match attribute(xattr::WEIGHT_OF_DELEGATED)? {
            None => attribute(xattr::WEIGHT)?,
            some => some,
        },
    };
    if let Some(weight) = by_xattr {
        return Ok((weight, WeightSource::Xattr));
    }
    let by_file = file.map(|weight| (weight, WeightSource::IoWeight));
    let stated = stated.first.or(by_file).or(stated.last);
    Ok(stated.unwrap_or((Weight::DEFAULT, WeightSource::Default)))
}

/// The weight in the kernel's files, unless it is the default. `io.weight` comes first: systemd writes the
/// intended value there and scales it into `io.bfq.weight`. Where the latter exists, runc writes only that
/// one and leaves `io.weight` at 100. Where an agent wrote, the value before it counts.
pub(crate) fn of_files(group: &Group, priors: &Priors) -> Result<Option<Weight>, Error> {
    for knob in Knob::weights() {
        let value = match priors.get(&(group.id(), knob)) {
            Some(prior) => Some(*prior),
            None => group.read_knob(knob)?,
        };
        if let Some(Value::Weight(value)) = value {
            match Weight::new(value) {
                Ok(weight) if weight != Weight::DEFAULT => return Ok(Some(weight)),
                _ => {}
            }
        }
    }
    Ok(None)
}
