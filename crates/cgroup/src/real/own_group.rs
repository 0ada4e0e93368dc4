//! The cgroup this process is in, as it sees it.
//!
//! Kernel files: `/proc/self/cgroup` (the line `0::PATH`), `/proc/self/mountinfo`. Both give paths
//! relative to the root of the process's cgroup namespace, so that in a container with a namespace
//! of its own both say `/`, and in one without both say the host's path.
//!
//! Needs no controller: an application that declares a color has none of the agent's rights.

use std::path::PathBuf;

use rustix::fs::{self, AtFlags, OFlags};
use rustix::io::Errno;

use super::mount::read;
use super::{open_at, relative, RealFs};
use crate::parse::mountinfo::{cgroup2, mounts, FsMount};
use crate::parse::proc::unified_group;
use crate::{Error, File, MountError};

/// A file that every cgroup but the root of the hierarchy has.
const NOT_IN_THE_ROOT: &str = "cgroup.type";

/// The mount of cgroup2 that this process sees, and the directory of the process in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnGroup {
    /// The mount.
    pub mount: PathBuf,
    /// The cgroup's path below it.
    pub path: String,
}

impl OwnGroup {
    /// Finds both.
    pub fn find() -> Result<OwnGroup, MountError> {
        let mounts = mounts(&read("/proc/self/mountinfo")?);
        let own = read("/proc/self/cgroup")?;
        OwnGroup::among(&mounts, &own)
    }

    fn among(mounts: &[FsMount], own: &[u8]) -> Result<OwnGroup, MountError> {
        let own = unified_group(own).ok_or(MountError::NoCgroup2)?;
        let first = cgroup2(mounts).next().ok_or(MountError::NoCgroup2)?;
        let found = cgroup2(mounts).find_map(|mount| {
            Some(OwnGroup {
                mount: PathBuf::from(&mount.mount_point),
                path: below(&mount.root, &own)?,
            })
        });
        found.ok_or_else(|| MountError::Elsewhere {
            group: own,
            mount: first.mount_point.clone(),
        })
    }
}

/// The path of a cgroup below a mount whose root is `root`. `None`: not below it.
fn below(root: &str, group: &str) -> Option<String> {
    let rest = group.strip_prefix(root.trim_end_matches('/'))?;
    let outside = group.split('/').any(|part| part == "..");
    let whole = rest.is_empty() || rest.starts_with('/');
    (whole && !outside).then(|| format!("/{}", rest.trim_matches('/')))
}

impl RealFs {
    /// Moves this process with all its threads into a cgroup. Memory that it touches from then on is charged
    /// there. A group whose children have controllers accepts no processes (`EBUSY`).
    pub fn join(&self, path: &str) -> Result<(), Error> {
        let file = File::CgroupProcs.name();
        let name = format!("{}/{file}", relative(path));
        open_at(&self.root, name, OFlags::WRONLY)
            .and_then(|procs| rustix::io::write(&procs, b"0"))
            .map(drop)
            .map_err(|errno| Error::from_errno(path, file, errno))
    }

    /// True if this cgroup, which must exist, is the root of the whole hierarchy, which belongs to nobody.
    /// The root of a container's cgroup namespace is not.
    pub fn is_hierarchy_root(&self, path: &str) -> bool {
        let file = format!("{}/{NOT_IN_THE_ROOT}", relative(path));
        let missing = fs::statat(&self.root, file.as_str(), AtFlags::empty());
        self.shared.sign.is_some() && matches!(missing, Err(Errno::NOENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(root: &str, at: &str, v2: bool) -> FsMount {
        FsMount {
            root: root.to_owned(),
            mount_point: at.to_owned(),
            kind: if v2 { "cgroup2" } else { "cgroup" }.to_owned(),
            ..FsMount::default()
        }
    }

    fn own(mounts: &[FsMount], text: &str) -> Result<(String, String), MountError> {
        OwnGroup::among(mounts, text.as_bytes())
            .map(|own| (own.mount.display().to_string(), own.path))
    }

    fn pair(mount: &str, path: &str) -> (String, String) {
        (mount.to_owned(), path.to_owned())
    }

    #[test]
    fn on_the_host_it_is_the_path_below_the_mount() {
        let mounts = [mount("/", "/cg", true)];
        assert_eq!(
            own(&mounts, "0::/system.slice/db.service\n"),
            Ok(pair("/cg", "/system.slice/db.service"))
        );
    }

    #[test]
    fn in_a_namespace_of_its_own_it_is_the_root() {
        let mounts = [mount("/", "/cg", true)];
        assert_eq!(own(&mounts, "0::/\n"), Ok(pair("/cg", "/")));
    }

    #[test]
    fn with_a_part_of_the_tree_mounted_it_is_the_path_below_that_part() {
        let mounts = [mount("/docker/abc", "/cg", true)];
        assert_eq!(own(&mounts, "0::/docker/abc\n"), Ok(pair("/cg", "/")));
        assert_eq!(own(&mounts, "0::/docker/abc/x\n"), Ok(pair("/cg", "/x")));
        assert!(own(&mounts, "0::/docker/abcdef\n").is_err());
    }

    #[test]
    fn of_several_mounts_the_one_that_shows_it_counts() {
        let mounts = [
            mount("/other", "/a", true),
            mount("/", "/v1", false),
            mount("/", "/b", true),
        ];
        assert_eq!(own(&mounts, "0::/x\n"), Ok(pair("/b", "/x")));
    }

    #[test]
    fn a_group_outside_of_the_mount_is_an_error_that_names_both() {
        let mounts = [mount("/", "/cg", true)];
        let error = own(&mounts, "0::/../other\n").unwrap_err();
        let cause = error.to_string();
        assert!(cause.contains("/../other") && cause.contains("/cg"));
    }

    #[test]
    fn cgroup_v1_alone_has_none() {
        let mounts = [mount("/", "/cg/memory", false)];
        assert_eq!(own(&mounts, "4:memory:/x\n"), Err(MountError::NoCgroup2));
    }

    #[test]
    fn an_ordinary_directory_is_no_hierarchy_root() {
        let dir = tempfile::tempdir().unwrap();
        let fs = RealFs::on_directory(dir.path()).unwrap();
        assert!(!fs.is_hierarchy_root("/"));
    }
}
