//! Tests the help texts: each has a description and an example, and fits 100 columns.

use super::*;

/// Every command with its name, hidden ones included.
fn commands() -> Vec<(String, clap::Command)> {
    let mut all = vec![("justitia".to_owned(), command())];
    all.extend(
        command()
            .get_subcommands()
            .map(|sub| (sub.get_name().to_owned(), sub.clone())),
    );
    all
}

fn help(command: &clap::Command) -> String {
    command
        .clone()
        .term_width(100)
        .render_long_help()
        .to_string()
}

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[test]
fn the_definition_is_consistent() {
    command().debug_assert();
}

#[test]
fn a_second_export_is_refused_instead_of_ignored() {
    let error = parse("justitia replay f --export a --export b").unwrap_err();
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn every_command_says_what_it_does_and_shows_an_example() {
    for (name, command) in commands() {
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(about.len() > 10, "{name} has no about");
        assert!(help(&command).contains("Example"), "{name} has no example");
    }
}

#[test]
fn every_argument_has_a_help_text() {
    for (name, command) in commands() {
        for argument in command.get_arguments() {
            assert!(
                argument.get_help().is_some(),
                "{name}: {} has no help",
                argument.get_id()
            );
        }
    }
}

#[test]
fn help_fits_one_hundred_columns() {
    for (name, command) in commands() {
        for line in help(&command).lines() {
            assert!(line.chars().count() <= 100, "{name}: {line}");
        }
    }
}

#[test]
fn a_paragraph_of_the_help_is_one_line_that_wraps_at_any_width() {
    fn check(command: &clap::Command) {
        let text = command.get_after_help().map(ToString::to_string);
        let lines: Vec<_> = text.iter().flat_map(|text| text.lines()).collect();
        for pair in lines.windows(2) {
            let prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
            let ends = pair[0].len() < 50 || pair[0].ends_with(['.', ':']);
            assert!(!pair.iter().all(|line| prose(line)) || ends, "{pair:?}");
        }
        command.get_subcommands().for_each(check);
    }
    check(&command());
}

#[test]
fn the_contracts_commands_are_all_there_and_no_others() {
    let command = command();
    let visible: Vec<&str> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    assert_eq!(
        visible,
        [
            "run", "try", "status", "top", "plan", "explain", "worth", "weight", "color", "probe",
            "web", "doctor", "reserve", "warm", "vm", "gate", "record", "replay", "restore", "lab"
        ]
    );
}

#[test]
fn every_command_that_prints_data_prints_it_as_json_too() {
    for (name, command) in commands() {
        if [
            "try", "status", "top", "plan", "explain", "worth", "weight", "doctor", "reserve",
            "warm", "vm", "replay", "restore",
        ]
        .contains(&name.as_str())
        {
            assert!(
                command.get_arguments().any(|arg| arg.get_id() == "json"),
                "{name}"
            );
        }
    }
}

#[test]
fn the_contracts_command_lines_are_understood() {
    for line in [
        "justitia run --config /c --mode observe --manage /app/* --manage /vm/* --interval 2s",
        "justitia run --wait --verbose --objective strict --state-dir /tmp/s",
        "justitia run --listen off",
        "justitia run --listen [::1]:9619",
        "justitia try --seconds 20 --manage /app/* --exclude /app/b --json",
        "justitia status --json",
        "justitia status --fields --json",
        "justitia top --interval 500ms --once",
        "justitia top --json",
        "justitia plan --manage /app/* --json",
        "justitia explain /app/db --json",
        "justitia worth",
        "justitia worth db --json",
        "justitia vm --images --interval 1s --json",
        "justitia vm run --policy lru2 --weight db=400 --weight web=100 --state-dir /tmp/s",
        "justitia vm policy justitia",
        "justitia weight",
        "justitia weight /app/db 800",
        "justitia weight /app/db --unset",
        "justitia probe mysql --min-tps 1700 --group db --password-file /p --max-waiting 2",
        "justitia probe postgresql --max-latency 50ms --query SELECT --host /run/postgresql",
        "justitia probe redis --max-latency 2ms --blocked --verbose --stats",
        "justitia probe http http://localhost/ --max-latency 50ms --status-url http://localhost/s",
        "justitia probe log /var/log/nginx/access.log --percentile 99 --max-latency 0.1 --once",
        "justitia probe prometheus http://localhost:9090 up --red <1 --json",
        "justitia probe exec --interval 5s --dry-run --window 3 -- check --its args",
        "justitia probe exec --red >5 true",
        "justitia record --append --interval 500ms --seconds 10 /tmp/r.jrec",
        "justitia replay --mode observe --weight db=800 --weight /a/b=1 /tmp/r.jrec",
        "justitia replay /tmp/r.jrec --from 1.5 --to 20 --export /tmp/r.json --json",
        "justitia replay --at 3 /tmp/r.jrec --json",
        "justitia doctor",
        "justitia doctor /app/db --seconds 5 --json",
        "justitia restore --state-dir /tmp/s",
        "justitia web --listen [::1]:9700 --state-dir /tmp/s",
        "justitia lab list",
        "justitia lab waits --kernel 6.12 --cpus 4 --seconds 40 --clock instructions --out /tmp/w",
        "justitia completions zsh",
        "justitia man /tmp/man",
    ] {
        assert!(parse(line).is_ok(), "{line}");
    }
}

#[test]
fn contradictions_are_refused() {
    for line in [
        "justitia weight --unset",
        "justitia replay --export /tmp/r.json",
        "justitia doctor /a /b",
        "justitia probe mysql --password secret",
        "justitia probe exec",
        "justitia probe redis --group db --self",
        "justitia probe log",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}
