//! The watch on what decisions cost.

use justitia_policy::plan::Phase;

use super::{plain, Field, Get, Kind};

/// About each kind of decisions: not there before the first one.
pub(crate) const WATCH: &[Field] = &[
    plain(
        "watch[].decision",
        "",
        "A kind of decisions that can rest: limits (memory.high by weight), gains (in block weights), \
         io_cost.",
    ),
    plain(
        "watch[].phase",
        "",
        "Whether it is in_force, rests (for a comparison), withdrawn (it cost more than max_loss), or idle \
         (there is nothing to decide); the metric is 1 while it is withdrawn.",
    )
    .gauge(
        "justitia_decision_withdrawn",
        "",
        Get::Watch(|finding| Some(f64::from(u8::from(finding.phase == Phase::Withdrawn)))),
    ),
    plain(
        "watch[].withdrawn_s",
        "s",
        "Time until it gets another chance; null: it is not withdrawn.",
    ),
    plain("watch[].rests", "", "How often it rested and was compared.").metric(
        "justitia_decision_rests",
        Kind::Counter,
        "",
        Get::Watch(|finding| Some(finding.rests as f64)),
    ),
    plain(
        "watch[].loss.mean",
        "",
        "The part of the traffic of all groups together that it costs, the mean of the comparisons; below 0 \
         they gain. Null: compared less than twice.",
    )
    .gauge(
        "justitia_decision_loss_ratio",
        "ratio",
        Get::Watch(|finding| Some(finding.loss?.mean)),
    ),
    plain(
        "watch[].loss.least",
        "",
        "The lower bound of its interval of 95 %.",
    )
    .gauge(
        "justitia_decision_least_loss_ratio",
        "ratio",
        Get::Watch(|finding| Some(finding.loss?.least)),
    ),
    plain(
        "watch[].loss.most",
        "",
        "The upper bound of its interval of 95 %.",
    )
    .gauge(
        "justitia_decision_most_loss_ratio",
        "ratio",
        Get::Watch(|finding| Some(finding.loss?.most)),
    ),
];
