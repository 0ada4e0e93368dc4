//! Checks the pages against each other and against what they describe, from the source tree.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every page that is tracked or could be, relative to the root.
fn pages() -> Vec<String> {
    let output = Command::new("git")
        .current_dir(root())
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.md",
        ])
        .output()
        .expect("git runs");
    let names = String::from_utf8(output.stdout).expect("UTF-8");
    let names: Vec<String> = names.lines().map(str::to_owned).collect();
    assert!(names.len() > 10, "no pages: has the layout changed?");
    names
}

/// The lines outside code blocks, without inline code.
fn prose(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut code = false;
    text.lines().filter_map(move |line| {
        if line.trim_start().starts_with("```") {
            code = !code;
            return None;
        }
        let plain = line.split('`').step_by(2).collect::<String>();
        (!code).then_some(plain)
    })
}

fn links(text: &str) -> Vec<String> {
    // A link may wrap between its words, never within its target.
    prose(text)
        .flat_map(|line| {
            let targets = line.split("](").skip(1);
            let ended = targets.filter_map(|rest| rest.split_once(')'));
            ended
                .map(|(target, _)| target.to_owned())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The anchors that a page's headings get on GitHub and in mdBook.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        if code || !line.starts_with('#') {
            continue;
        }
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        found.insert(kept.collect::<String>().replace(' ', "-"));
    }
    found
}

/// Relative links below a directory that lead to no file, or to no heading of it.
fn broken_links(root: &Path, pages: &[String]) -> Vec<String> {
    let mut broken = Vec::new();
    for page in pages {
        let text = fs::read_to_string(root.join(page)).expect(page);
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                root.join(page)
            } else {
                root.join(page).with_file_name("").join(file)
            };
            let there = target.exists()
                && (anchor.is_empty()
                    || fs::read_to_string(&target)
                        .is_ok_and(|text| anchors(&text).contains(anchor)));
            if !there {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    broken
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading_of_it() {
    let broken = broken_links(&root(), &pages());
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn every_link_of_an_installed_page_and_every_page_that_a_program_names_is_installed() {
    let destination = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    let _ = fs::remove_dir_all(&destination);
    let status = Command::new(root().join("scripts/install"))
        .args(["--pages", "/usr"])
        .env("DESTDIR", &destination)
        .status();
    assert!(status.expect("scripts/install runs").success());
    let installed = destination.join("usr/share/doc/justitia");
    let mut pages = pages();
    pages.retain(|page| installed.join(page).exists());
    assert!(pages.iter().any(|page| page.starts_with("docs/results/")));
    assert!(!installed.join("docs/results/raw").exists());
    let broken = broken_links(&installed, &pages);
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));

    let sources = Command::new("git")
        .current_dir(root())
        .args(["grep", "-hoE", "docs/[a-z/-]+[.]md", "--"])
        .args(["crates/*/src/*.rs", "lab/*.rs", "packaging"])
        .output();
    let named = String::from_utf8(sources.expect("git runs").stdout).expect("UTF-8");
    let named: BTreeSet<&str> = named.lines().collect();
    assert!(named.contains("docs/gate.md"), "{named:?}");
    let missing: Vec<_> = named
        .iter()
        .filter(|page| !installed.join(page).exists())
        .collect();
    assert!(missing.is_empty(), "named but not installed: {missing:?}");
}

#[test]
fn the_site_has_every_page_once() {
    let summary = read("docs/SUMMARY.md");
    let mut listed = links(&summary);
    listed.retain(|link| !link.is_empty());
    let once: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice");
    let missing: Vec<String> = pages()
        .into_iter()
        .filter_map(|page| page.strip_prefix("docs/").map(str::to_owned))
        .filter(|page| page != "SUMMARY.md" && !once.contains(page))
        .collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
}

#[test]
fn each_alert_has_a_test_and_a_section_and_asks_only_for_metrics_that_exist() {
    let rules = read("packaging/prometheus/alerts.yml");
    let tests = read("packaging/prometheus/alerts_test.yml");
    let named = |text: &str, before: &str| -> BTreeSet<String> {
        let lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(before));
        lines.map(|name| name.trim().to_owned()).collect()
    };
    let alerts = named(&rules, "- alert:");
    assert!(alerts.len() > 5, "{alerts:?}");
    assert_eq!(alerts, named(&tests, "alertname:"), "tests");
    assert_eq!(alerts, named(&read("docs/alerts.md"), "## "), "sections");

    let metrics = read("docs/metrics.md");
    let words = rules.split(|c: char| !c.is_alphanumeric() && c != '_');
    let unknown: BTreeSet<&str> = words
        .filter(|word| word.starts_with("justitia_") && !metrics.contains(&format!("| `{word}` |")))
        .collect();
    assert!(unknown.is_empty(), "no such metrics: {unknown:?}");
}
