//! Lines that servers write, and files that rotate under the reader.

use super::*;
use crate::{Judge, Objective};
use justitia_policy::color::Color;
use proptest::prelude::*;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::time::Duration;

const NGINX: &str = r#"127.0.0.1 - - [20/Nov/2026:10:00:00 +0000] "GET /a?b=\x22c HTTP/1.1" 200 612 "-" "curl/8" 0.004"#;

fn seconds(line: &str, field: &str, unit: Unit) -> Option<f64> {
    line::seconds(&field.parse().unwrap(), line, unit)
}

#[test]
fn the_time_is_found_in_the_field_that_was_named() {
    assert_eq!(seconds(NGINX, "last", Unit::Seconds), Some(0.004));
    assert_eq!(seconds(NGINX, "9", Unit::Milliseconds), Some(0.2));
    let pairs = r#"x "GET / HTTP/1.1" 200 rt=0.250 uct="0.1""#;
    assert_eq!(seconds(pairs, "rt=", Unit::Seconds), Some(0.25));
    let json = r#"{"status":200,"request_time": "0.5"}"#;
    assert_eq!(seconds(json, "\"request_time\":", Unit::Seconds), Some(0.5));
    assert_eq!(
        seconds("GET / 1500", "last", Unit::Microseconds),
        Some(0.0015)
    );
}

#[test]
fn a_line_without_a_time_has_none() {
    for line in ["", "x -", "x 1.2.3.4", "x abc"] {
        assert_eq!(seconds(line, "last", Unit::Seconds), None, "{line}");
    }
    assert_eq!(seconds("a b", "7", Unit::Seconds), None);
    assert_eq!(seconds("a b", "rt=", Unit::Seconds), None);
}

#[test]
fn a_request_cannot_pass_for_the_field_after_it() {
    let rt = |line: &str| seconds(line, "rt=", Unit::Seconds);
    for query in [
        "?sort=5",
        "?a&rt=5",
        "?rt=5",
        "?x_rt=5",
        "?x-rt=5",
        "?rt=5 rt=5",
    ] {
        let line = format!(r#"x "GET /items{query} HTTP/1.1" 200 9 "-" "curl rt=7" rt=0.003"#);
        assert_eq!(rt(&line), Some(0.003), "{query}");
    }
    assert_eq!(rt(r#"rt=9.003 "GET /?sort=name""#), Some(9.003));
    assert_eq!(rt(r#"x "GET /?sort=5 HTTP/1.1" 200 9"#), None);
    assert_eq!(rt(r#"x "curl rt=7" 200 rt=-"#), None, "the last one counts");
    for before in ["", " ", "x\t", "x\"", "{", "x,", "x;", "x|"] {
        assert_eq!(rt(&format!("{before}rt=2")), Some(2.0), "{before}");
    }
    assert_eq!(seconds("GET /a 200,rt:2", ",rt:", Unit::Seconds), Some(2.0));
}

#[test]
fn fields_and_units_that_make_no_sense_are_refused() {
    assert!("0".parse::<Field>().is_err());
    assert!(String::new().parse::<Field>().is_err());
    assert!("h".parse::<Unit>().is_err());
}

#[test]
fn a_server_error_failed_and_a_quote_in_the_request_does_not_hide_it() {
    for (line, failed) in [
        (NGINX, false),
        (r#"x "GET / HTTP/1.1" 502 0 0.1"#, true),
        (r#"x "GET /\"q\" HTTP/1.1" 503 0 0.1"#, true),
        (r#"x "GET /" 499 0 0.1"#, false),
        (r#"x "GET /" 5021 0 0.1"#, false),
        ("no request at all 502", false),
        (r#"x "never closed 502"#, false),
        (
            r#""shop.example" 1.2.3.4 - "GET / HTTP/1.1" 500 9 0.003"#,
            true,
        ),
        (
            r#""shop" "GET / HTTP/1.1" 200 9 "-" "curl" 502 0.003"#,
            false,
        ),
        (r#"x "GET /" 127.0.0.1 "-" 503"#, true),
        (r#"{"time":"now","status":500,"request_time":0.002}"#, true),
        (
            r#"{"request":"GET / \"status\":500","status": "502"}"#,
            true,
        ),
        (r#"{"request":"GET /\"status\":500","status":200}"#, false),
        (r#"{"request_time":501,"code":"503"}"#, false),
        (r#"{"status":"-","code":" 503 "}"#, false),
    ] {
        assert_eq!(super::line::failed(line), failed, "{line}");
    }
}

struct Scene {
    dir: tempfile::TempDir,
    log: Log,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        fs::write(&path, "old 9.0\n").unwrap();
        let mut log = Log::new(Config {
            path,
            field: Field::Last,
            unit: Unit::Seconds,
            percentile: 100.0,
        });
        assert_eq!(log.measure().unwrap().latency_seconds, None);
        Scene { dir, log }
    }

    fn append(&self, text: &str) {
        let path = self.dir.path().join("access.log");
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn rename(&self) {
        let path = self.dir.path().join("access.log");
        fs::rename(&path, self.dir.path().join("access.log.1")).unwrap();
    }

    fn latency(&mut self) -> Option<f64> {
        self.log.measure().unwrap().latency_seconds
    }
}

#[test]
fn only_what_is_new_counts_and_only_whole_lines() {
    let mut scene = Scene::new();
    scene.append("a 0.1\nb 0.");
    assert_eq!(scene.latency(), Some(0.1));
    scene.append("7\n");
    assert_eq!(scene.latency(), Some(0.7));
    assert_eq!(scene.latency(), None);
}

#[test]
fn a_rotation_loses_no_line() {
    let mut scene = Scene::new();
    scene.append("a 0.1\n");
    scene.rename();
    assert_eq!(scene.latency(), Some(0.1));
    scene.append("b 0.2\n");
    assert_eq!(scene.latency(), Some(0.2));
    scene.append("c 0.3\n");
    scene.rename();
    scene.append("d 0.4\n");
    let seen = scene.log.measure().unwrap();
    assert_eq!(seen.latency_seconds, Some(0.4));
    let lines = scene.log.lines;
    assert!((lines - 4.0).abs() < 1e-9, "{lines}");
}

#[test]
fn a_truncated_file_is_read_from_its_beginning() {
    let mut scene = Scene::new();
    scene.append("a 0.1\nb 0.1\n");
    scene.latency();
    fs::write(scene.dir.path().join("access.log"), "c 0.5\n").unwrap();
    assert_eq!(scene.latency(), Some(0.5));
}

#[test]
fn a_file_that_was_missing_at_first_is_read_from_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut tail = Tail::new(path.clone());
    assert!(tail.read(|_| ()).is_err());
    fs::write(&path, "first\n").unwrap();
    let mut lines = Vec::new();
    tail.read(|line| lines.push(line.to_owned())).unwrap();
    assert_eq!(lines, ["first"]);
}

#[test]
fn failed_requests_are_slower_than_any() {
    let mut scene = Scene::new();
    scene.append("x \"GET /\" 200 1 0.1\nx \"GET /\" 502 1 0.0\n");
    let seen = scene.log.measure().unwrap();
    assert_eq!(seen.latency_seconds, Some(f64::INFINITY));
    assert_eq!(seen.note.as_deref(), Some("1 of 2 failed"));
}

#[test]
fn a_log_without_times_says_so() {
    let mut scene = Scene::new();
    for _ in 0..2 {
        scene.append("x \"GET /\" 200 -\n");
        let trouble = scene.log.measure().unwrap_err();
        assert!(trouble.remedy.contains("request_time"), "{trouble:?}");
    }
}

#[test]
fn requests_without_a_time_are_no_sample_once_one_had_a_time() {
    let mut scene = Scene::new();
    scene.append("x \"GET /\" 200 0.1\n");
    assert!(!scene.log.measure().unwrap().idle);
    scene.append("x \"GET /a.css\" 200 -\n");
    let seen = scene.log.measure().unwrap();
    assert_eq!((seen.latency_seconds, seen.idle), (None, true));
    assert!(seen.per_second > Some(0.0), "{seen:?}");
}

/// The colors that are declared in these periods, each with its lines.
fn declared(
    scene: &mut Scene,
    periods: usize,
    lines: impl Fn(usize) -> &'static str,
) -> Vec<Color> {
    let objective = Objective {
        max_latency: Some(Duration::from_millis(100)),
        ..Objective::default()
    };
    let mut judge = Judge::new(objective, 5);
    let colors = (0..periods).map(|period| {
        scene.append(lines(period));
        judge.judge(scene.log.measure().unwrap()).color
    });
    colors.collect()
}

#[test]
fn requests_that_all_miss_the_objective_are_red_also_if_lines_come_in_bursts_or_rarely() {
    for every in [2, 3, 5, 30] {
        let colors = declared(&mut Scene::new(), 300, |period| {
            if period % every == 0 {
                "x 0.5\nx 0.6\n"
            } else {
                ""
            }
        });
        let settled = &colors[5 * every..];
        assert!(
            settled.iter().all(|color| *color == Color::Red),
            "{every}: {colors:?}"
        );
    }
}

#[test]
fn one_slow_request_among_rare_ones_changes_nothing() {
    let colors = declared(&mut Scene::new(), 200, |period| match period {
        99 => "x 9\n",
        period if period % 3 == 0 => "x 0.01\n",
        _ => "",
    });
    assert!(
        colors[20..].iter().all(|color| *color == Color::Green),
        "{colors:?}"
    );
}

#[test]
fn a_service_that_is_idle_for_long_is_green() {
    let colors = declared(&mut Scene::new(), 100, |period| {
        if period < 20 {
            "x 0.5\n"
        } else {
            ""
        }
    });
    assert_eq!(colors[20 + 59], Color::Red);
    assert_eq!(colors[20 + 68], Color::Green);
}

#[test]
fn a_line_without_end_does_not_fill_the_memory() {
    let mut scene = Scene::new();
    scene.append(&"x".repeat(3 << 20));
    assert_eq!(scene.latency(), None);
    assert!(scene.log.tail.pending() < 1 << 20);
    scene.append("\ny 0.2\n");
    assert_eq!(scene.latency(), Some(0.2));
}

proptest! {
    #[test]
    fn any_line_can_be_read(line in "\\PC*", field in "[a-z0-9=\"]{1,4}") {
        let _ = super::line::failed(&line);
        if let Ok(field) = field.parse::<Field>() {
            if let Some(seconds) = line::seconds(&field, &line, Unit::Seconds) {
                prop_assert!(seconds >= 0.0);
            }
        }
    }

    #[test]
    fn lines_arrive_whole_however_they_are_cut(cuts in proptest::collection::vec(1..20usize, 1..30)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "").unwrap();
        let mut tail = Tail::new(path.clone());
        tail.read(|_| ()).unwrap();
        let all: Vec<String> = (0..40).map(|i| format!("line {i} {}", "y".repeat(i % 7))).collect();
        let text = all.join("\n") + "\n";
        let mut lines = Vec::new();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        let mut rest = text.as_str();
        for cut in cuts.iter().cycle().take(200) {
            let (piece, left) = rest.split_at((*cut).min(rest.len()));
            file.write_all(piece.as_bytes()).unwrap();
            tail.read(|line| lines.push(line.to_owned())).unwrap();
            rest = left;
        }
        file.write_all(rest.as_bytes()).unwrap();
        tail.read(|line| lines.push(line.to_owned())).unwrap();
        prop_assert_eq!(lines, text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>());
    }
}
