//! Tests the answers of all paths, and that the page loads only its own files and treats names as text.

use justitia_report::example;
use justitia_report::feed::Frame;
use justitia_report::status::Tick;

use super::*;
use crate::exposition::Format;
use crate::tests;

/// A tick of an agent that steps every two seconds.
fn told(tick: &Tick) -> Frame<Report> {
    Frame {
        report: tests::report(tick, Duration::from_secs(2)),
        ..tests::told(tick)
    }
}

fn latest(tick: &Tick) -> Arc<Latest> {
    Arc::new(Latest::new(told(tick)))
}

fn get(site: &mut Site, target: &str, now: Instant) -> (Status, String) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let request = Request {
        head_only: false,
        path: path.into(),
        query: query.into(),
        format: Format::OpenMetrics,
    };
    let answer = site.answer(&request, now);
    let text = match answer.body {
        Body::Whole(piece) => String::from_utf8((*piece).as_ref().to_vec()).unwrap(),
        Body::Pieces(scrape) => scrape.collect(),
    };
    (answer.status, text)
}

#[test]
fn each_path_answers_with_its_own() {
    let latest = latest(&example::tick(7, 8));
    let now = Instant::now();
    let mut site = Site::new(Arc::clone(&latest), now);
    site.look(now);
    let (status, text) = get(&mut site, "/api/status", now);
    assert_eq!(status, Status::Ok);
    assert_eq!(
        serde_json::from_str::<Report>(&text).unwrap(),
        latest.get().report
    );
    assert!(get(&mut site, "/metrics", now).1.ends_with("# EOF\n"));
    assert!(get(&mut site, "/api/history?since=0", now)
        .1
        .contains("\"tick\":7"));
    assert!(!get(&mut site, "/api/history?since=7", now)
        .1
        .contains("\"tick\":7"));
    assert!(get(&mut site, "/api/history?since=nonsense", now)
        .1
        .contains("\"tick\":7"));
    assert!(get(&mut site, "/", now).1.starts_with("<!doctype html>"));
    assert_eq!(get(&mut site, "/nothing", now).0, Status::NotFound);
    assert_eq!(get(&mut site, "//", now).0, Status::NotFound);
    assert_eq!(get(&mut site, "/../etc/passwd", now).0, Status::NotFound);
}

#[test]
fn health_is_the_age_of_the_last_step() {
    let latest = latest(&Tick::default());
    let began = Instant::now();
    let mut site = Site::new(Arc::clone(&latest), began);
    site.look(began);
    assert_eq!(get(&mut site, "/healthz", began).0, Status::Stalled);
    latest.post(told(&example::tick(1, 1)));
    let posted = began + Duration::from_secs(1);
    site.look(posted);
    assert_eq!(
        get(&mut site, "/healthz", posted + Duration::from_secs(6)).0,
        Status::Ok
    );
    let (status, text) = get(&mut site, "/healthz", posted + Duration::from_millis(6500));
    assert_eq!(
        (status, text.as_str()),
        (Status::Stalled, "stalled: the last step was 6.5 s ago\n")
    );
    latest.post(told(&example::tick(2, 1)));
    site.look(posted + Duration::from_secs(7));
    assert_eq!(
        get(&mut site, "/healthz", posted + Duration::from_secs(7)).0,
        Status::Ok
    );
}

#[test]
fn every_step_gets_into_the_history_whenever_it_is_posted() {
    let latest = Arc::new(Latest::new(tests::told(&Tick::default())));
    let began = Instant::now();
    let mut site = Site::new(Arc::clone(&latest), began);
    let mut now = began;
    // Steps are up to an eighth of an interval late.
    for count in 1..=20 {
        let posted = began + Duration::from_millis(1000 * count + (count * 7919) % 125);
        while now < posted {
            now = site.due().min(posted);
            if now < posted {
                site.look(now);
            }
        }
        latest.post(tests::told(&example::tick(count, 1)));
    }
    let end = site.due();
    site.look(end);
    let (_, text) = get(&mut site, "/api/history", end);
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    // Each step wrote the same knobs, so each was counted.
    assert_eq!(answer["decisions"][0]["times"], 20);
}

fn asset(path: &str) -> &'static str {
    ASSETS.iter().find(|(name, ..)| *name == path).unwrap().2
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    for (path, _, text) in ASSETS {
        let text = text.replace("http://www.w3.org/", "");
        for word in ["http:", "https:", "@import", "url(", "//cdn", "data:"] {
            assert!(!text.contains(word), "{word} in {path}");
        }
    }
}

/// Everything between `before` and the next quote.
fn named<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    text.split(before)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

#[test]
fn every_address_that_the_page_refers_to_is_served() {
    let mut names = named(asset("/"), "src=\"");
    names.extend(
        named(asset("/"), "href=\"")
            .iter()
            .filter(|name| !name.starts_with('#')),
    );
    let mut modules = Vec::new();
    for (_, _, text) in ASSETS.iter().filter(|(_, kind, _)| *kind == JS) {
        modules.extend(named(text, "from \"."));
        names.extend(named(text, "ask(\""));
    }
    assert!(modules.len() > 5, "{modules:?}");
    names.extend(modules);
    let latest = latest(&example::tick(1, 1));
    let mut site = Site::new(latest, Instant::now());
    site.look(Instant::now());
    for name in names {
        assert_eq!(get(&mut site, name, Instant::now()).0, Status::Ok, "{name}");
    }
}

/// Whoever creates containers chooses the names of groups: `/app/<script>` is a valid one.
#[test]
fn the_page_never_makes_markup_of_text() {
    for (path, _, text) in ASSETS {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "createContextualFragment",
            "setHTML",
            "srcdoc",
        ] {
            assert!(!text.contains(word), "{word} in {path}");
        }
    }
}

#[test]
fn the_page_keeps_its_own_security_policy() {
    let page = asset("/");
    // No inline scripts or styles, no handlers in attributes.
    assert!(!page.contains("<style") && !page.contains(" style="));
    let is_handler = |word: &str| word.starts_with("on") && word.contains('=');
    assert!(!page.split_whitespace().any(is_handler));
    assert_eq!(page.matches("<script").count(), 1);
    for (path, _, text) in ASSETS {
        assert!(!text.contains("\"style\""), "{path}");
    }
}

#[test]
fn the_report_of_a_step_is_made_once_however_many_ask() {
    let latest = latest(&example::tick(7, 8));
    let now = Instant::now();
    let mut site = Site::new(Arc::clone(&latest), now);
    let mut bytes = || {
        let request = Request {
            head_only: false,
            path: "/api/status".into(),
            query: String::new(),
            format: Format::Text,
        };
        match site.answer(&request, now).body {
            Body::Whole(piece) => piece,
            Body::Pieces(_) => panic!("made while it is sent"),
        }
    };
    let first = bytes();
    let mut is_first = || std::ptr::eq((*first).as_ref(), (*bytes()).as_ref());
    assert!(is_first());
    latest.post(told(&example::tick(8, 8)));
    assert!(!is_first());
}
