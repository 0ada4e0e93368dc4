//! `justitia worth`: shows the worth of page cache to each group as a table, or the miss-ratio curve of one
//! group.

use clap::builder::NonEmptyStringValueParser;
use clap::Args;
use justitia_agent::socket::ask;
use justitia_agent::Result;
use justitia_report::status::{GroupStatus, Report, VerdictStatus, WorthStatus, MORE};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget as _};
use serde::Serialize;

use crate::output::{self, bandwidth, bytes, percent, Page, Screen, Table};
use crate::settings::{self, OutputArgs};

/// Arguments of `justitia worth`.
#[derive(Debug, Args)]
#[command(after_help = "\
HITS is the part of a group's buffered reads that its page cache answers, by its curve. HALF and TWICE are the same \
with half and with twice the page cache that it holds. 64 MIB MORE is the disk reads that 64 MiB more page cache \
would save. Beyond its KNEE more memory brings clearly less. A dash means not known yet. With GROUP, the command \
draws the group's curve.

Examples:
  justitia worth
  justitia worth db
  justitia worth --json | jq '.[] | {path, more: .worth.more_bytes_per_s}'")]
pub(crate) struct WorthArgs {
    /// Path of a group relative to the cgroup2 mount, its name or container ID
    #[arg(value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Size of a drawing: lines, and columns if the terminal is wider or its width is unknown.
const HEIGHT: u16 = 16;
const WIDTH: u16 = 100;
/// The drawing's range of page cache extends to this factor of the largest size of interest.
const BEYOND: f64 = 1.1;

/// The output of `--json` for a group.
#[derive(Debug, Serialize)]
struct GroupWorth<'a> {
    path: &'a str,
    file_bytes: Option<u64>,
    entitlement_bytes: Option<u64>,
    needs_bytes: Option<u64>,
    lends_bytes: Option<u64>,
    borrows_bytes: Option<u64>,
    worth: Option<&'a WorthStatus>,
}

impl<'a> GroupWorth<'a> {
    fn of(group: &'a GroupStatus) -> GroupWorth<'a> {
        let verdict = group.verdict.as_ref();
        GroupWorth {
            path: &group.path,
            file_bytes: group.file_bytes,
            entitlement_bytes: verdict.map(|verdict| verdict.entitlement_bytes),
            needs_bytes: verdict.and_then(|verdict| verdict.needs_bytes),
            lends_bytes: verdict.and_then(|verdict| verdict.lends_bytes),
            borrows_bytes: verdict.and_then(|verdict| verdict.borrows_bytes),
            worth: group.worth.as_ref(),
        }
    }
}

pub(crate) fn run(args: &WorthArgs) -> Result<()> {
    let report = ask(&settings::load(&args.output.config)?.socket())?;
    let Some(name) = &args.group else {
        let groups: Vec<GroupWorth> = report.groups.iter().map(GroupWorth::of).collect();
        return output::print(args.output.json, &groups, |screen| render(&report, screen));
    };
    let group = report.named(name)?;
    output::print(args.output.json, &GroupWorth::of(group), |screen| {
        draw(group, screen)
    })
}

fn render(report: &Report, screen: Screen) -> Page {
    let groups = report.groups.iter();
    Table::of(groups.map(|group| (group, GroupWorth::of(group))))
        .left("GROUP", 0, |(group, _)| group.label())
        .right("CACHE", 0, |(_, of)| bytes(of.file_bytes))
        .right("ENTITLED", 1, |(_, of)| bytes(of.entitlement_bytes))
        .right("LENDS", 2, |(_, of)| bytes(of.lends_bytes))
        .right("BORROWS", 2, |(_, of)| bytes(of.borrows_bytes))
        .right("HITS", 0, |(_, of)| hits(of, |w| w.now_hit_ratio))
        .right("HALF", 1, |(_, of)| hits(of, |w| w.half_hit_ratio))
        .right("TWICE", 1, |(_, of)| hits(of, |w| w.twice_hit_ratio))
        .right("64 MIB MORE", 0, |(_, of)| {
            bandwidth(of.worth.and_then(|w| w.more_bytes_per_s))
        })
        .right("KNEE", 3, |(_, of)| {
            bytes(of.worth.and_then(|w| w.knee_bytes))
        })
        .render_groups(screen)
}

fn hits(of: &GroupWorth, ratio: fn(&WorthStatus) -> Option<f64>) -> String {
    percent(of.worth.and_then(ratio))
}

/// The curve, the group's place on it, and an explanation.
fn draw(group: &GroupStatus, screen: Screen) -> Page {
    let mut text = Page::new();
    let of = GroupWorth::of(group);
    let (holds, entitled) = (of.file_bytes, of.entitlement_bytes);
    writeln!(
        text,
        "{}  holds {} of page cache, entitled to {}",
        group.path,
        bytes(holds),
        bytes(entitled),
    );
    let Some(worth) = of.worth else {
        text.push_str("no curve yet: it needs the BPF observer and reads\n");
        return text;
    };
    writeln!(
        text,
        "reads {}, {} from page cache",
        bandwidth(Some(worth.asked_bytes_per_s)),
        percent(worth.now_hit_ratio),
    );
    writeln!(
        text,
        "{MORE} more would save {}; knee {}",
        bandwidth(worth.more_bytes_per_s),
        bytes(worth.knee_bytes),
    );
    if let Some(words) = group.verdict.as_ref().and_then(stake) {
        writeln!(text, "{words}");
    }
    text.push_str("\nhit ratio by page cache: ⠒ the curve  ▒ it holds  │ it is entitled to\n");
    for line in chart(worth, holds, entitled, screen) {
        writeln!(text, "{}", line.trim_end());
    }
    text
}

/// A group's need, lending or borrowing, in words; `None`: its entitlement does not depend on its reads.
pub(crate) fn stake(verdict: &VerdictStatus) -> Option<String> {
    match (
        verdict.needs_bytes?,
        verdict.lends_bytes?,
        verdict.borrows_bytes?,
    ) {
        (needs, lends, _) if lends > 0 => Some(format!(
            "lends {} of its share: its reads hit as often with {}",
            bytes(lends),
            bytes(needs)
        )),
        (_, _, borrows) if borrows > 0 => Some(format!(
            "borrows {} beyond its share: its reads hit more often with it",
            bytes(borrows)
        )),
        (needs, ..) => Some(format!("needs {} of its share", bytes(needs))),
    }
}

/// Lines of a chart of the hit ratio by page cache in MiB.
fn chart(
    worth: &WorthStatus,
    holds: Option<u64>,
    entitled: Option<u64>,
    screen: Screen,
) -> Vec<String> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    // Cut off the flat end of the curve: it may extend to the host's memory and leave only a few columns for
    // the rest.
    let highest = worth.points.last().map(|point| point.hit_ratio);
    let mut points = worth.points.iter();
    let flat = points.find(|point| Some(point.hit_ratio) == highest);
    let most = [flat.map(|point| point.cache_bytes), holds, entitled];
    let most = mib(most.into_iter().flatten().max().unwrap_or_default()).max(1.0) * BEYOND;
    let points = worth.points.iter();
    let mut curve: Vec<(f64, f64)> = points
        .map(|point| (mib(point.cache_bytes).min(most), point.hit_ratio))
        .collect();
    curve.insert(0, (0.0, 0.0));
    let upright =
        |bytes: Option<u64>| bytes.map_or([(-1.0, 0.0); 2], |b| [(mib(b), 0.0), (mib(b), 1.0)]);
    let (holds, entitled) = (upright(holds), upright(entitled));
    let line = |points, marker| {
        Dataset::default()
            .data(points)
            .marker(marker)
            .graph_type(GraphType::Line)
    };
    let datasets = vec![
        line(&entitled[..], Marker::Custom('│')),
        line(&holds[..], Marker::Custom('▒')),
        line(&curve[..], Marker::Braille),
    ];
    let half = most / 2.0;
    let sizes = [
        "0".to_owned(),
        format!("{half:.0}"),
        format!("{most:.0} MiB"),
    ];
    let chart = Chart::new(datasets)
        .x_axis(Axis::default().bounds([0.0, most]).labels(sizes))
        .y_axis(
            Axis::default()
                .bounds([0.0, 1.0])
                .labels(["0 %", "50 %", "100 %"]),
        );
    let width = screen.width.and_then(|width| u16::try_from(width).ok());
    let area = Rect::new(0, 0, width.unwrap_or(WIDTH).min(WIDTH), HEIGHT);
    let mut buffer = Buffer::empty(area);
    chart.render(area, &mut buffer);
    let cells = buffer.content().chunks(usize::from(area.width.max(1)));
    cells
        .map(|row| row.iter().map(Cell::symbol).collect())
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::commands::status::tests::example as report_of_example;
    use justitia_report::status::WorthPoint;

    const SCREEN: Screen = Screen::wide(80);

    /// The curve of a group that holds 200 MiB.
    pub(crate) fn example() -> WorthStatus {
        let point = |mib: u64, hit_ratio| WorthPoint {
            cache_bytes: mib << 20,
            hit_ratio,
        };
        WorthStatus {
            asked_bytes_per_s: 10e6,
            now_hit_ratio: Some(0.75),
            half_hit_ratio: Some(0.5),
            twice_hit_ratio: None,
            more_bytes_per_s: Some(3.2e6),
            knee_bytes: None,
            points: vec![point(100, 0.5), point(300, 1.0)],
        }
    }

    pub(crate) fn rendered(report: &Report, group: &GroupStatus) -> Page {
        let mut text = render(report, Screen::FILE);
        text.append(&draw(group, SCREEN));
        text
    }

    #[test]
    fn a_row_says_what_is_known_and_dashes_what_is_not() {
        let text = render(&report_of_example(), Screen::FILE);
        let cells = text.line("/app/db").split("  ").map(str::trim);
        let db: Vec<&str> = cells.filter(|cell| !cell.is_empty()).collect();
        let expected = [
            "/app/db",
            "200.0 MiB",
            "400.0 MiB",
            "40.0 MiB",
            "0 B",
            "75.0%",
            "50.0%",
            "-",
            "3.20 MB/s",
            "-",
        ];
        assert_eq!(db, expected);
        assert_eq!(text.line("/app/new").matches('-').count(), 9);
    }

    #[test]
    fn a_drawing_has_the_curve_where_the_group_stands_and_fits() {
        let report = report_of_example();
        let text = draw(report.named("db").unwrap(), SCREEN);
        for words in [
            "lends 40.0 MiB of its share: its reads hit as often with 150.0 MiB",
            "100 %",
            "440 MiB",
            "it holds",
        ] {
            assert!(text.contains(words), "{words}:\n{text}");
        }
        assert!(
            text.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c)),
            "no curve:\n{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let text = draw(report.named("new").unwrap(), SCREEN);
        assert!(text.contains("no curve yet"), "{text}");
    }

    #[test]
    fn a_drawing_ends_at_the_size_from_which_its_curve_is_flat() {
        let mut worth = example();
        let last = *worth.points.last().unwrap();
        worth.points.push(WorthPoint {
            cache_bytes: 64 << 30,
            ..last
        });
        let lines = chart(&worth, Some(200 << 20), None, SCREEN);
        assert!(lines.last().unwrap().ends_with("330 MiB"), "{lines:?}");
    }

    #[test]
    fn a_terminal_of_any_width_is_survived() {
        let report = report_of_example();
        for width in 0..30 {
            draw(&report.groups[0], Screen::wide(width));
        }
    }
}
