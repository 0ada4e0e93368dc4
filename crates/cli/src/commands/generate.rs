//! `justitia man` and `justitia completions`: generate man pages and completions from the arguments.

use std::fs;
use std::path::Path;

use clap_complete::Shell;
use justitia_agent::{Error, Result};

use crate::args;
use crate::output::{self, Page};

/// Writes `justitia.1` and a page for each command and subcommand.
pub(crate) fn man(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(|error| Error::io("make", dir, &error))?;
    clap_mangen::generate_to(args::command(), dir)
        .map_err(|error| Error::io("write man pages to", dir, &error))?;
    output::print_line(format_args!("man pages in {}", dir.display()))
}

pub(crate) fn completions(shell: Shell) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "justitia", &mut text);
    Page::own(String::from_utf8(text).map_err(output::unexpected)?).print()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_gets_a_page_with_its_own_name() {
        let dir = tempfile::tempdir().unwrap();
        man(dir.path()).unwrap();
        for command in args::command().get_subcommands() {
            let path = dir
                .path()
                .join(format!("justitia-{}.1", command.get_name()));
            assert_eq!(path.exists(), !command.is_hide_set(), "{}", path.display());
        }
        let text = fs::read_to_string(dir.path().join("justitia-explain.1")).unwrap();
        assert!(
            text.contains("justitia\\-explain") && text.contains("GROUP"),
            "{text}"
        );
    }

    #[test]
    fn completions_know_commands_and_modes() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut args::command(), "justitia", &mut text);
            let text = String::from_utf8(text).unwrap();
            for word in ["explain", "proportional", "--manage"] {
                let word = if shell == Shell::Fish {
                    word.trim_start_matches('-')
                } else {
                    word
                };
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }
}
