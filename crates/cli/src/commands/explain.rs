//! `justitia explain GROUP`: shows one group's weight, its entitlement by that weight, and its knobs.

use clap::builder::NonEmptyStringValueParser;
use clap::Args;
use justitia_agent::socket::ask;
use justitia_agent::Result;
use justitia_report::shortfall;
use justitia_report::status::{
    source_words, DeviceStatus, GroupStatus, PlannedWrite, Report, VerdictStatus,
};
use serde::Serialize;

use super::color;
use super::worth;
use crate::output::{self, Page, Screen};
use crate::settings::{self, OutputArgs};

/// Arguments of `justitia explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  justitia explain /app/db
  justitia explain db --json")]
pub(crate) struct ExplainArgs {
    /// Path of the group relative to the cgroup2 mount, its name or container ID
    #[arg(value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: String,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The output of `--json`: the group as in `status`, the last step's writes to it, and the disks.
#[derive(Debug, Serialize)]
struct Explanation<'a> {
    #[serde(flatten)]
    group: &'a GroupStatus,
    /// Reasons why it is below its share.
    below_share_because: Vec<String>,
    writes: Vec<&'a PlannedWrite>,
    devices: &'a [DeviceStatus],
}

pub(crate) fn run(args: &ExplainArgs) -> Result<()> {
    let report = ask(&settings::load(&args.output.config)?.socket())?;
    let group = report.named(&args.group)?;
    let writes = report.writes.iter();
    let explanation = Explanation {
        group,
        below_share_because: shortfall::reasons(&report, group),
        writes: writes.filter(|write| write.path == group.path).collect(),
        devices: &report.devices,
    };
    output::print(args.output.json, &explanation, |screen| {
        render(&report, group, screen)
    })
}

fn render(report: &Report, group: &GroupStatus, screen: Screen) -> Page {
    let mut text = Page::on(screen);
    write!(text, "{} (cgroup {})\n\n", group.path, group.id);
    let source = source_words(group.weight_source);
    writeln!(text, "  weight      {} from {source}", group.weight);
    let (memory, cache) = (group.current_bytes, group.file_bytes);
    let (memory, cache) = (output::bytes(memory), output::bytes(cache));
    writeln!(text, "  memory      {memory}, {cache} of it page cache");
    let reservations = report.guard.iter().flat_map(|guard| &guard.reservations);
    for reservation in reservations.filter(|known| known.path == group.path) {
        let (bytes, left_s) = (reservation.bytes, reservation.left_s);
        writeln!(
            text,
            "  reserved    {bytes} of free memory, {left_s:.0} s left"
        );
    }
    match &group.verdict {
        None if report.divides(group) => {
            text.push_str("  verdict     none: it divides its share among the groups in it\n");
        }
        None => text.push_str("  verdict     none before the first step\n"),
        Some(verdict) => push_verdict(&mut text, report, group, verdict),
    }
    for finding in &report.watch {
        writeln!(text, "  watch       {finding}");
    }
    push_knobs(&mut text, report, group);
    text
}

/// The results of the last step.
fn push_verdict(text: &mut Page, report: &Report, group: &GroupStatus, verdict: &VerdictStatus) {
    let proportion = output::percent(Some(verdict.proportion));
    writeln!(text, "  share       {proportion} of the managed weight");
    let entitlement = output::bytes(verdict.entitlement_bytes);
    writeln!(text, "  entitlement {entitlement} of page cache");
    let threshold = output::bytes(verdict.threshold_bytes);
    writeln!(
        text,
        "  threshold   {threshold} of page cache are not reclaimed while others hold more than theirs"
    );
    writeln!(
        text,
        "  bandwidth   {} MB/s, {} MB/s of it through the disk; {} of its ideal",
        output::megabytes_per_s(verdict.bytes_per_s),
        output::megabytes_per_s(verdict.transferable_bytes_per_s),
        output::ratio(verdict.of_ideal),
    );
    for reason in shortfall::reasons(report, group) {
        writeln!(text, "  below share {reason}");
    }
    let contending = if verdict.contending {
        "contends"
    } else {
        "does not contend"
    };
    let stalled = output::percent(verdict.stalled);
    writeln!(
        text,
        "  pressure    stalled {stalled} of the time: {contending}"
    );
    text.push_str("  color       ");
    text.paint(verdict.color, &color::words(report, group));
    text.push_str("\n");
    if verdict.cap_bytes.is_some() {
        let cap = output::bytes(verdict.cap_bytes);
        writeln!(
            text,
            "  gives       holds at most {cap} of page cache, for others that are worse off"
        );
    }
    if let Some(words) = worth::stake(verdict) {
        writeln!(text, "  worth       {words}");
    }
    if verdict.working_set_bytes.is_some() {
        let working_set = output::bytes(verdict.working_set_bytes);
        writeln!(
            text,
            "  working set about {working_set} of memory keep it satisfied"
        );
    }
    writeln!(text, "  gain        {:.2}", verdict.gain);
}

/// The knobs of the group and the disks, and the last step's writes to the group.
fn push_knobs(text: &mut Page, report: &Report, group: &GroupStatus) {
    text.push_str("\n  knob            now            before us\n");
    for knob in &group.knobs {
        let prior = output::prior_value(knob);
        let now = output::knob_value(&knob.now, knob.knob.is_memory());
        writeln!(text, "  {:<15} {now:<14} {prior}", knob.knob);
    }
    for (knob, prior) in report.devices.iter().flat_map(super::status::device_words) {
        let (name, now) = (knob.knob.file_name(), &knob.now);
        writeln!(text, "  {name:<15} {now:<14} {prior}");
    }
    let writes = report.writes.iter();
    let mut writes = writes.filter(|write| write.path == group.path).peekable();
    if writes.peek().is_some() {
        text.push_str("\n  last step\n");
    }
    for write in writes {
        let value = output::knob_value(&write.value, write.knob.is_memory());
        writeln!(text, "  {:<15} {value:<14} {}", write.knob, write.because);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::commands::status::tests::example;

    pub(crate) fn rendered(report: &Report, group: &GroupStatus) -> Page {
        render(report, group, Screen::FILE)
    }

    #[test]
    fn weight_share_threshold_and_knobs_are_all_there() {
        let report = example();
        let group = report.named("db").unwrap();
        let text = render(&report, group, Screen::FILE);
        for words in [
            "800 from xattr justitia.weight",
            "88.9% of the managed weight",
            "390.0 MiB of page cache are not reclaimed",
            "0.93 of its ideal",
            "stalled 40.0% of the time: contends",
            "color       red, inferred",
            "worth       lends 40.0 MiB of its share: its reads hit as often with 150.0 MiB",
            "working set about 250.0 MiB of memory keep it satisfied",
            "memory.low      390.0 MiB      0 B",
            "memory.high     max            set by somebody else, left alone",
            "io.weight       800            100",
            "low_latency     0              1 (disk nvme0n1)",
            "memory.high     391.0 MiB      no contention",
        ] {
            assert!(text.contains(words), "{words}:\n{text}");
        }
    }

    #[test]
    fn a_reservation_and_the_memory_taken_are_printed() {
        use justitia_policy::snapshot::Reservation;
        use justitia_policy::units::Bytes;
        use justitia_report::status::GuardStatus;
        let mut report = example();
        report.guard = Some(GuardStatus {
            reserve_bytes: 600 << 20,
            spare_bytes: Some(20 << 20),
            taken_total_bytes: 7 << 20,
            reservations: vec![Reservation {
                path: "/app/db".into(),
                bytes: Bytes::mib(512),
                left_s: 41.6,
            }],
            ..GuardStatus::default()
        });
        let group = report.named("db").unwrap();
        let text = render(&report, group, Screen::FILE);
        let told = "reserved    512.0 MiB of free memory, 42 s left";
        assert!(text.contains(told), "{text}");
        let other = report.named("new").unwrap();
        assert!(!render(&report, other, Screen::FILE).contains("reserved"));
        let status = crate::commands::status::tests::rendered(&report);
        for words in [
            "guard: 600.0 MiB to keep free, 20.0 MiB are free",
            "512.0 MiB for /app/db",
        ] {
            assert!(status.contains(words), "{words}:\n{status}");
        }
    }

    #[test]
    fn the_reason_of_a_shortfall_is_printed() {
        let mut report = example();
        report.groups[0].verdict.as_mut().unwrap().of_ideal = Some(0.4);
        let text = render(&report, &report.groups[0], Screen::FILE);
        assert!(
            text.contains("below share another program set its memory.high"),
            "{text}"
        );
    }

    #[test]
    fn a_long_value_is_apart_from_the_one_before_us() {
        let mut report = example();
        report.devices[0].knobs[0].now = "8:0 ctrl=user model=linear".into();
        let text = render(&report, &report.groups[0], Screen::FILE);
        assert!(text.contains("model=linear 1 (disk nvme0n1)"), "{text}");
    }

    #[test]
    fn a_group_that_holds_groups_is_said_to_divide_its_share() {
        let mut report = example();
        report.groups[1].path = "/app".into();
        let text = render(&report, &report.groups[1], Screen::FILE);
        assert!(text.contains("divides its share among"), "{text}");
        report.groups[1].path = "/app/d".into();
        let text = render(&report, &report.groups[1], Screen::FILE);
        assert!(text.contains("before the first step"), "{text}");
    }

    #[test]
    fn an_unknown_group_is_answered_with_the_known_ones() {
        let report = example();
        let error = report.named("/app/dc").unwrap_err();
        assert_eq!(error.remedy, "managed groups: /app/db /app/new");
    }
}
