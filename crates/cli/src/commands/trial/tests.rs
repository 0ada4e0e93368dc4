//! Tests that due shares follow the weights, that nothing is written, and that the output says so.

use std::sync::Arc;

use justitia_agent::observe::Observer;
use justitia_cgroup::{FakeFs, Fs};
use justitia_discover::RuntimeDirs;
use justitia_policy::snapshot::Host;
use justitia_policy::units::{Bytes, Weight};

use super::render::SHOWN;
use super::*;
use crate::output::Page;
use crate::output::Screen;

/// A host with full memory on which light and heavy write equally fast; `stalled`: they also wait for the
/// disk.
fn trial(stalled: bool) -> (Trial, Arc<FakeFs>) {
    let fake = FakeFs::new();
    fake.set_host(Host {
        total: Some(Bytes::mib(768)),
        free: Some(Bytes::mib(12)),
        file: Some(Bytes::mib(600)),
        high_watermark: Some(Bytes::mib(16)),
        ..Host::default()
    });
    fake.add_disk("sda", true);
    let names = ["/app/light", "/app/heavy"];
    for (pid, path) in (100..).zip(names) {
        fake.mkdir(path);
        fake.spawn(pid, path);
        fake.update(path, |group| {
            group.anon = Bytes::mib(10);
            group.file = Bytes::mib(300);
            group.file_dirty = Bytes::mib(30);
        });
    }
    let settings = Settings {
        manage: vec!["/app/*".into()],
        weights: vec![("/app/heavy".into(), Weight::new(300).unwrap())],
        ..Settings::default()
    };
    let fs: Fs = fake.clone();
    let mut observer = Observer::new(fs, settings.discover(), RuntimeDirs::none()).unwrap();
    let mut tally = Tally::new(&settings);
    for second in 0..=20 {
        for (pid, path) in (100..).zip(names) {
            fake.process_io(pid, 0, second << 20);
            if stalled {
                fake.update(path, |group| group.io_some_us = second * 800_000);
            }
        }
        let tick = Tick {
            snapshot: observer.observe().snapshot,
            ..Tick::default()
        };
        tally.see(tick, Duration::from_secs(second.min(1)));
    }
    (tally.finish(), fake)
}

fn rendered(trial: &Trial) -> Page {
    render(trial, Screen::FILE)
}

#[test]
fn shares_due_to_competing_groups_follow_their_weights_and_nothing_is_written() {
    let (trial, fake) = trial(true);
    assert!(fake.writes().is_empty());
    assert!(trial.contended_s > 0.0 && trial.contended_s <= trial.seconds);
    let of = |path: &str| trial.groups.iter().find(|g| g.path == path).unwrap();
    let (light, heavy) = (of("/app/light"), of("/app/heavy"));
    let total = light.got_bytes + heavy.got_bytes;
    assert!((total - trial.contended_bytes).abs() < 1.0);
    assert!((light.due_bytes / total - 0.25).abs() < 0.01, "{light:?}");
    assert!((heavy.due_bytes / total - 0.75).abs() < 0.01, "{heavy:?}");
    assert!((trial.misplaced_bytes / total - 0.25).abs() < 0.01);
    assert!(light.memory_high_bytes < heavy.memory_high_bytes);
    assert!(light.entitlement_bytes < heavy.entitlement_bytes);
    assert!(heavy.waited_s > 0.0 && heavy.file_bytes == Some(300 << 20));
    assert_eq!(trial.low_latency_disks, ["sda"]);
    let page = rendered(&trial);
    for words in [
        "nothing written",
        "25.0% of their bandwidth",
        "/app/heavy got 1.00 times what /app/light got; by weight it is 3.00 times.",
        "would limit 2 groups",
        "low_latency, which overrides weights: sda.",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn weights_have_nothing_to_decide_while_nobody_waits() {
    let (trial, fake) = trial(false);
    assert!(fake.writes().is_empty());
    assert!(trial.misplaced_bytes <= 0.0);
    assert!(trial.groups.iter().all(|g| g.bytes > Some(0.0)));
    let page = rendered(&trial);
    assert!(page.contains("nothing to decide"), "{page}");
    assert!(!page.contains("less page cache than"), "{page}");
    assert!(
        page.lines().any(|line| line.starts_with("/app/light")),
        "{page}"
    );
}

#[test]
fn it_is_one_screen_however_many_groups_there_are() {
    let tried = |n: usize| Tried {
        path: format!("/app/group-{n}\n\x1b[2J"),
        contended_s: 60.0,
        got_bytes: 6e8,
        due_bytes: n as f64 * 1e8,
        ..Tried::default()
    };
    let trial = Trial {
        seconds: 60.0,
        contended_s: 60.0,
        contended_bytes: 6e10,
        groups: (0..100).map(tried).collect(),
        ..Trial::default()
    };
    let screen = Screen::wide(80);
    let page = render(&trial, screen);
    assert!(page.lines().count() <= 30, "{page}");
    assert!(page.contains("88 groups that are nearer"), "{page}");
    assert!(!page.contains('\x1b'), "{page}");
    let table = page.lines().skip(2).take(SHOWN + 1);
    assert!(
        table.into_iter().all(|line| line.chars().count() <= 80),
        "{page}"
    );
}

#[test]
fn a_reader_that_waits_below_its_share_of_the_page_cache_is_reported() {
    let group = |path: &str, file: u64, waited_s| Tried {
        path: path.into(),
        waited_s,
        hit_ratio: Some(0.5),
        file_bytes: Some(file << 20),
        entitlement_bytes: Some(200 << 20),
        ..Tried::default()
    };
    let trial = Trial {
        seconds: 60.0,
        groups: vec![
            group("/app/robbed", 100, 30.0),
            group("/app/well", 100, 0.0),
            group("/app/full", 300, 30.0),
        ],
        ..Trial::default()
    };
    let page = rendered(&trial);
    assert!(
        page.contains("1 group waited with less page cache than ENTITLED, by 100.0 MiB in all"),
        "{page}"
    );
    assert!(page.contains("50.0%  100.0 MiB  200.0 MiB"), "{page}");
}

#[test]
fn a_group_without_a_verdict_has_no_entitlement() {
    let fake = FakeFs::new();
    for path in ["/app/pod", "/app/pod/main"] {
        fake.mkdir(path);
    }
    let settings = Settings {
        manage: vec!["/app/*".into(), "/app/pod/*".into()],
        ..Settings::default()
    };
    let fs: Fs = fake.clone();
    let mut observer = Observer::new(fs, settings.discover(), RuntimeDirs::none()).unwrap();
    let mut tally = Tally::new(&settings);
    let tick = Tick {
        snapshot: observer.observe().snapshot,
        ..Tick::default()
    };
    tally.see(tick, Duration::from_secs(1));
    let trial = tally.finish();
    let of = |path: &str| {
        trial
            .groups
            .iter()
            .find(|group| group.path == path)
            .unwrap()
    };
    assert_eq!(of("/app/pod").entitlement_bytes, None);
    assert!(of("/app/pod/main").entitlement_bytes.is_some());
    let page = rendered(&trial);
    assert!(page.line("/app/pod ").contains(" -     as it is"), "{page}");
}

#[test]
fn the_recommended_next_step_depends_on_the_running_agent() {
    let next = |running_mode, has_unit| {
        let trial = Trial {
            running_mode,
            has_unit,
            program: "target/release/justitia".into(),
            findings: vec!["weights-not-enforced", "swap-none"],
            disks: [("sda".to_owned(), "bfq"), ("sdb".to_owned(), "none")].into(),
            observer: Some("proc"),
            ..Trial::default()
        };
        rendered(&trial)
    };
    let (observe, active) = (Some(Mode::Observe), Some(Mode::Proportional));
    for (mode, has_unit, words) in [
        (None, true, "sudo systemctl enable --now justitia    makes"),
        (
            None,
            false,
            "sudo target/release/justitia run       makes weights hold until Ctrl-C",
        ),
        (observe, true, "sudo systemctl reload justitia"),
        (observe, false, "sudo target/release/justitia run "),
        (active, false, "runs in mode proportional"),
        (active, false, "sudo target/release/justitia top "),
    ] {
        let page = next(mode, has_unit);
        assert!(page.contains(words), "{mode:?}: {page}");
        assert_eq!(page.contains("systemctl"), has_unit, "{mode:?}: {page}");
        assert!(
            page.contains("sudo target/release/justitia doctor "),
            "{page}"
        );
        for words in [
            "it finds weights-not-enforced and 1 more",
            "Disks served by weight: sda (bfq).",
            "Disks not served by weight: sdb.",
            "through /proc",
            "is not known",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }
}

#[test]
fn weights_are_compared_by_their_ratio_whatever_a_group_leaves_unused() {
    let group = |label: &str, proportion, got_bytes, due_bytes| Tried {
        label: label.into(),
        proportion,
        contended_s: 1.0,
        bytes: Some(1.0),
        got_bytes,
        due_bytes,
        ..Tried::default()
    };
    let trial = Trial {
        contended_s: 1.0,
        contended_bytes: 400.0,
        groups: vec![
            group("light", 0.1, 150.0, 100.0),
            // It leaves a part of its share unused.
            group("heavy", 0.8, 250.0, 300.0),
        ],
        ..Trial::default()
    };
    let page = rendered(&trial);
    let words = "heavy got 1.67 times what light got; by weight it is 8.00 times.";
    assert!(page.contains(words), "{page}");
}

#[test]
fn unknown_bandwidth_is_a_matter_of_time_for_root_and_of_permission_for_others() {
    let error = unknown(true);
    assert_eq!(error.exit.code(), 1);
    assert!(error.remedy.contains("at least 2 seconds"), "{error}");
    assert!(without_root(true, "plan").is_none());
    let error = unknown(false);
    assert_eq!(error.exit.code(), 69);
    let problem = without_root(false, "plan").unwrap();
    assert!(error.remedy.contains("as root") && problem.cause.contains("as root"));
    let program = std::env::args().next().unwrap();
    assert_eq!(problem.remedy, format!("sudo {program} plan"));
}
