//! Draws `docs/recording.svg`: `justitia try`, then `justitia top`, as one animated picture.
//!
//! `JUSTITIA_RECORDING=DIR cargo test -p justitia-cli --bins recording` draws the output of a guest that
//! `tests/live.rs` kept in DIR (`JUSTITIA_TEST_KEEP`): `try`, the text of that command, and
//! `recording.lines`, the agent's reports of its first minute. The screens are those that the program draws
//! from these reports. Only time is shortened: a second of `try` to 150 ms, a step of the agent to one
//! second. Without the variable an example is drawn, and the picture's properties are tested. The same input
//! gives the same bytes.

use std::fmt::Write as _;
use std::path::Path;

use justitia_report::status::Report;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use ratatui::Terminal;

use super::app::App;
use super::tests::many;
use super::theme::Theme;
use super::view;

/// Size of the screen in characters.
const COLUMNS: u16 = 100;
const ROWS: u16 = 22;
/// Size of a character, and the margin, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 14.0;

/// Text of one style, and its first column.
type Span = (usize, String, Style);

/// A screen, and the time for which it is shown.
struct Scene {
    seconds: f64,
    rows: Vec<Vec<Span>>,
}

fn words(line: &str) -> Vec<Span> {
    vec![(0, line.to_owned(), Style::new())]
}

/// Scenes of typing a command, with a pause at the end for its answer.
fn typed(command: &str, scenes: &mut Vec<Scene>) {
    for end in 0..=command.len() {
        scenes.push(Scene {
            seconds: if end == 0 || end == command.len() {
                0.6
            } else {
                0.06
            },
            rows: vec![words(&format!("$ {}", &command[..end]))],
        });
    }
}

fn of_try(text: &str, scenes: &mut Vec<Scene>) {
    let seconds: u32 = text.split(' ').next().unwrap().parse().expect("seconds");
    let command = format!("sudo justitia try --seconds {seconds}");
    typed(&command, scenes);
    let prompt = words(&format!("$ {command}"));
    for second in 1..=seconds {
        scenes.push(Scene {
            seconds: 0.15,
            rows: vec![prompt.clone(), words(&format!("{second} of {seconds} s"))],
        });
    }
    let answer = text.lines().map(words);
    scenes.push(Scene {
        seconds: 14.0,
        rows: std::iter::once(prompt).chain(answer).collect(),
    });
}

fn of_top(reports: Vec<Report>, scenes: &mut Vec<Scene>) {
    typed("sudo justitia top", scenes);
    let mut terminal = Terminal::new(TestBackend::new(COLUMNS, ROWS)).unwrap();
    let mut app: Option<App> = None;
    let mut step = None;
    for report in reports {
        let known = step.replace(report.ticks_total) == Some(report.ticks_total);
        match &mut app {
            Some(app) => app.take(Ok(report)),
            None => app = Some(App::new(report, Theme::FULL)),
        }
        // Skip a report without a new step.
        if let Some(app) = app.as_mut().filter(|_| !known) {
            terminal.draw(|frame| view::draw(frame, app)).unwrap();
            scenes.push(Scene {
                seconds: 1.0,
                rows: rows(terminal.backend().buffer()),
            });
        }
    }
    scenes.last_mut().unwrap().seconds = 4.0;
}

fn rows(buffer: &Buffer) -> Vec<Vec<Span>> {
    let of_row = |cells: &[ratatui::buffer::Cell]| {
        let mut spans: Vec<Span> = Vec::new();
        for (column, cell) in cells.iter().enumerate() {
            match spans.last_mut() {
                Some((_, text, style)) if *style == cell.style() => text.push_str(cell.symbol()),
                _ => spans.push((column, cell.symbol().to_owned(), cell.style())),
            }
        }
        spans
    };
    let rows = buffer.content().chunks(usize::from(COLUMNS));
    rows.map(of_row).collect()
}

fn class(style: Style) -> String {
    let mut class = String::new();
    for (modifier, name) in [
        (Modifier::BOLD, "b "),
        (Modifier::DIM, "d "),
        (Modifier::REVERSED, "i "),
    ] {
        if style.add_modifier.contains(modifier) {
            class.push_str(name);
        }
    }
    class.push_str(match style.fg {
        Some(Color::Green) => "g",
        Some(Color::Yellow) => "y",
        Some(Color::Red) => "r",
        _ => "",
    });
    class.trim_end().to_owned()
}

fn draw(scenes: &[Scene]) -> String {
    let total: f64 = scenes.iter().map(|scene| scene.seconds).sum();
    let width = f64::from(COLUMNS) * CELL.0 + 2.0 * MARGIN;
    let height = f64::from(ROWS) * CELL.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\">\n\
         <title>justitia try, then justitia top</title>\n<style>\n\
         text{{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;fill:#d8dee9}}\n\
         .b{{font-weight:700}}.d{{opacity:.65}}.g{{fill:#8fce7e}}.y{{fill:#e8c877}}.r{{fill:#f08a8a}}.i{{fill:#1d222b}}\n\
         .f{{visibility:hidden;animation-duration:{total:.2}s;animation-timing-function:step-end;\
         animation-iteration-count:infinite}}\n"
    );
    let mut from = 0.0;
    for (at, scene) in scenes.iter().enumerate() {
        let percent = |seconds: f64| seconds / total * 100.0;
        let (start, end) = (percent(from), percent(from + scene.seconds));
        from += scene.seconds;
        let _ = writeln!(
            svg,
            "@keyframes k{at}{{0%{{visibility:hidden}}{start:.3}%{{visibility:visible}}{end:.3}%{{visibility:hidden}}}}\
             #f{at}{{animation-name:k{at}}}"
        );
    }
    // For users who disable animations: show the scene with the longest duration.
    let longest =
        (0..scenes.len()).max_by(|a, b| scenes[*a].seconds.total_cmp(&scenes[*b].seconds));
    let _ = writeln!(
        svg,
        "@media (prefers-reduced-motion:reduce){{.f{{animation:none}}#f{}{{visibility:visible}}}}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1d222b\"/>",
        longest.expect("scenes")
    );
    for (at, scene) in scenes.iter().enumerate() {
        let _ = write!(svg, "<g class=\"f\" id=\"f{at}\">");
        for (row, spans) in scene.rows.iter().enumerate() {
            for (column, text, style) in spans {
                let x = MARGIN + *column as f64 * CELL.0;
                let y = MARGIN + (row as f64 + 0.75) * CELL.1;
                let length = text.chars().count() as f64 * CELL.0;
                let class = class(*style);
                if class.contains('i') {
                    // Neighboring cells overlap a little, to hide seams.
                    let length = length + 0.4;
                    let top = MARGIN + row as f64 * CELL.1;
                    let _ = write!(
                        svg,
                        "<rect x=\"{x:.1}\" y=\"{top:.0}\" width=\"{length:.1}\" height=\"18\" fill=\"#d8dee9\"/>"
                    );
                }
                let blank = text.len() - text.trim_start().len();
                let shown = text.trim();
                if shown.is_empty() {
                    continue;
                }
                let x = x + blank as f64 * CELL.0;
                let length = shown.chars().count() as f64 * CELL.0;
                let shown = shown.replace('&', "&amp;").replace('<', "&lt;");
                let class = match &class[..] {
                    "" => String::new(),
                    class => format!(" class=\"{class}\""),
                };
                let _ = write!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\"{class}>{shown}</text>"
                );
            }
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

#[test]
fn a_recording_is_one_small_picture_in_which_one_scene_is_seen_at_a_time() {
    let mut scenes = Vec::new();
    let kept = std::env::var_os("JUSTITIA_RECORDING");
    if let Some(dir) = &kept {
        let read = |name: &str| std::fs::read_to_string(Path::new(dir).join(name)).unwrap();
        of_try(&read("try"), &mut scenes);
        let lines = read("recording.lines");
        let reports = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        of_top(reports.collect(), &mut scenes);
    } else {
        of_try("3 s observed, a < b & c.\n", &mut scenes);
        let report = |ticks_total| Report {
            ticks_total,
            ..many(3)
        };
        of_top([1, 1, 2, 3].map(report).into(), &mut scenes);
    }
    let tall = scenes
        .iter()
        .find(|scene| scene.rows.len() > usize::from(ROWS));
    assert!(tall.is_none(), "a scene does not fit the screen");
    let wide = |span: &Span| span.0 + span.1.chars().count() > usize::from(COLUMNS);
    let wide = scenes
        .iter()
        .flat_map(|scene| &scene.rows)
        .flatten()
        .find(|span| wide(span));
    assert_eq!(wide, None);
    let svg = draw(&scenes);
    assert!(svg.len() < 300_000, "{} bytes", svg.len());
    assert_eq!(svg.matches("class=\"f\"").count(), scenes.len());
    assert_eq!(svg, draw(&scenes));
    if kept.is_some() {
        let to = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recording.svg");
        std::fs::write(to, svg).unwrap();
    } else {
        assert!(svg.contains("a &lt; b &amp; c."), "{svg}");
        assert_eq!(
            scenes.iter().filter(|scene| scene.rows.len() > 5).count(),
            3,
            "equal steps are one"
        );
    }
}
