//! The weight of a group, from the first place that states one: configuration, xattr, OCI
//! annotation, OCI blockIO, `io.weight` or `io.bfq.weight`, 100.

use justitia_cgroup::{xattr, Error, Group};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use crate::oci::Record;
use crate::Glob;

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
/// where it exists and leaves the former at 100.
pub(crate) fn of_files(group: &Group) -> Result<Option<Weight>, Error> {
    for knob in [Knob::IoWeight, Knob::IoBfqWeight] {
        if let Some(Value::Weight(value)) = group.read_knob(knob)? {
            match Weight::new(value) {
                Ok(weight) if weight != Weight::DEFAULT => return Ok(Some(weight)),
                _ => {}
            }
        }
    }
    Ok(None)
}
