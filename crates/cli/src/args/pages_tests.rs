//! Tests that the documentation matches the arguments: `docs/commands.md` is generated from them, and each
//! command that a page shows parses.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A command's help, then the help of its subcommands.
fn help_of(command: &clap::Command, page: &mut String) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = sub.get_bin_name().expect("a built command");
        let help = sub.clone().term_width(100).render_long_help();
        let _ = write!(page, "\n## {name}\n\n```text\n{help}");
        while page.ends_with('\n') {
            page.pop();
        }
        page.push_str("\n```\n");
        help_of(sub, page);
    }
}

#[test]
fn the_commands_page_is_what_the_commands_say() {
    let mut command = command().term_width(100);
    command.build();
    let mut page = "# Commands\n\nMade from the arguments of `justitia`; a test holds this page to them. `justitia \
                    COMMAND --help` says the\nsame, and `make install` and the package install it as man pages.\n"
        .to_owned();
    help_of(&command, &mut page);
    let page: Vec<&str> = page.lines().map(str::trim_end).collect();
    let page = page.join("\n") + "\n";
    let path = root().join("docs/commands.md");
    if std::env::var_os("JUSTITIA_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert!(
        fs::read_to_string(&path).is_ok_and(|text| text == page),
        "docs/commands.md is not up to date: JUSTITIA_BLESS=1 cargo test -p justitia-cli commands_page"
    );
}

/// All pages except the generated one.
fn pages() -> Vec<PathBuf> {
    let mut todo = vec![root().join("docs")];
    let mut found = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    found.retain(|path| !path.ends_with("docs/commands.md"));
    found
}

/// The code that a page shows: lines of its code blocks, and inline code.
fn shown(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut inline, mut code) = (Vec::new(), Vec::new(), false);
    for line in text.replace("\\\n", " ").lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if code || line.starts_with("    ") {
            lines.push(line.to_owned());
        } else {
            inline.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    (lines, inline)
}

/// The arguments of each call of `justitia` in a line of shell, without the program's name and without text
/// before and after the call.
fn calls(line: &str) -> Vec<Vec<String>> {
    const ENDS: [&str; 8] = ["|", "&&", ";", "||", ">", "<", "&", "#"];
    let Some(words) = shlex::split(line) else {
        return Vec::new();
    };
    let commands = words.split(|word| ENDS.contains(&&word[..]));
    let call = |words: &[String]| {
        let mut words = words
            .iter()
            .skip_while(|word| *word == "sudo" || *word == "$");
        let program = words.next()?.trim_start_matches("target/release/");
        let rest = words.cloned();
        (program == "justitia").then(|| std::iter::once("justitia".into()).chain(rest).collect())
    };
    commands.filter_map(call).collect()
}

#[test]
fn every_command_on_a_page_is_understood() {
    let (mut refused, mut tried) = (Vec::new(), 0);
    for path in pages() {
        let text = fs::read_to_string(&path).unwrap();
        let (lines, inline) = shown(&text);
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let mut parse = |line: &str, placeholders: bool| {
            for call in calls(line) {
                tried += 1;
                let Err(error) = Cli::try_parse_from(&call) else {
                    continue;
                };
                let understood = match error.kind() {
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
                    ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => false,
                    // A page may name a command without its arguments, or with placeholders for them.
                    _ => placeholders,
                };
                if !understood {
                    let said = error.to_string();
                    refused.push(format!(
                        "{name}: {line}\n  {}",
                        said.lines().next().unwrap()
                    ));
                }
            }
        };
        // Pages of results leave out a run's output directory.
        let results = name.starts_with("docs/results");
        for line in &lines {
            parse(line, results);
        }
        let complete = |line: &&String| !line.contains(['[', '…']) && !line.contains("KIND");
        for line in inline.iter().filter(complete) {
            parse(line, true);
        }
    }
    assert!(tried > 100, "{tried} commands");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
