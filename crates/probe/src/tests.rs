//! The help of each kind keeps the promises of the other commands; arguments become objectives.

use super::*;
use clap::CommandFactory as _;
use justitia_args::probe::Kind;
use justitia_policy::color::Color;
use justitia_probe::Exit;

fn parse(line: &str) -> Result<ProbeArgs, clap::Error> {
    let words = std::iter::once("probe").chain(line.split_whitespace());
    Cli::try_parse_from(words).map(|cli| cli.probe)
}

fn probe_args(line: &str) -> ProbeArgs {
    parse(line).unwrap()
}

fn kinds() -> Vec<clap::Command> {
    Cli::command().get_subcommands().cloned().collect()
}

#[test]
fn every_kind_says_what_it_does_with_an_example_and_a_help_for_each_argument() {
    for kind in kinds() {
        let name = kind.get_name().to_owned();
        let help = kind.clone().term_width(100).render_long_help().to_string();
        assert!(help.contains("Example"), "{name}");
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{name}: {line}");
        }
        for argument in kind.get_arguments() {
            assert!(
                argument.get_help().is_some(),
                "{name}: {}",
                argument.get_id()
            );
        }
    }
}

#[test]
fn no_kind_takes_a_password_on_the_command_line() {
    for kind in kinds() {
        for argument in kind.get_arguments() {
            assert_ne!(argument.get_id(), "password", "{}", kind.get_name());
        }
    }
}

#[test]
fn arguments_become_the_objective() {
    let args = probe_args("mysql --min-tps 1700 --max-latency 50ms --max-waiting 2 --slack 10");
    let objective = kinds::choose(&args.kind).unwrap().objective;
    assert_eq!(objective.min_per_second, Some(1700.0));
    assert_eq!(objective.max_latency, Some(Duration::from_millis(50)));
    assert!((objective.max_waiting - 2.0).abs() < 1e-9);
    assert!((objective.slack - 0.1).abs() < 1e-9);
    let args = probe_args("prometheus http://h:9090 up --red <1 --yellow >2");
    let objective = kinds::choose(&args.kind).unwrap().objective;
    assert_eq!(objective.red, "<1".parse().ok());
    assert_eq!(objective.yellow, ">2".parse().ok());
}

#[test]
fn a_probe_without_an_objective_or_with_a_strange_one_is_refused() {
    for line in [
        "mysql",
        "postgres --query SELECT",
        "redis",
        "http http://h/",
        "log access.log",
        "prometheus http://h up",
        "http http://h/ --max-latency 1s --min-tps 5",
        "mysql --min-tps 0",
        "mysql --max-latency soon",
        "mysql --min-tps 5 --count a'b",
        "mysql --min-tps 5 --window 4",
        "exec --red high true",
        "log access.log --max-latency 1s --percentile 101",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn a_yellow_limit_beyond_the_red_one_is_refused() {
    let refused = |limits: &str| {
        let args = probe_args(&format!("exec {limits} true"));
        kinds::choose(&args.kind).is_err()
    };
    assert!(refused("--red 1 --yellow 5") && refused("--red <5 --yellow <1"));
    assert!(!refused("--red 5 --yellow 1") && !refused("--red <1 --yellow <5"));
    assert!(!refused("--red <1 --yellow >5"));
}

#[test]
fn addresses_that_cannot_be_or_carry_a_password_are_refused() {
    for line in [
        "http ftp://h/ --max-latency 1s",
        "redis --host http://h:1 --max-latency 1s",
        "redis --host rediss://h:port --max-latency 1s",
        "redis --host h --insecure --max-latency 1s",
        "http http://user:secret@h/ --max-latency 1s",
        "http http://h/ --max-latency 1s --status-url h/status",
        "prometheus h:9090 up --red 1",
        "redis --host redis://:secret@h --max-latency 1s",
    ] {
        let error = kinds::choose(&probe_args(line).kind).err().unwrap();
        assert_eq!(error.exit, Exit::Usage, "{line}");
    }
}

/// [`Chosen::unchecked`](super::kinds::Chosen) of a probe with these arguments.
fn unchecked(line: &str) -> Option<&'static str> {
    kinds::choose(&probe_args(line).kind).unwrap().unchecked
}

#[test]
fn a_target_whose_certificate_is_not_checked_is_reported() {
    for line in [
        "mysql --host db --min-tps 1",
        "mysql --min-tps 1",
        "mysql --host db --ssl-mode DISABLED --min-tps 1",
        "mysql --socket /run/s --ssl-mode REQUIRED --min-tps 1",
        "postgres --host db --min-tps 1",
        "postgres --host db --sslmode verify-full --sslrootcert /ca --min-tps 1",
        "redis --host rediss://cache:6380 --max-latency 1s",
        "redis --host cache --max-latency 1s",
        "http https://h/ --max-latency 1s",
        "http http://h/ --insecure --max-latency 1s",
        "prometheus https://h up --red 1",
    ] {
        assert_eq!(unchecked(line), None, "{line}");
    }
    let certificate = [
        "mysql --ssl-mode REQUIRED --min-tps 1",
        "postgres --host db --sslmode require --min-tps 1",
        "redis --host rediss://cache --insecure --max-latency 1s",
        "redis --tls --insecure --max-latency 1s",
        "http https://h/ --insecure --max-latency 1s",
        "prometheus https://h up --insecure --red 1",
    ];
    let name = [
        "mysql --host db --ssl-mode VERIFY_CA --min-tps 1",
        "postgres --host db --sslmode require --tls-ca /ca --min-tps 1",
    ];
    let preferred = ["mysql --host db --ssl-mode PREFERRED --min-tps 1"];
    for (what, lines) in [
        ("the server's certificate is", &certificate[..]),
        ("the name in", &name),
        ("only if the server has it", &preferred),
    ] {
        for line in lines {
            let said = unchecked(line).unwrap_or_default();
            assert!(said.contains(what), "{line}: {said}");
        }
    }
}

#[test]
fn the_commands_own_arguments_are_not_the_probes() {
    let args = probe_args("exec --window 1 -- check --window 7 -v");
    assert_eq!(kinds::common(&args.kind).window, 1);
    let Kind::Exec(exec) = args.kind else {
        panic!("not exec")
    };
    assert_eq!(exec.command, ["check", "--window", "7", "-v"]);
}

#[test]
fn a_probe_of_a_command_goes_through_all_of_it() {
    let args = probe_args("exec --once -- sh -c true");
    let chosen = kinds::choose(&args.kind).unwrap();
    let config = Config {
        open: chosen.open,
        objective: chosen.objective,
        window: 5,
        interval: Duration::from_millis(10),
        timeout: Duration::from_secs(10),
    };
    let (sender, receiver) = channel();
    let verdict = once(&config, (sender, &receiver)).unwrap();
    assert_eq!(verdict.color, Color::Green);
}
