//! The weight of a group, from the first place that states one: configuration, xattr, OCI
//! annotation, OCI blockIO, `io.weight` or `io.bfq.weight`, 100.

use std::collections::HashMap;

use justitia_cgroup::{xattr, Error, Group, GroupId};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use crate::oci::Record;
use crate::Glob;

/// What knobs held before an agent wrote to them.
pub type Priors = HashMap<(GroupId, Knob), Value>;

/// The places that may change while a group lives are asked at every scan; the kernel's files
/// once, before we write to them ourselves.
pub(crate) fn of_group(
    group: &Group,
    configured: &[(Glob, Weight)],
    record: Option<&Record>,
    file: Option<Weight>,
) -> Result<(Weight, WeightSource), Error> {
    let by_config = configured
        .iter()
        .find(|(glob, _)| glob.matches(group.path()));
    if let Some((_, weight)) = by_config {
        return Ok((*weight, WeightSource::Config));
    }
    let by_xattr = group
        .xattr(xattr::WEIGHT)?
        .and_then(|text| text.parse().ok())
        .and_then(|value| Weight::new(value).ok());
    if let Some(weight) = by_xattr {
        return Ok((weight, WeightSource::Xattr));
    }
    if let Some(weight) = record.and_then(|record| record.annotation) {
        return Ok((weight, WeightSource::OciAnnotation));
    }
    if let Some(weight) = record.and_then(|record| record.block_io) {
        return Ok((weight, WeightSource::OciBlockIo));
    }
    Ok(match file {
        Some(weight) => (weight, WeightSource::IoWeight),
        None => (Weight::DEFAULT, WeightSource::Default),
    })
}

/// What the kernel's files say, if they say more than the default. `io.weight` first: systemd
/// writes it as it was meant and squeezes it into `io.bfq.weight`; runc writes only the latter
/// where it exists and leaves the former at 100. Where an agent wrote, what was there before counts.
pub(crate) fn of_files(group: &Group, priors: &Priors) -> Result<Option<Weight>, Error> {
    for knob in [Knob::IoWeight, Knob::IoBfqWeight] {
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
