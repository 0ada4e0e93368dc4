//! Tests screens of every size: nothing wraps or overflows, and the important parts are there.

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Modifier;
use ratatui::Terminal;

use super::super::tests::{group, many, press, report, unknown};
use super::*;

const SIZES: [(u16, u16); 9] = [
    (80, 24),
    (120, 40),
    (40, 10),
    (200, 60),
    (300, 100),
    (20, 5),
    (10, 3),
    (3, 2),
    (1, 1),
];

fn terminal(app: &mut App, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    terminal
}

/// The screen as lines without trailing blanks.
fn screen(app: &mut App, width: u16, height: u16) -> Vec<String> {
    let terminal = terminal(app, width, height);
    let cells = terminal.backend().buffer().content();
    cells
        .chunks(usize::from(width))
        .map(|row| {
            let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
            line.trim_end().to_owned()
        })
        .collect()
}

fn app(report: Report) -> App {
    App::new(report, Theme::FULL)
}

fn long_paths() -> Report {
    let paths = (0..30).map(|n| {
        format!("/kubepods.slice/kubepods-burstable.slice/pod{n:032x}/\x1b[31m容器-{n}.scope")
    });
    report(paths.map(|path| group(&path, 10_000)).collect())
}

#[test]
fn every_screen_can_be_drawn_whatever_the_groups_and_panes() {
    let reports = [many(0), many(3), many(300), long_paths(), unknown()];
    for report in reports {
        for keys in ["", "t", "d", "td", "?", "/x", "pG"] {
            for (width, height) in SIZES {
                let mut app = app(report.clone());
                press(&mut app, keys);
                let lines = screen(&mut app, width, height);
                assert!(
                    lines.iter().all(|line| !line.contains('\x1b')),
                    "{lines:#?}"
                );
                for line in super::lines(&mut app, usize::from(width), usize::from(height)) {
                    let wide = line.width();
                    assert!(
                        wide <= usize::from(width),
                        "{keys:?} {width}x{height}: {wide}: {line}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_group_fits_one_line_and_long_paths_keep_their_ends() {
    let lines = screen(&mut app(long_paths()), 80, 24);
    let groups = lines.iter().filter(|line| line.contains(".scope"));
    let seen: Vec<&String> = groups.collect();
    assert!(seen.len() > 15, "{lines:#?}");
    assert!(seen.iter().all(|line| line.starts_with('…')), "{lines:#?}");
}

#[test]
fn the_selected_row_is_reversed_over_the_whole_width_and_no_background_is_painted() {
    let mut app = app(many(3));
    press(&mut app, "j");
    let terminal = terminal(&mut app, 80, 24);
    let buffer = terminal.backend().buffer();
    let reversed = |y: u16| {
        (0..80).all(|x| {
            let cell = &buffer[(x, y)];
            cell.modifier.contains(Modifier::REVERSED)
        })
    };
    let rows: Vec<u16> = (0..24).filter(|&y| reversed(y)).collect();
    assert_eq!(rows.len(), 1);
    let painted = buffer
        .content()
        .iter()
        .any(|cell| cell.bg != ratatui::style::Color::Reset);
    assert!(!painted);
}

#[test]
fn without_colors_no_cell_has_one_and_the_letters_stay() {
    let plain = Theme {
        colors: false,
        unicode: true,
    };
    let mut app = App::new(many(4), plain);
    let terminal = terminal(&mut app, 80, 24);
    let cells = terminal.backend().buffer().content();
    assert!(cells
        .iter()
        .all(|cell| cell.fg == ratatui::style::Color::Reset));
    let lines = screen(&mut app, 80, 24);
    for letter in [" G ", " Y ", " R "] {
        assert!(lines.iter().any(|line| line.contains(letter)), "{letter}");
    }
}

#[test]
fn ascii_screens_are_ascii() {
    for keys in ["", "t", "d", "?"] {
        let mut app = App::new(many(300), Theme::PLAIN);
        press(&mut app, keys);
        for line in screen(&mut app, 120, 40) {
            assert!(line.is_ascii(), "{line}");
        }
    }
}

#[test]
fn the_screen_says_that_the_agent_went_away_and_keeps_the_last_picture() {
    for (width, height) in [(80, 24), (40, 10)] {
        let mut app = app(many(3));
        app.take(Err("no agent listens at /run/justitia/agent.sock".into()));
        let lines = screen(&mut app, width, height);
        assert!(
            lines[0].starts_with("no agent: nobody listens at /run"),
            "{lines:#?}"
        );
        assert!(lines.iter().any(|line| line.contains("group-2")));
    }
}

#[test]
fn a_pause_a_filter_and_a_problem_are_seen() {
    let mut report = many(3);
    report.problems = crate::commands::status::tests::example().problems;
    let mut app = app(report);
    press(&mut app, "p/up-2");
    assert!(screen(&mut app, 80, 24)[23].starts_with("filter: up-2"));
    app.key(KeyCode::Enter.into());
    let lines = screen(&mut app, 80, 24);
    assert!(lines[0].starts_with("PAUSED"), "{lines:#?}");
    assert!(lines[2].starts_with("problem: /app/new"), "{lines:#?}");
    assert!(lines[23].contains("filter up-2"), "{lines:#?}");
    press(&mut app, "/nobody");
    let lines = screen(&mut app, 80, 24);
    assert!(lines.iter().any(|line| line.contains("no group's path")));
}

#[test]
fn the_pane_shows_the_past_the_knobs_and_why_they_were_written() {
    let mut first = many(3);
    let mut write = crate::commands::status::tests::example().writes.remove(0);
    write.path = "/app/group-2".into();
    first.writes = vec![write];
    let mut app = app(first);
    let mut next = many(3);
    next.ticks_total += 30;
    next.writes = Vec::new();
    app.take(Ok(next));
    app.key(KeyCode::Enter.into());
    for (width, height) in [(120, 40), (80, 24), (80, 30)] {
        let lines = screen(&mut app, width, height).join("\n");
        for text in [
            "MB/S",
            "page cache",
            "hit ratio",
            "stalls",
            "memory.low",
            "before us",
        ] {
            assert!(lines.contains(text), "{text} in {width}x{height}:\n{lines}");
        }
    }
    let lines = screen(&mut app, 120, 40).join("\n");
    assert!(
        lines.contains("30 s ago  memory.high 391M: no contention"),
        "{lines}"
    );
}

#[test]
fn the_help_scrolls_to_its_end_and_no_further() {
    let mut app = app(many(3));
    press(&mut app, "?");
    assert!(screen(&mut app, 40, 10)[2].contains("select a"));
    for _ in 0..100 {
        app.key(KeyCode::PageDown.into());
        screen(&mut app, 40, 10);
    }
    let last = app.help;
    assert!(screen(&mut app, 40, 10)[8].ends_with("from"));
    press(&mut app, "j");
    screen(&mut app, 40, 10);
    assert_eq!(app.help, last);
}

#[test]
fn three_groups_look_like_this_on_the_three_usual_sizes() {
    for (width, height, expected) in [
        (80, 24, include_str!("../screens/80x24.txt")),
        (120, 40, include_str!("../screens/120x40.txt")),
        (40, 10, include_str!("../screens/40x10.txt")),
    ] {
        let lines = screen(&mut app(many(3)), width, height);
        let lines: Vec<&String> = lines.iter().filter(|line| !line.is_empty()).collect();
        let expected: Vec<&str> = expected.lines().collect();
        assert_eq!(lines, expected, "{width}x{height}: {lines:#?}");
    }
}
