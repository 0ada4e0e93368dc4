//! Finds the cgroup that a probe speaks for: its own, or one by name.

use justitia_agent::{run, Settings};
use justitia_cgroup::{CgroupFs as _, Group, OwnGroup, RealFs};
use justitia_discover::{RuntimeDirs, Scanner};
use justitia_policy::config::Mode;
use justitia_probe::{Error, Exit};

/// The cgroup this process is in.
pub(super) fn own() -> Result<Group, Error> {
    let own = OwnGroup::find()?;
    open(&RealFs::on_directory(&own.mount)?, &own.path)
}

/// A managed group by its name or path, or any group by its path below the mount. `/` is the container's own
/// top, seen from inside it.
pub(super) fn named(name: &str, settings: &Settings) -> Result<Group, Error> {
    if let Some(group) = managed(name, settings) {
        return Ok(group);
    }
    let fs = RealFs::on_directory(&OwnGroup::find()?.mount)?;
    open(&fs, &format!("/{}", name.trim_matches('/'))).map_err(|error| match error.exit {
        Exit::Failed => Error::usage(
            format!("there is no cgroup {name}"),
            "name a path below the cgroup2 mount; justitia weight lists the managed ones",
        ),
        _ => error,
    })
}

/// The managed group of this name. There is none where groups cannot be discovered, as inside a container.
fn managed(name: &str, settings: &Settings) -> Option<Group> {
    let fs = run::open_host(Mode::Observe).ok()?;
    let mut scanner = Scanner::new(fs, settings.discover(), RuntimeDirs::host()).ok()?;
    scanner.rescan().ok()?;
    scanner.find(name).map(|found| found.group.clone())
}

fn open(fs: &RealFs, path: &str) -> Result<Group, Error> {
    let group = fs.open(path)?;
    if fs.is_hierarchy_root(path) {
        return Err(Error::environment(
            "the root cgroup belongs to nobody, so it has no color",
            "run the probe in the container, or name its cgroup with --group; --dry-run only prints",
        ));
    }
    Ok(group)
}
