//! Runs the sibling programs: `justitia lab`, `justitia probe` and `justitia web` are separate programs, so
//! that the agent's program links neither a database client nor a server.
//!
//! They are searched beside this program, then in `../lib/justitia`, and never in `PATH`, because root runs
//! them.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use justitia_agent::{Error, Result};

/// Replaces this process by the program of this name, with the arguments after the command.
pub(crate) fn hand_over(name: &str) -> Result<()> {
    let program = find(name)?;
    let error = Command::new(&program).args(env::args_os().skip(2)).exec();
    Err(Error::io("run", &program, &error))
}

/// Path of the program of this name.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
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
    fn a_missing_sibling_is_the_environments_fault_with_a_way_to_get_it() {
        let error = find("justitia-none").unwrap_err();
        assert_eq!(error.exit.code(), 69);
        assert!(error.cause.contains("justitia-none") && error.remedy.contains("make build"));
    }
}
