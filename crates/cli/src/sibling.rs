//! The programs that belong to this one: `justitia lab`, `justitia probe` and `justitia web` are each a program
//! of their own, so that the agent's links neither a database's client nor a server.
//!
//! They are looked for beside this program, then in `../lib/justitia`, and nowhere that a search path names:
//! root runs them.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use justitia_agent::Error;

/// Becomes the program of this name, with what was said behind the command.
pub(crate) fn hand_over(name: &str) -> Result<()> {
    let program = find(name)?;
    let error = Command::new(&program).args(env::args_os().skip(2)).exec();
    Err(Error::io("run", &program, &error).into())
}

/// Where the program of this name is.
pub(crate) fn find(name: &str) -> Result<PathBuf, Error> {
    let own = env::current_exe().map_err(|error| {
        Error::failed(
            format!("cannot find this program's own path: {error}"),
            "mount /proc",
        )
    })?;
    beside(&own, name).ok_or_else(|| {
        Error::environment(
            format!("{name} is not in the same directory as {}", own.display()),
            format!(
                "build it with make build (or cargo build --release -p {name}), or install the package that has it"
            ),
        )
    })
}

fn beside(own: &Path, name: &str) -> Option<PathBuf> {
    let dir = own.parent()?;
    [dir.join(name), dir.join("../lib/justitia").join(name)]
        .into_iter()
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_sibling_is_beside_the_program_or_in_its_library_directory() {
        let root = tempfile::tempdir().unwrap();
        let (bin, lib) = (root.path().join("bin"), root.path().join("lib/justitia"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&lib).unwrap();
        let own = bin.join("justitia");
        assert_eq!(beside(&own, "justitia-lab"), None);
        fs::write(lib.join("justitia-lab"), "").unwrap();
        let found = beside(&own, "justitia-lab").unwrap();
        assert_eq!(
            found.canonicalize().unwrap(),
            lib.canonicalize().unwrap().join("justitia-lab")
        );
        fs::write(bin.join("justitia-lab"), "").unwrap();
        assert_eq!(beside(&own, "justitia-lab"), Some(bin.join("justitia-lab")));
    }

    #[test]
    fn one_that_is_missing_is_the_environments_fault_and_says_how_to_get_it() {
        let error = find("justitia-none").unwrap_err();
        assert_eq!(error.exit.code(), 69);
        assert!(error.cause.contains("justitia-none") && error.remedy.contains("make build"));
    }
}
