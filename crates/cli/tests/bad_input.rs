//! Tests bad input to the program: one line of cause, one of remedy, the right exit code, nothing changed.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn justitia(arguments: &[impl AsRef<OsStr>]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_justitia"));
    command
        .args(arguments)
        .env_remove("NOTIFY_SOCKET")
        .env("NO_COLOR", "1");
    command.output().expect("run justitia")
}

/// Runs a command that must refuse, checks the form of the refusal, and returns cause and remedy.
fn refused(arguments: &[impl AsRef<OsStr> + Debug], codes: &[i32]) -> (String, String) {
    let output = justitia(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{arguments:?}: {stderr}");
    let cause = lines[0]
        .strip_prefix("justitia: ")
        .unwrap_or_else(|| panic!("{stderr}"));
    let remedy = lines[1]
        .strip_prefix("  ")
        .unwrap_or_else(|| panic!("{stderr}"));
    assert!(!cause.is_empty() && !remedy.trim().is_empty(), "{stderr}");
    let code = output.status.code().unwrap();
    assert!(
        codes.contains(&code),
        "{arguments:?}: exit code {code}: {stderr}"
    );
    assert!(output.stdout.is_empty(), "{arguments:?}: nothing on stdout");
    (cause.to_owned(), remedy.to_owned())
}

/// The arguments of a command line; `''` is an empty one.
fn words(line: &str) -> Vec<&str> {
    let words = line.split_whitespace();
    words.map(|word| word.trim_matches('\'')).collect()
}

/// The rows of a table, whose cells bars separate.
fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    let lines = table.lines().filter(|line| !line.is_empty());
    lines.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        cells.try_into().unwrap_or_else(|_| panic!("{line}"))
    })
}

fn refused_over(config: &str, dir: &Path) -> (String, String) {
    let file = dir.join("justitia.toml");
    fs::write(&file, config).unwrap();
    refused(&["run", "--config", file.to_str().unwrap()], &[2])
}

/// Command lines, with a part of the cause and of the remedy.
const WRONG_ARGUMENTS: &str = r"
                                               | no command given                    | justitia --help
statsu                                         | statsu                              | did you mean status?
run --mod observe                              | --mod                               | did you mean --mode?
run --mode propotional                         | propotional                         | did you mean proportional?
run --mode fast                                | fast                                | observe, justitia, proportional
run --objective equal                          | equal                               | fair, strict
run --interval 1ms                             | --interval 1ms                      | 1s, 500ms
run --listen localhost                         | listen localhost                    | 127.0.0.1:9619
run --manage ''                                |                                     | /app/*
plan --mode                                    | --mode                              | proportional
run --config                                   | --config                            | justitia run --help
explain                                        | GROUP                               |
weight /app/db 0                               | weight 0                            | 1 to 10000
weight /app/db 10001                           | weight 10001                        | 1 to 10000
weight /app/db -5                              | weight -5                           | 1 to 10000
weight /app/db heavy                           | weight heavy                        | 1 to 10000
weight /app/db 5 --unset                       | --unset                             |
probe                                          | no command given                    | justitia probe --help
probe mysq                                     | mysq                                | did you mean mysql?
probe mysql                                    | --min-tps                           | justitia probe mysql --help
probe exec --once ''                           | no program                          | after --
probe exec --interval 1ms true                 | --interval 1ms                      | 1s, 500ms
probe http ftp://h/ --max-latency 1s           | ftp://h/                            | exec with curl
probe mysql --host a:b@h --min-tps 1           | must not carry                      | --password-file
probe prometheus http://a:b@h/ up --red 1      | must not carry                      | everybody can list
probe http http:// --max-latency 1s            | http:// is malformed or has no host | http://HOST:PORT/PATH
probe prometheus http://h:99999/ up --red 1    | http://h:99999/ is malformed        | http://HOST:PORT/PATH
probe redis --host '' --max-latency 1s         | --host                              | --help
explain ''                                     | GROUP                               | --help
doctor ''                                      | GROUP                               | --help
vm --interval 1ms                              | --interval 1ms                      | 1s, 500ms
vm run --policy mru                            | mru                                 | lru2
vm run --weight db                             | --weight db                         | NAME=N
vm run --weight db=0                           | weight 0                            | 1 to 10000
vm policy arc                                  | arc                                 | justitia
completions csh                                | csh                                 | bash
reserve db                                     | <SIZE>                              | --help
reserve db much                                | SIZE much is not a size             | 4G
reserve db -4G                                 | -4                                  | --help
reserve db 4X                                  | SIZE 4X                             | 4G
reserve db 0                                   | no size to reserve                  | --clear
reserve db 1G --for 0                          | --for 0                             | 500ms
reserve db 1G --for 2h                         | --for 2h is not a time from 1s to 1h | 500ms
reserve db 1G --clear                          | --clear                             | --help
warm                                           | <PATH>                              | --help
";

#[test]
fn wrong_arguments_are_wrong_usage() {
    for [line, cause, remedy] in rows(WRONG_ARGUMENTS) {
        let (said_cause, said_remedy) = refused(&words(line), &[2]);
        assert!(said_cause.contains(cause), "{line}: {said_cause}");
        assert!(said_remedy.contains(remedy), "{line}: {said_remedy}");
    }
}

#[test]
fn a_wrong_configuration_is_wrong_usage_and_names_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let (cause, remedy) = refused_over("mode = 'observe'\nmanages = []\n", dir.path());
    assert!(cause.contains(":2: unknown key manages"), "{cause}");
    assert!(remedy.contains("did you mean manage?"), "{remedy}");
    // A file that cannot be read is a failure, as in every command.
    let (cause, _) = refused(&["run", "--config", "/nonexistent/justitia.toml"], &[1]);
    assert!(
        cause.contains("/nonexistent/justitia.toml: no such file"),
        "{cause}"
    );
    // A directory cannot be read as a file, not even by root.
    let (cause, _) = refused(&["run", "--config", "/"], &[1]);
    assert!(cause.contains("cannot read the configuration /"), "{cause}");
    let binary = dir.path().join("binary.toml");
    fs::write(&binary, b"mode = '\xff'\n").unwrap();
    let (cause, _) = refused(&["run", "--config", binary.to_str().unwrap()], &[2]);
    assert!(cause.ends_with("is not UTF-8 text"), "{cause}");
}

#[test]
fn without_an_agent_there_is_nobody_to_ask() {
    let dir = tempfile::tempdir().unwrap();
    for line in [
        "status",
        "status --json",
        "explain /app/db",
        "reserve /app/db 1G",
        "reserve /app/db --clear --json",
        "warm Cargo.toml",
    ] {
        let line = format!("{line} --state-dir {}", dir.path().display());
        let (cause, remedy) = refused(&words(&line), &[1]);
        assert!(cause.starts_with("no agent listens at"), "{cause}");
        assert!(remedy.contains("justitia run"), "{remedy}");
    }
}

/// Exit code 69 on a host without cgroup v2 memory or without permission; elsewhere no group matches. In both
/// cases the host is unchanged.
#[test]
fn a_host_that_cannot_or_a_glob_that_matches_nothing_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let state = state.to_str().unwrap();
    let globs = ["--manage", "/justitia-matches-nothing/*"];
    let run = [&["run", "--state-dir", state][..], &globs].concat();
    let (_, remedy) = refused_after_log(&run);
    assert!(!remedy.is_empty());
    let plan = [
        &["plan", "--interval", "100ms", "--state-dir", state][..],
        &globs,
    ]
    .concat();
    refused(&plan, &[1, 69]);
    assert!(!Path::new(state).join("journal").exists());
    assert!(!Path::new(state).join("agent.sock").exists());
}

/// As [`refused`] for `run`, which also logs to stderr: the last two lines are the refusal.
fn refused_after_log(arguments: &[&str]) -> (String, String) {
    let output = justitia(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = stderr.lines().collect();
    let [.., cause, remedy] = lines[..] else {
        panic!("{stderr}")
    };
    assert!([1, 69].contains(&output.status.code().unwrap()), "{stderr}");
    (cause.to_owned(), remedy.to_owned())
}

#[test]
fn restoring_without_a_journal_is_done_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().to_str().unwrap();
    let output = justitia(&["restore", "--state-dir", state]);
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("nothing to restore: {state} has no journal\n")
    );
    let nowhere = dir.path().join("nowhere");
    let arguments = ["restore", "--state-dir", nowhere.to_str().unwrap()];
    let (cause, _) = refused(&arguments, &[1]);
    assert!(cause.contains("no directory"), "{cause}");
    assert_eq!(fs::read_dir(state).unwrap().count(), 0, "nothing is made");
    let output = justitia(&["restore", "--json", "--state-dir", state]);
    assert!(String::from_utf8(output.stdout)
        .unwrap()
        .contains("\"restored\": 0"));
}

/// Command lines with an option whose value is outside its range, and what is said of the two.
const BAD_RANGES: &str = r"
doctor --seconds 61                            | is not a number from 0 to 60
try --seconds 1                                | is not a number from 2 to 86400
top --interval 2m                              | is not a time from 100ms to 60s
color db green --for 9999h                     | is not a time from 100ms to 168h
replay --from nan f                            | is not a number of seconds from 0
replay --at inf f                              | is not a number of seconds from 0
replay --differences x f                       | is not a whole number from 0
probe redis --max-latency 2h                   | is not a time from 1us to 1h
probe redis --max-latency 1s --port 70000      | is not a number from 0 to 65535
probe redis --max-latency 1s --window 4        | is not an odd number from 1 to 99
probe redis --max-latency 1s --slack NaN       | is not a number from 0 to 100
probe mysql --min-tps 0                        | is not a number above 0
probe exec --red x true                        | is not a limit
lab run fileserver --memory 1Q --out /x        | is not a size
lab run fileserver --memory 1M --out /x        | is not a size from 256M to 1T
lab run fileserver --cpus 65 --out /x          | is not a number from 1 to 64
lab run readmix --zipf x --out /x              | is not a number
";

/// The same where the message words the value in another way.
const OTHER_BAD_RANGES: &str = r"
replay --from 5 --to 3 f                       | --from 5 is after --to 3
replay --weight db=0 f                         | --weight 0 of db is not a number from 1 to 10000
replay --more db=0x f                          | --more 0x of db is not a size
reserve db 2000000T                            | SIZE 2000000T is not a size up to 1048576T
lab run readmix --zipf nan --out /x            | --zipf NaN is not a number from 0 to 4
";

#[test]
fn a_range_message_names_the_option_the_value_and_the_range() {
    for [line, words_of_range] in rows(BAD_RANGES) {
        let (said, _) = refused(&words(line), &[2]);
        let option = said.strip_suffix(words_of_range);
        let option = option.unwrap_or_else(|| panic!("{line}: {said}")).trim();
        assert!(
            option.contains("--") && line.contains(option),
            "{line}: {said}"
        );
    }
    for [line, cause] in rows(OTHER_BAD_RANGES) {
        let (said, _) = refused(&words(line), &[2]);
        assert_eq!(said, cause, "{line}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for arguments in [
        &["--help"][..],
        &["completions", "bash"],
        &["lab", "list"],
        &["probe", "exec", "--once", "true"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_justitia"))
            .args(arguments)
            .stdout(full)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(
            stderr.starts_with("justitia: cannot write to standard output: no space left"),
            "{arguments:?}: {stderr}"
        );
    }
}

/// Command lines, and what the message names.
const FILES: &str = r"
replay /nonexistent/file                                           | /nonexistent/file
replay /                                                           | /
replay FILE                                                        | FILE
record --append / --state-dir DIR                                  | /
record FILE/beneath --state-dir DIR                                | FILE
lab report /nonexistent                                            | /nonexistent
lab report FILE                                                    | FILE
lab report DIR                                                     | DIR
lab run fileserver --out FILE                                      | FILE
man FILE                                                           | FILE
warm /nonexistent --state-dir DIR                                  | /nonexistent
plan --config /nonexistent                                         | /nonexistent
replay --config /nonexistent FILE                                  | /nonexistent
probe redis --once --max-latency 1s --password-file /nonexistent   | /nonexistent
probe mysql --once --min-tps 1 --defaults-file /nonexistent        | /nonexistent
probe mysql --once --min-tps 1 --defaults-file /                   | /
probe log --once --max-latency 1s /nonexistent                     | /nonexistent
probe log --once --max-latency 1s DIR                              | DIR
probe log --once --max-latency 1s /dev/zero                        | /dev/zero
probe log --once --max-latency 1s PIPE                             | PIPE
probe exec --once /nonexistent                                     | /nonexistent
";

/// The rule of `justitia --help`: 1 for a file or directory that cannot be read or written.
#[test]
fn a_file_that_cannot_be_read_or_written_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().to_str().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "text\n").unwrap();
    let file = file.to_str().unwrap();
    let pipe = dir.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let pipe = pipe.to_str().unwrap();
    for row in rows::<2>(FILES) {
        let [line, named] = row.map(|cell| {
            let cell = cell.replace("FILE", file).replace("DIR", state);
            cell.replace("PIPE", pipe)
        });
        let (cause, _) = refused(&words(&line), &[1]);
        assert!(
            cause.contains(&named) && !cause.contains("os error"),
            "{line}: {cause}"
        );
    }
}

/// Arguments of a probe, and the server as the message begins with it.
const SERVERS: &str = r"
redis --max-latency 1s --port 1                | Redis at 127.0.0.1:1
redis --max-latency 1s --host /nonexistent     | Redis at /nonexistent
mysql --min-tps 1 --port 1                     | MySQL at 127.0.0.1:1
mysql --min-tps 1 --socket /nonexistent        | MySQL at /nonexistent
postgres --min-tps 1 --host 127.0.0.1 --port 1 | PostgreSQL at 127.0.0.1:1: error connecting to server
http --max-latency 1s http://127.0.0.1:1/      | http://127.0.0.1:1/
";

#[test]
fn a_server_that_cannot_be_reached_is_named_with_the_systems_words() {
    for [kind, server] in rows(SERVERS) {
        let line = format!("probe {kind} --once");
        let (cause, _) = refused(&words(&line), &[1]);
        let words = ["connection refused", "no such file or directory"];
        let expected = words.map(|words| format!("{server}: {words}"));
        assert!(expected.contains(&cause), "{line}: {cause}");
    }
}

/// Exit code 69 on a host without cgroup v2. The packaged unit starts a probe that declares again, unless it ends
/// with 2.
#[test]
fn a_probe_refuses_an_unknown_group_even_if_it_declares_nothing() {
    for (mode, code) in [
        ("--once", 2),
        ("--dry-run", 2),
        ("--json", 2),
        ("--window=1", 1),
    ] {
        let arguments = ["probe", "exec", mode, "--group", "/nonexistent", "true"];
        let (cause, _) = refused(&arguments, &[code, 69]);
        assert!(!cause.contains("os error"), "{mode}: {cause}");
    }
}

#[test]
fn a_closed_pipe_ends_what_repeats() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_justitia"))
        .args(["vm", "--json", "--interval", "100ms", "--state-dir"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    let deadline = Instant::now() + Duration::from_secs(30);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it ignores the closed pipe");
        }
        thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        line.starts_with('{') && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn a_replay_that_fails_leaves_no_export() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.json");
    let export = ["replay", "--export", file.to_str().unwrap()];
    refused(&[&export[..], &["/nonexistent"]].concat(), &[1]);
    assert!(!file.exists());
}

#[test]
fn an_unknown_experiment_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    refused(
        &["lab", "run", "fileservr", "--out", out.to_str().unwrap()],
        &[2],
    );
    assert!(!out.exists());
}

#[test]
fn man_pages_and_completions_come_from_the_arguments() {
    let dir = tempfile::tempdir().unwrap();
    assert!(justitia(&["man", dir.path().to_str().unwrap()])
        .status
        .success());
    assert!(dir.path().join("justitia-run.1").exists());
    let output = justitia(&["completions", "bash"]);
    assert!(String::from_utf8(output.stdout)
        .unwrap()
        .contains("justitia"));
}

#[test]
fn an_argument_that_is_no_utf8_is_wrong_usage() {
    let arguments = ["run", "--mode"].map(OsStr::new);
    let arguments = [&arguments[..], &[OsStr::from_bytes(b"\xff")]].concat();
    let (_, remedy) = refused(&arguments, &[2]);
    assert!(remedy.contains("justitia run --help"), "{remedy}");
}

#[test]
fn help_and_version_are_no_errors() {
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["--version"],
        &["lab", "--help"],
    ] {
        let output = justitia(arguments);
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_policy_of_machines_needs_a_running_image_cache() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = dir.path().to_str().unwrap();
    for policy in [&[][..], &["lfu"]] {
        let arguments = [&["vm", "policy", "--state-dir", state_dir], policy].concat();
        let (cause, remedy) = refused(&arguments, &[1]);
        assert!(cause.contains("vm.sock"), "{cause}");
        assert!(remedy.contains("justitia vm run"), "{remedy}");
    }
}

#[test]
fn a_command_whose_program_is_not_installed_says_which_and_how_to_get_it() {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("justitia");
    install(env!("CARGO_BIN_EXE_justitia"), &alone);
    for (arguments, program) in [
        (&["lab", "list"][..], "justitia-lab"),
        (&["probe", "exec", "--once", "true"], "justitia-probe"),
        (&["web"], "justitia-web"),
    ] {
        let output = Command::new(&alone).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines[0].contains(program) && lines[1].contains("make build"),
            "{text}"
        );
    }
    let help = Command::new(&alone)
        .args(["lab", "run", "--help"])
        .output()
        .unwrap();
    assert!(help.status.success() && !help.stdout.is_empty());
}

#[test]
fn a_command_passes_on_all_arguments_behind_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (own, sibling) = (
        dir.path().join("justitia"),
        dir.path().join("justitia-probe"),
    );
    let script = dir.path().join("script");
    fs::write(&script, "#!/bin/sh\nprintf '%s|' \"$@\"\nexit 7\n").unwrap();
    install(env!("CARGO_BIN_EXE_justitia"), &own);
    install(&script, &sibling);
    let words = ["exec", "--once", "--", "a b", "--window"];
    let output = Command::new(&own)
        .arg("probe")
        .args(words)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"exec|--once|--|a b|--window|");
}

/// Copies a program in a process of its own. A copy made here could not be executed (`ETXTBSY`) while a child
/// of another test's thread, between fork and exec, still has the file open for writing.
fn install(program: impl AsRef<OsStr>, to: &Path) {
    let mut install = Command::new("install");
    install.args(["-m", "755"]).arg(program).arg(to);
    assert!(install.status().unwrap().success());
}
