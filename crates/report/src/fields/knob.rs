//! The values of each group's knobs: one metric for each knob with a gauge in the table of knobs.

use justitia_policy::knob::Knob;

use super::{extra, Field, Get};

/// Knobs with a metric.
const COUNT: usize = {
    let (mut at, mut count) = (0, 0);
    while at < Knob::ALL.len() {
        count += Knob::ALL[at].gauge().is_some() as usize;
        at += 1;
    }
    count
};

pub(crate) const KNOBS: &[Field] = &{
    let mut fields = [extra(""); COUNT];
    let (mut at, mut count) = (0, 0);
    while at < Knob::ALL.len() {
        let knob = Knob::ALL[at];
        if let Some(gauge) = knob.gauge() {
            fields[count] = extra(gauge.help).gauge(gauge.name, Get::Knob(knob));
            count += 1;
        }
        at += 1;
    }
    fields
};
