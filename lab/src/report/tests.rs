//! The page is well-formed and self-contained, and escapes a guest's text.

use super::*;
use crate::tests::fixture;

const VOID: [&str; 2] = ["meta", "br"];

/// Checks that every tag is closed in order; returns the number of elements.
fn well_formed(html: &str) -> usize {
    let mut open: Vec<String> = Vec::new();
    let mut elements = 0;
    let mut rest = html
        .strip_prefix("<!DOCTYPE html>")
        .expect("starts with a doctype");
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("every tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closes what is open");
            continue;
        }
        assert!(!tag.contains('<'), "no tag inside a tag: {tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes pair up: {tag}");
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        assert!(
            name.bytes().all(|b| b.is_ascii_alphanumeric()),
            "a name: {tag}"
        );
        elements += 1;
        if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name.to_owned());
        }
    }
    assert!(open.is_empty(), "all closed: {open:?}");
    elements
}

#[test]
fn every_experiment_makes_a_well_formed_page() {
    let names = crate::experiments::ALL.map(|experiment| experiment.name);
    let lines = [
        "fileserver --weights 100,200,400,800 --runs 3 --seconds 30",
        "fileserver --weights 150,350,900 --names t/a,t/b,c --idle c=5 --policies conventional",
        "fileserver --weights 100 --policies observe,strict",
        "sharing --runs 2",
        "reread --policies conventional,memcg,direct,justitia,proportional,strict,observe",
    ];
    for line in names.iter().chain(&lines) {
        let document = fixture::document(line);
        let page = render(&document);
        assert!(well_formed(&page) > 100, "{line}");
        assert!(!page.contains("NaN") && !page.contains("inf\""), "{line}");
    }
}

#[test]
fn the_page_fetches_and_runs_nothing() {
    let page = render(&fixture::document("fileserver --weights 100,200"));
    for outside in [
        "http://", "https://", "<script", "<link", "src=", "@import", "url(",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn text_from_a_guest_stays_text() {
    let page = render(&fixture::document("fileserver --weights 100,200"));
    assert!(!page.contains("<b>not markup</b>"));
    assert!(page.contains("&lt;b&gt;not markup&lt;/b&gt;"));
    assert!(page.contains("noauto_da_alloc &lt;test&gt;"));
    assert!(page.contains("&amp;&amp; echo &#39;a &quot;quoted&quot;"));
}

#[test]
fn the_papers_figure_stands_beside_ours() {
    let page = render(&fixture::document("fileserver"));
    assert!(
        page.contains("The paper&#39;s figure 8a") && page.contains("Justitia, weight 800: 6.26")
    );
    let page = render(&fixture::document("reread"));
    assert!(page.contains("figure 11b") && page.contains("Conventional 1.40"));
    assert!(render(&fixture::document("readmix")).contains("no figure of this load"));
}

#[test]
fn the_part_of_the_shared_file_that_stayed_is_the_headline() {
    let page = render(&fixture::document("sharing"));
    assert!(page.contains("at least 100\u{a0}% of the shared file stayed under proportional"));
    assert!(page.contains("50\u{a0}% under conventional"));
    assert!(!page.contains("PV, 0 is perfect"));
}

#[test]
fn a_changed_knob_is_shown() {
    let mut document = fixture::document("fileserver --weights 100,200");
    let result = document.policies.get_mut(&Policy::Proportional).unwrap();
    result.knobs_restored = false;
    result
        .knob_differences
        .push(crate::protocol::KnobDifference {
            knob: "app/w100/memory.low".into(),
            before: Some("0".into()),
            after: None,
        });
    let page = render(&document);
    assert!(page.contains("1 differ") && page.contains("not there"));
}

#[test]
fn an_empty_record_makes_a_page_too() {
    let mut document = fixture::document("fileserver --weights 100,200");
    for result in document.policies.values_mut() {
        result.runs.clear();
        result.figures = crate::analysis::figures::Figures::default();
    }
    well_formed(&render(&document));
}

#[test]
fn phases_are_in_the_headline_and_in_a_table() {
    let page = render(&fixture::document("startup"));
    assert!(page.contains("MB/s, p99"), "the headline");
    assert!(page.contains("Quiet and under pressure"));
    for cell in ["pressed", "guarded", "conventional", "40.00"] {
        assert!(page.contains(cell), "{cell}");
    }
    assert!(!render(&fixture::document("reread")).contains("Quiet and under"));
}

#[test]
fn the_responses_are_in_the_headline_and_in_a_table_with_every_run() {
    let page = render(&fixture::document("responses --runs 2"));
    assert!(page.contains("responses settled under proportional"));
    for cell in [
        "proportional: newcomer at 60 s, windows of 10 s until 120 s",
        "not settled, not settled",
        "reweighted",
    ] {
        assert!(page.contains(cell), "{cell}");
    }
    assert!(!page.contains("Quiet and under"));
}
