//! Finds the cgroup2 mount, or the precise reason why a host cannot be managed.
//!
//! Kernel files: `/proc/self/mountinfo`, `cgroup.controllers`, `cgroup.subtree_control`.

use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};

use rustix::fs::{self, Access};
use rustix::io::Errno;

use crate::parse::files::fd_info;
use crate::parse::mountinfo::{mounts, whole_cgroup2, FsMount};
use crate::{File, MountError};

/// The mount that an open file is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOf {
    /// Its id.
    pub id: u64,
    /// Its file system, for example `tmpfs` or `fuse.sshfs`.
    pub kind: String,
}

/// The mount of an open file. Does not ask the file system, which may take any time to answer. `None`: not
/// known.
pub fn mount_of(file: impl AsFd) -> Option<MountOf> {
    let fd = file.as_fd().as_raw_fd();
    let info = std::fs::read(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let id = fd_info(&info)?.mount?;
    let mounts = mounts(&std::fs::read("/proc/self/mountinfo").ok()?);
    let kind = mounts.into_iter().find(|mount| mount.id == id)?.kind;
    Some(MountOf { id, kind })
}

/// The host's cgroup2 mount, with the memory and io controllers.
#[derive(Debug, Clone)]
pub struct Mount {
    path: PathBuf,
    read_only: bool,
}

impl Mount {
    /// Finds the mount and checks that the controllers we need are on it.
    pub fn detect() -> Result<Mount, MountError> {
        let mounts = mounts(&read("/proc/self/mountinfo")?);
        let chosen = choose(&mounts, |mount| {
            let file = Path::new(&mount.mount_point).join(File::CgroupControllers.name());
            std::fs::read_to_string(file).unwrap_or_default()
        })?;
        Ok(Mount {
            path: PathBuf::from(&chosen.mount_point),
            read_only: chosen.read_only,
        })
    }

    /// Checks that knobs can be written; not needed to observe.
    pub fn check_writable(&self) -> Result<(), MountError> {
        let denied = |errno| MountError::NotWritable {
            mount: self.path.display().to_string(),
            errno,
        };
        if self.read_only {
            return Err(denied(Errno::ROFS));
        }
        fs::access(self.path.join("cgroup.subtree_control"), Access::WRITE_OK).map_err(denied)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads a file that every Linux has.
pub(super) fn read(file: &str) -> Result<Vec<u8>, MountError> {
    std::fs::read(file).map_err(|error| MountError::Unreadable {
        file: file.to_owned(),
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })
}

/// The cgroup2 mount that has the controllers, or the reason why this host has none. Among several mounts of
/// the hierarchy, the first that shows its root counts.
fn choose(
    mounts: &[FsMount],
    controllers_of: impl Fn(&FsMount) -> String,
) -> Result<&FsMount, MountError> {
    let on_v1 = |controller: &'static str| {
        let mut mounts = mounts.iter();
        let mount = mounts.find(|mount| mount.is_v1_of(controller))?;
        Some(MountError::ControllerOnV1 {
            controller,
            mounted_at: mount.mount_point.clone(),
        })
    };
    let Some(mount) = whole_cgroup2(mounts) else {
        return Err(on_v1("memory").unwrap_or(MountError::NoCgroup2));
    };
    let controllers = controllers_of(mount);
    let controllers: Vec<&str> = controllers.split_whitespace().collect();
    let mut needed = [("memory", "memory"), ("io", "blkio")].into_iter();
    let missing = needed.find(|(controller, _)| !controllers.contains(controller));
    let Some((controller, v1_name)) = missing else {
        return Ok(mount);
    };
    Err(
        on_v1(v1_name).unwrap_or_else(|| MountError::MissingController {
            controller,
            mount: mount.mount_point.clone(),
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(at: &str, v2: bool, options: &[&str]) -> FsMount {
        FsMount {
            root: "/".to_owned(),
            mount_point: at.to_owned(),
            kind: if v2 { "cgroup2" } else { "cgroup" }.to_owned(),
            options: options.iter().map(ToString::to_string).collect(),
            ..FsMount::default()
        }
    }

    #[test]
    fn a_unified_host_is_accepted() {
        let mounts = [mount("/cg", true, &["memory_recursiveprot"])];
        assert!(choose(&mounts, |_| "cpu io memory pids\n".to_owned()).is_ok());
    }

    #[test]
    fn a_controller_on_v1_is_named_with_its_mount() {
        let v1 = mount("/cg/memory", false, &["memory"]);
        let expected = MountError::ControllerOnV1 {
            controller: "memory",
            mounted_at: "/cg/memory".to_owned(),
        };
        for mounts in [vec![v1.clone()], vec![v1, mount("/cg/unified", true, &[])]] {
            let error = choose(&mounts, |_| "cpu\n".to_owned()).unwrap_err();
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn a_missing_io_controller_is_named() {
        let mounts = [mount("/cg", true, &[])];
        assert_eq!(
            choose(&mounts, |_| "memory\n".to_owned()).unwrap_err(),
            MountError::MissingController {
                controller: "io",
                mount: "/cg".to_owned()
            }
        );
    }

    #[test]
    fn a_host_without_cgroups_is_an_error_of_its_own() {
        assert_eq!(
            choose(&[], |_| String::new()).unwrap_err(),
            MountError::NoCgroup2
        );
    }

    #[test]
    fn a_partial_mount_gives_way_to_the_whole_tree() {
        let mut part = mount("/container", true, &[]);
        part.root = "/app".to_owned();
        let mounts = [part, mount("/cg", true, &[])];
        let chosen = choose(&mounts, |_| "io memory".to_owned()).unwrap();
        assert_eq!(chosen.mount_point, "/cg");
    }
}
