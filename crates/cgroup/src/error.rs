//! Errors of cgroups and disks. Every error is one line of cause ([`std::fmt::Display`]) and one of remedy.

use std::fmt::Display;

use rustix::io::Errno;

use crate::fs::disk_name;

/// The system's words for an error, without the "(os error N)" that Rust adds.
pub fn plain(error: &impl Display) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// Names the owner of a path: a disk or a cgroup.
fn owner(path: &str) -> String {
    match disk_name(path) {
        Some(name) => format!("disk {name}"),
        None => format!("cgroup {path}"),
    }
}

/// Access to one file of a cgroup failed. `file` is the file's name, `path` the cgroup's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cgroup was removed (`ENODEV` on an open file, `ENOENT` on its directory).
    #[error("{} is gone", owner(path))]
    Gone {
        /// The cgroup.
        path: String,
    },
    /// The cgroup is there, the file is not: its controller is off or the kernel lacks it.
    #[error("{} has no {file}", owner(path))]
    Absent {
        /// The cgroup.
        path: String,
        /// The file.
        file: &'static str,
    },
    /// `EACCES`, `EPERM` or `EROFS`.
    #[error("no permission for {file} of {} ({})", owner(path), plain(errno))]
    Denied {
        /// The cgroup.
        path: String,
        /// The file.
        file: &'static str,
        /// The kernel's error number.
        errno: Errno,
    },
    /// `EOPNOTSUPP`, `ENOSYS`: the kernel has the file but not the function (PSI off, say).
    #[error(
        "the kernel does not support {file} of {} ({})",
        owner(path),
        plain(errno)
    )]
    Unsupported {
        /// The cgroup.
        path: String,
        /// The file.
        file: &'static str,
        /// The kernel's error number.
        errno: Errno,
    },
    /// `EINVAL`, `ERANGE`, or a value of the wrong kind for the knob.
    #[error("{file} of {} does not take {value:?}", owner(path))]
    Invalid {
        /// The cgroup.
        path: String,
        /// The file.
        file: &'static str,
        /// The value written.
        value: String,
    },
    /// `EBUSY` or `EINTR` on every retry.
    #[error("{file} of {} stays busy ({})", owner(path), plain(errno))]
    Busy {
        /// The cgroup.
        path: String,
        /// The file.
        file: &'static str,
        /// The kernel's error number.
        errno: Errno,
    },
    /// Anything else.
    #[error("{file} of {}: {}", owner(path), plain(errno))]
    Io {
        /// The cgroup.
        path: String,
        /// The file.
        file: &'static str,
        /// The kernel's error number.
        errno: Errno,
    },
}

impl Error {
    /// Maps the error number of an access to `file` of the cgroup `path`.
    pub fn from_errno(path: &str, file: &'static str, errno: Errno) -> Error {
        let path = path.to_owned();
        match errno {
            Errno::NODEV => Error::Gone { path },
            Errno::NOENT => Error::Absent { path, file },
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Error::Denied { path, file, errno },
            Errno::OPNOTSUPP | Errno::NOSYS => Error::Unsupported { path, file, errno },
            Errno::INVAL | Errno::RANGE => Error::Invalid {
                path,
                file,
                value: String::new(),
            },
            Errno::BUSY | Errno::INTR => Error::Busy { path, file, errno },
            _ => Error::Io { path, file, errno },
        }
    }

    /// True if the cgroup no longer exists.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Gone { .. })
    }

    /// The remedy, in one line.
    pub fn remedy(&self) -> &'static str {
        match self {
            Error::Gone { .. } => "ignore it; a new group with the same path is another group",
            Error::Absent { path, .. } if disk_name(path).is_some() => {
                "select a scheduler that supports weights; under this one they have no effect"
            }
            Error::Absent { .. } => {
                "enable the controller in the parent's cgroup.subtree_control, or update the kernel"
            }
            Error::Denied { path, .. } if disk_name(path).is_some() => {
                "run as root, with sysfs writable (in a container, the host's)"
            }
            Error::Denied { .. } => "run as root, with the cgroup2 mount writable",
            Error::Unsupported { .. } => "boot with psi=1, or boot a kernel that supports it",
            Error::Invalid { .. } => "use a value that the kernel's cgroup-v2 documentation allows",
            Error::Busy { .. } => "try again in a second",
            Error::Io { .. } => "see the kernel log",
        }
    }
}

/// The host's cgroups cannot be managed. `Display` is the cause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// No cgroup2 mount at all.
    #[error("no cgroup2 file system is mounted")]
    NoCgroup2,
    /// The controller is attached to a cgroup v1 hierarchy (v1 or hybrid host).
    #[error("the {controller} controller is on cgroup v1 at {mounted_at}")]
    ControllerOnV1 {
        /// `memory` or `blkio`.
        controller: &'static str,
        /// Mount point of its v1 hierarchy.
        mounted_at: String,
    },
    /// Neither hierarchy has the controller: it is disabled at boot or not built in.
    #[error("the {controller} controller is not available on the cgroup2 mount {mount}")]
    MissingController {
        /// `memory` or `io`.
        controller: &'static str,
        /// The mount.
        mount: String,
    },
    /// This process is in a cgroup that no cgroup2 mount shows.
    #[error("this process is in the cgroup {group}, which is not below the mount {mount}")]
    Elsewhere {
        /// The cgroup.
        group: String,
        /// A cgroup2 mount.
        mount: String,
    },
    /// The mount cannot be written.
    #[error("no permission to write to {mount} ({})", plain(errno))]
    NotWritable {
        /// The mount.
        mount: String,
        /// The kernel's error number.
        errno: Errno,
    },
    /// A file that every Linux has could not be read.
    #[error("cannot read {file}: {}", plain(errno))]
    Unreadable {
        /// The file.
        file: String,
        /// The kernel's error number.
        errno: Errno,
    },
}

impl MountError {
    /// The remedy, in one line.
    pub fn remedy(&self) -> &'static str {
        match self {
            MountError::NoCgroup2 => {
                "mount it: mount -t cgroup2 -o memory_recursiveprot none /sys/fs/cgroup"
            }
            MountError::ControllerOnV1 { .. } => {
                "boot with systemd.unified_cgroup_hierarchy=1 (and cgroup_no_v1=all)"
            }
            MountError::MissingController { .. } => {
                "boot without cgroup_disable=, with cgroup_enable=memory where the kernel needs it"
            }
            MountError::Elsewhere { .. } => {
                "give the container a cgroup namespace of its own, or name the group"
            }
            MountError::NotWritable { .. } => {
                "run as root on the host; in a container, with the host's cgroup2 mounted writable"
            }
            MountError::Unreadable { .. } => "mount /proc and let this user read it",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_and_remedy_are_one_line_each() {
        let errors = [
            MountError::NoCgroup2,
            MountError::ControllerOnV1 {
                controller: "memory",
                mounted_at: "/cg/memory".into(),
            },
            MountError::MissingController {
                controller: "io",
                mount: "/cg".into(),
            },
            MountError::NotWritable {
                mount: "/cg".into(),
                errno: Errno::ROFS,
            },
        ];
        for error in errors {
            for line in [error.to_string().as_str(), error.remedy()] {
                assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
            }
        }
    }

    #[test]
    fn a_disk_is_called_a_disk() {
        let error = Error::from_errno("block:sda", "low_latency", Errno::ROFS);
        assert_eq!(
            error.to_string(),
            "no permission for low_latency of disk sda (read-only file system)"
        );
        assert!(error.remedy().contains("sysfs"));
    }

    #[test]
    fn a_removed_group_differs_from_a_missing_file() {
        assert!(Error::from_errno("/a", "memory.low", Errno::NODEV).is_gone());
        assert!(!Error::from_errno("/a", "memory.low", Errno::NOENT).is_gone());
    }
}
