//! Errors of cgroups and disks. Every error is one line of cause ([`std::fmt::Display`]) and one of remedy.

use std::fmt::{self, Display};

use rustix::io::Errno;

use crate::file::disk_name;

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

/// Access to one file of a cgroup or disk failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The cgroup, or the disk.
    pub path: String,
    /// The file's name.
    pub file: &'static str,
    /// The reason.
    pub why: Why,
}

/// The reason why an access failed, with the kernel's error number.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The cgroup was removed (`ENODEV` on an open file, `ENOENT` on its directory).
    Gone,
    /// The cgroup is there, the file is not: its controller is off or the kernel lacks it.
    Absent,
    /// `EACCES`, `EPERM` or `EROFS`.
    Denied(Errno),
    /// `EOPNOTSUPP`, `ENOSYS`: the kernel has the file but not the function (PSI off, say).
    Unsupported(Errno),
    /// `EINVAL`, `ERANGE`, or a value of the wrong kind for the knob: this one.
    Invalid(String),
    /// `EBUSY` or `EINTR` on every retry.
    Busy(Errno),
    /// Anything else.
    Io(Errno),
}

impl std::error::Error for Error {}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, file) = (owner(&self.path), self.file);
        match &self.why {
            Why::Gone => write!(f, "{owner} is gone"),
            Why::Absent => write!(f, "{owner} has no {file}"),
            Why::Denied(errno) => {
                write!(f, "no permission for {file} of {owner} ({})", plain(errno))
            }
            Why::Unsupported(errno) => {
                let errno = plain(errno);
                write!(f, "the kernel does not support {file} of {owner} ({errno})")
            }
            Why::Invalid(value) => write!(f, "{file} of {owner} does not take {value:?}"),
            Why::Busy(errno) => write!(f, "{file} of {owner} stays busy ({})", plain(errno)),
            Why::Io(errno) => write!(f, "{file} of {owner}: {}", plain(errno)),
        }
    }
}

impl Error {
    /// Maps the error number of an access to `file` of the cgroup `path`.
    pub fn from_errno(path: &str, file: &'static str, errno: Errno) -> Error {
        let why = match errno {
            Errno::NODEV => Why::Gone,
            Errno::NOENT => Why::Absent,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Why::Denied(errno),
            Errno::OPNOTSUPP | Errno::NOSYS => Why::Unsupported(errno),
            Errno::INVAL | Errno::RANGE => Why::Invalid(String::new()),
            Errno::BUSY | Errno::INTR => Why::Busy(errno),
            _ => Why::Io(errno),
        };
        let path = path.to_owned();
        Error { path, file, why }
    }

    /// True if the cgroup no longer exists.
    pub fn is_gone(&self) -> bool {
        self.why == Why::Gone
    }

    /// The remedy, in one line.
    pub fn remedy(&self) -> &'static str {
        let of_disk = disk_name(&self.path).is_some();
        match self.why {
            Why::Gone => "ignore it; a new group with the same path is another group",
            Why::Absent if of_disk => {
                "select a scheduler that supports weights; under this one they have no effect"
            }
            Why::Absent => {
                "enable the controller in the parent's cgroup.subtree_control, or update the kernel"
            }
            Why::Denied(_) if of_disk => {
                "run as root, with sysfs writable (in a container, the host's)"
            }
            Why::Denied(_) => "run as root, with the cgroup2 mount writable",
            Why::Unsupported(_) if of_disk => {
                "select BFQ for this path of NVMe multipath, or boot with nvme_core.multipath=N"
            }
            Why::Unsupported(_) => "boot with psi=1, or boot a kernel that supports it",
            Why::Invalid(_) => "use a value that the kernel's cgroup-v2 documentation allows",
            Why::Busy(_) => "try again in a second",
            Why::Io(_) => "see the kernel log",
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
