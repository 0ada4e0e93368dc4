//! The weight of a group, from the first place that states one: configuration, xattr, pod annotation, OCI
//! annotation, OCI blockIO, `io.weight` or `io.bfq.weight`, a pod's QoS class, 100. Which of these count
//! depends on whose the group's directory is ([`Standing`]).

use std::collections::BTreeMap;

use justitia_cgroup::{xattr, Attribute, Buffer, Error, Group, GroupId};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use crate::oci::Record;
use crate::Glob;

/// What knobs held before an agent wrote to them.
pub type Priors = BTreeMap<(GroupId, Knob), Value>;

/// Where a group lies, as seen by who may have a say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its directory is root's.
    Roots,
    /// Root delegated its directory, and its weight counts outside: only root's word is one.
    DelegationRoot,
    /// It lies below a delegated directory: its weight counts inside, whoever stated it.
    Inside,
}

/// A weight that an attribute or a record states.
pub(crate) fn parse(text: &str) -> Option<Weight> {
    Weight::new(text.trim().parse().ok()?).ok()
}

/// What is stated of a group elsewhere than in the kernel: before its files count, and after.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stated {
    pub(crate) first: Option<(Weight, WeightSource)>,
    pub(crate) last: Option<(Weight, WeightSource)>,
}

impl Stated {
    /// By a runtime's record.
    pub(crate) fn by(record: Option<&Record>) -> Option<(Weight, WeightSource)> {
        let record = record?;
        let annotation = record.annotation.map(|w| (w, WeightSource::OciAnnotation));
        let block_io = record.block_io.map(|w| (w, WeightSource::OciBlockIo));
        annotation.or(block_io)
    }
}

/// The places that may change while a group lives are asked at every scan; the kernel's files
/// once, before we write to them ourselves. An attribute that is no weight is none. `stated`: by somebody
/// who may have a say about the group.
pub(crate) fn of_group(
    group: &Group,
    standing: Standing,
    configured: &[(Glob, Weight)],
    stated: Stated,
    file: Option<Weight>,
) -> Result<(Weight, WeightSource), Error> {
    let attribute = |name| attribute(group, name);
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

fn attribute(group: &Group, name: &'static str) -> Result<Option<Weight>, Error> {
    let mut buffer = Buffer::new();
    let set = group.read_xattr(name, &mut buffer)? == Attribute::Set;
    let text = std::str::from_utf8(buffer.bytes()).unwrap_or_default();
    Ok(parse(text.trim_end_matches('\0')).filter(|_| set))
}

/// What the kernel's files say, if they say more than the default. `io.weight` first: systemd
/// writes it as it was meant and squeezes it into `io.bfq.weight`; runc writes only the latter
/// where it exists and leaves the former at 100. Where an agent wrote, what was there before counts.
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
