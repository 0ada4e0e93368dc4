//! From one agent to the next: knobs stay in force, the learned state is kept, and in the end every knob is
//! as its owner left it, whatever happens in between.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{restore_from, until, Load, KNOBS, NAMES};
use justitia_agent::socket::{reserve, Server};
use justitia_agent::{Agent, Log, Settings};
use justitia_cgroup::{CgroupFs, Fs};
use justitia_policy::config::Mode;
use justitia_policy::units::Bytes;
use proptest::prelude::*;

/// Steps after which an agent has saved its state, in case it is killed.
const SAVED: u32 = 14;

fn settings(load: &Load) -> Settings {
    Settings {
        hand_over: true,
        ..load.settings(Mode::Proportional)
    }
}

fn gains(agent: &Agent) -> Vec<f64> {
    let report = agent.board().report();
    report
        .groups
        .iter()
        .map(|group| group.verdict.as_ref().map_or(1.0, |verdict| verdict.gain))
        .collect()
}

/// The text of each knob, by path and file, as its owner left it.
fn owners(load: &Load) -> BTreeMap<(String, &'static str), String> {
    let paths = NAMES.iter().map(|name| format!("/app/{name}"));
    let there = |path: &String| CgroupFs::open(&*load.fake, path).is_ok();
    let paths: Vec<String> = paths.chain(["/app".to_owned()]).filter(there).collect();
    let knobs = paths
        .iter()
        .flat_map(|path| KNOBS.map(|knob| (path.clone(), knob)));
    knobs
        .filter_map(|(path, knob)| {
            let text = load.fake.text(&path, knob)?;
            Some(((path, knob), text.trim().to_owned()))
        })
        .collect()
}

/// The writes so far that put a knob back to what its owner left.
fn back(load: &Load, owners: &BTreeMap<(String, &'static str), String>) -> Vec<String> {
    let value = |text: &str| text.trim().trim_start_matches("default ").to_owned();
    let writes = load.fake.writes().into_iter();
    let back = writes.filter(|(path, file, text)| {
        let owners = owners
            .iter()
            .find(|((of, knob), _)| of == path && knob == file);
        owners.is_some_and(|(_, owners)| value(owners) == value(text))
    });
    back.map(|(path, file, text)| format!("{path} {file} = {text}"))
        .collect()
}

fn said(log: &Log, what: &str) -> bool {
    log.lines().iter().any(|line| line.contains(what))
}

#[test]
fn the_next_agent_goes_on_within_a_step_and_no_knob_passes_its_prior_value() {
    let mut load = Load::new();
    load.fake.add_disk("sda", true);
    let (before, owners) = (load.knobs(), owners(&load));
    let mut first = load.agent(settings(&load));
    load.steps(&mut first, 12);
    let (in_force, learned) = (load.knobs(), gains(&first));
    assert_ne!(in_force, before);
    assert!(
        learned.iter().any(|gain| (gain - 1.0).abs() > 0.01),
        "{learned:?}"
    );
    first.hand_over().unwrap();
    load.fake.clear_writes();
    // On a slow host the next agent starts late.
    load.fake.advance(Duration::from_secs(60));
    let mut next = load.agent(settings(&load));
    assert_eq!(load.knobs(), in_force);
    load.steps(&mut next, 4);
    for (gain, learned) in gains(&next).iter().zip(&learned) {
        assert!(
            (gain - learned).abs() < 0.1 * learned,
            "{gain} after {learned}"
        );
    }
    assert_eq!(back(&load, &owners), [""; 0]);
    assert!(said(&load.log, "continues from the previous agent"));
    assert_eq!(
        load.fake.text("block:sda", "low_latency").unwrap().trim(),
        "0"
    );
    next.finish().unwrap();
    assert_eq!(load.knobs(), before);
    assert_eq!(
        load.fake.text("block:sda", "low_latency").unwrap().trim(),
        "1"
    );
    assert!(
        !load.state.path().join("handover").exists() && !load.state.path().join("journal").exists()
    );
}

#[test]
fn a_knob_of_the_users_stays_the_users() {
    for killed in [false, true] {
        let mut load = Load::new();
        let mut first = load.agent(settings(&load));
        load.steps(&mut first, SAVED);
        let fake = load.fake.clone();
        fake.foreign_write("/app/light", "memory.high", "126418944");
        fake.foreign_write("/app/heavy", "io.weight", "default 333");
        // Less than the time between two saves.
        load.steps(&mut first, 5);
        let of = |path, knob| fake.text(path, knob).unwrap().trim().to_owned();
        let users = || {
            let high = of("/app/light", "memory.high");
            (high, of("/app/heavy", "io.weight"))
        };
        let taken = users();
        if killed {
            std::mem::forget(first);
        } else {
            first.hand_over().unwrap();
        }
        let mut next = load.agent(settings(&load));
        load.steps(&mut next, 8);
        assert_eq!(users(), taken, "killed: {killed}");
        next.finish().unwrap();
        assert_eq!(users(), taken);
    }
}

#[test]
fn a_group_that_the_next_agent_does_not_manage_gets_its_values_back() {
    let mut load = Load::new();
    let owners = owners(&load);
    let mut first = load.agent(settings(&load));
    load.steps(&mut first, 8);
    first.hand_over().unwrap();
    let others = Settings {
        manage: vec!["/app/heavy".into(), "/app/idle".into()],
        ..settings(&load)
    };
    let mut next = load.agent(others);
    load.steps(&mut next, 3);
    for knob in KNOBS {
        let key = ("/app/light".to_owned(), knob);
        let present = load.fake.text(&key.0, knob).unwrap();
        assert_eq!(present.trim(), owners[&key], "{knob}");
    }
    next.finish().unwrap();
}

#[test]
fn a_reservation_outlasts_the_handover() {
    let mut load = Load::new();
    let mut first = load.agent(settings(&load));
    let socket = load.state.path().join("agent.sock");
    let server = Server::listen(&socket, first.board()).unwrap();
    load.steps(&mut first, 1);
    let minute = Duration::from_secs(60);
    reserve::reserve(&socket, "light", Bytes::mib(20), minute).unwrap();
    load.steps(&mut first, 1);
    drop(server);
    first.hand_over().unwrap();
    load.fake.advance(Duration::from_secs(40));
    let mut next = load.agent(settings(&load));
    load.steps(&mut next, 1);
    let guard = next.board().report().guard.unwrap();
    assert_eq!(guard.reserved_bytes, 20 << 20);
    next.hand_over().unwrap();
    // No longer than was asked for.
    load.fake.advance(Duration::from_secs(40));
    let mut next = load.agent(settings(&load));
    load.steps(&mut next, 1);
    let reserved = next
        .board()
        .report()
        .guard
        .map_or(0, |guard| guard.reserved_bytes);
    assert_eq!(reserved, 0);
}

#[test]
fn after_a_failed_save_no_older_state_is_left_for_the_next_agent() {
    let mut load = Load::new();
    let mut first = load.agent(settings(&load));
    load.steps(&mut first, SAVED);
    let state = load.state.path().join("handover");
    assert!(state.exists());
    fs::create_dir(load.state.path().join("handover.new")).unwrap();
    load.steps(&mut first, SAVED);
    assert!(!state.exists());
    first.finish().unwrap();
}

#[test]
fn limits_that_a_killed_agent_set_for_a_first_or_later_reservation_end_with_it() {
    for later in [false, true] {
        limits_end_with_their_reservation(later);
    }
}

fn limits_end_with_their_reservation(later: bool) {
    let mut load = Load::new();
    let settings = Settings {
        hand_over: true,
        ..load.settings(Mode::Justitia)
    };
    let fake = load.fake.clone();
    let limited = || {
        let high = |name: &str| fake.text(&format!("/app/{name}"), "memory.high");
        NAMES.iter().any(|name| high(name).unwrap() != "max\n")
    };
    let mut first = load.agent(settings.clone());
    let socket = load.state.path().join("agent.sock");
    let _server = Server::listen(&socket, first.board()).unwrap();
    let reserve = |mib| {
        let time = Duration::from_millis(1500);
        reserve::reserve(&socket, "idle", Bytes::mib(mib), time).unwrap();
    };
    // The state is saved, and not for the next seconds.
    load.steps(&mut first, 12);
    if later {
        reserve(300);
        load.steps(&mut first, 1);
        assert!(limited());
        reserve(0);
        load.steps(&mut first, 12);
        assert!(!limited());
    }
    reserve(300);
    load.steps(&mut first, 1);
    assert!(limited());
    std::mem::forget(first);
    let mut next = load.agent(settings);
    assert!(limited() && said(&load.log, "continues from the previous agent"));
    until("the limits are lifted", || {
        load.steps(&mut next, 1);
        !limited()
    });
}

#[test]
fn when_the_state_cannot_be_saved_everything_is_restored() {
    // Neither the new file nor the rename succeeds.
    for name in ["handover.new", "handover"] {
        let mut load = Load::new();
        let before = load.knobs();
        let mut first = load.agent(settings(&load));
        load.steps(&mut first, 8);
        fs::create_dir(load.state.path().join(name)).unwrap();
        let _ = first.hand_over();
        assert_eq!(load.knobs(), before, "{name}");
        assert!(said(&load.log, "nothing is handed over"), "{name}");
    }
}

#[test]
fn an_agent_without_handover_saves_no_state_for_the_next_one() {
    let mut load = Load::new();
    let before = load.knobs();
    let plain = load.settings(Mode::Proportional);
    let mut first = load.agent(plain);
    load.steps(&mut first, SAVED);
    assert!(!load.state.path().join("handover").exists());
    std::mem::forget(first);
    load.agent(settings(&load));
    assert_eq!(load.knobs(), before);
}

/// The fate of the saved state.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Damage {
    None,
    /// Cut off after this fraction of it.
    Torn(f64),
    /// One bit is flipped at this fraction of it.
    Flipped(f64),
    OtherBoot,
    OtherVersion,
    OtherMode,
    Old,
}

#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    Nothing,
    Foreign,
    Recreated,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Next {
    Lives,
    /// It took the state over, and made no step.
    DiesBeforeItsStep,
    DiesAfter(u32),
    /// It never came.
    NeverComes,
}

#[derive(Debug, Clone)]
struct Case {
    steps: u32,
    killed: bool,
    damage: Damage,
    meanwhile: Meanwhile,
    next: Next,
}

fn case() -> impl Strategy<Value = Case> {
    let damage = prop_oneof![
        4 => Just(Damage::None),
        1 => (0.0..1.0).prop_map(Damage::Torn),
        1 => (0.0..1.0).prop_map(Damage::Flipped),
        1 => prop_oneof![
            Just(Damage::OtherBoot),
            Just(Damage::OtherVersion),
            Just(Damage::OtherMode),
            Just(Damage::Old),
        ],
    ];
    let meanwhile = prop_oneof![
        2 => Just(Meanwhile::Nothing),
        1 => Just(Meanwhile::Foreign),
        1 => Just(Meanwhile::Recreated),
        1 => Just(Meanwhile::Gone),
    ];
    let next = prop_oneof![
        2 => Just(Next::Lives),
        1 => Just(Next::DiesBeforeItsStep),
        1 => (1..SAVED).prop_map(Next::DiesAfter),
        1 => Just(Next::NeverComes),
    ];
    (6..SAVED + 3, any::<bool>(), damage, meanwhile, next).prop_map(
        |(steps, killed, damage, meanwhile, next)| Case {
            steps,
            killed,
            damage,
            meanwhile,
            next,
        },
    )
}

fn damage(path: &Path, damage: Damage, load: &Load) {
    let text = fs::read(path).unwrap();
    let at = |part: f64| (part * (text.len() - 1) as f64) as usize;
    let swapped = |from: &str, to: &str| {
        let line = String::from_utf8_lossy(&text).replacen(from, to, 1);
        let (first, rest) = line.split_once('\n').unwrap();
        let mut text = String::new();
        justitia_agent::journal::push_line(&mut text, first.split_once(' ').unwrap().1);
        text + rest
    };
    match damage {
        Damage::None | Damage::OtherMode => {}
        Damage::Torn(part) => fs::write(path, &text[..at(part)]).unwrap(),
        Damage::Flipped(part) => {
            let mut text = text.clone();
            text[at(part)] ^= 1;
            fs::write(path, text).unwrap();
        }
        Damage::OtherBoot => fs::write(path, swapped("test-boot", "other-boot")).unwrap(),
        Damage::OtherVersion => {
            fs::write(path, swapped("justitia-handover 1", "justitia-handover 2")).unwrap();
        }
        Damage::Old => load.fake.advance(Duration::from_secs(200)),
    }
}

fn run(case: &Case) -> Result<(), TestCaseError> {
    let mut load = Load::new();
    let path = load.state.path().join("handover");
    let mut expected = owners(&load);
    let mut first = load.agent(settings(&load));
    load.steps(&mut first, case.steps);
    if case.killed {
        // No destructor of ours runs on kill -9.
        std::mem::forget(first);
    } else {
        first.hand_over().unwrap();
    }
    let left = path.exists();
    prop_assert_eq!(left, !case.killed || case.steps >= 10);
    if left {
        damage(&path, case.damage, &load);
    }
    match case.meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::Foreign => {
            load.fake
                .foreign_write("/app/heavy", "memory.high", "734003200");
            expected.insert(("/app/heavy".into(), "memory.high"), "734003200".into());
        }
        Meanwhile::Recreated | Meanwhile::Gone => {
            load.fake.rmdir("/app/idle");
            if let Meanwhile::Recreated = case.meanwhile {
                load.fake.mkdir("/app/idle");
                load.fake
                    .update("/app/idle", |group| group.file = Bytes::mib(20));
            } else {
                expected.retain(|(path, _), _| path != "/app/idle");
            }
        }
    }
    let goes_on = left && case.damage == Damage::None;
    load.fake.clear_writes();
    if case.next != Next::NeverComes {
        let mode = match case.damage {
            Damage::OtherMode => Mode::Justitia,
            _ => Mode::Proportional,
        };
        let mut next = load.agent(Settings {
            hand_over: true,
            ..load.settings(mode)
        });
        prop_assert!(!path.exists(), "a state is used once");
        if goes_on {
            prop_assert_eq!(load.fake.writes(), Vec::new(), "before the first step");
        } else {
            prop_assert_eq!(&owners(&load), &expected, "not gone on from");
        }
        let refused = said(&load.log, "cannot continue");
        prop_assert_eq!(refused, left && case.damage != Damage::None);
        match case.next {
            Next::Lives => {
                load.steps(&mut next, 6);
                if goes_on {
                    prop_assert_eq!(back(&load, &expected), Vec::<String>::new());
                }
                next.finish().unwrap();
            }
            Next::DiesAfter(steps) => {
                load.steps(&mut next, steps);
                std::mem::forget(next);
            }
            _ => std::mem::forget(next),
        }
    }
    let fs: Fs = load.fake.clone();
    restore_from(&fs, load.state.path());
    prop_assert_eq!(&owners(&load), &expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn between_two_agents_nobody_sees_a_prior_value_and_all_ends_as_its_owner_left_it(
        case in case(),
    ) {
        run(&case)?;
    }
}
