//! Measured costs of decisions.

use justitia_policy::plan::Phase;

use super::{field, Field, Get};

/// Fields of each kind of decision, absent before the first such decision.
#[rustfmt::skip]
pub(crate) const WATCH: &[Field] = &[
    field("watch[].decision", "",
        "Kind of decision that the watch can suspend: limits (memory.high by weight), gains (in block \
         weights), io_cost."),
    field("watch[].phase", "",
        "in_force; suspended (to measure its cost); withdrawn (it cost more than max_loss); or idle (no such \
         decision now). The metric is 1 while it is withdrawn.")
        .gauge(
            "justitia_decision_withdrawn",
            Get::Watch(|finding| Some(f64::from(u8::from(finding.phase == Phase::Withdrawn)))),
        ),
    field("watch[].withdrawn_s", "s", "Time until the withdrawal ends; null: not withdrawn."),
    field("watch[].comparisons", "", "Comparisons of the traffic with and without such decisions.")
        .counter("justitia_decision_comparisons", Get::Watch(|finding| Some(finding.comparisons as f64))),
    field("watch[].loss.mean", "",
        "Mean cost, as a part of the traffic of all groups together; below 0 they gain. Null: fewer than two \
         comparisons.")
        .gauge("justitia_decision_loss_ratio", Get::Watch(|finding| Some(finding.loss?.mean))),
    field("watch[].loss.least", "", "Lower bound of the 95 % interval of the cost.")
        .gauge("justitia_decision_least_loss_ratio", Get::Watch(|finding| Some(finding.loss?.least))),
    field("watch[].loss.most", "", "Upper bound of the 95 % interval of the cost.")
        .gauge("justitia_decision_most_loss_ratio", Get::Watch(|finding| Some(finding.loss?.most))),
];
