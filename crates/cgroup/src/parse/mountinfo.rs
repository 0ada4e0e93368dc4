//! `/proc/self/mountinfo`: which file systems are mounted, and how.

use super::{io, lines, number};
use crate::Device;

/// A mounted file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FsMount {
    /// The mount's number.
    pub id: u64,
    /// The device of its files.
    pub device: Option<Device>,
    /// Root of the mount within the file system; not `/` when a part of the tree is mounted.
    pub root: String,
    /// Directory on which it is mounted.
    pub mount_point: String,
    /// `ext4`, `xfs`, `fuse.sshfs`, `cgroup` (v1), `cgroup2`, ...
    pub kind: String,
    /// The device, or what stands for it.
    pub source: String,
    /// Mounted read-only.
    pub read_only: bool,
    /// Options of the file system: of cgroups controllers (v1), `memory_recursiveprot` (v2).
    pub options: Vec<String>,
}

impl FsMount {
    /// True if the file system has an option.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|have| have == option)
    }

    /// True for the hierarchy of a controller of cgroup v1.
    pub fn is_v1_of(&self, controller: &str) -> bool {
        self.kind == "cgroup" && self.has(controller)
    }
}

/// The mounts of cgroup2.
pub(crate) fn cgroup2(mounts: &[FsMount]) -> impl Iterator<Item = &FsMount> {
    mounts.iter().filter(|mount| mount.kind == "cgroup2")
}

/// The mount of the whole cgroup2 tree, or else the first of a part of it.
pub(crate) fn whole_cgroup2(mounts: &[FsMount]) -> Option<&FsMount> {
    let whole = cgroup2(mounts).find(|mount| mount.root == "/");
    whole.or_else(|| cgroup2(mounts).next())
}

/// All mounts of `/proc/self/mountinfo`, in the order they were mounted.
pub fn mounts(text: &[u8]) -> Vec<FsMount> {
    lines(text).filter_map(mount).collect()
}

/// `36 35 98:0 /root /point rw,noatime optional.. - type source super,options`.
fn mount(line: &[u8]) -> Option<FsMount> {
    // The kernel escapes a space in a field, but not every other white space.
    let mut fields = line.split(|&byte| byte == b' ');
    let id = number(fields.next()?)?;
    let device = io::device(fields.nth(1)?);
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    let flags = fields.next()?;
    let mut tail = fields.skip_while(|&field| field != b"-").skip(1);
    let kind = String::from_utf8_lossy(tail.next()?).into_owned();
    let source = unescape(tail.next()?);
    let options = comma_separated(tail.next().unwrap_or_default());
    let mut of_both = comma_separated(flags).into_iter().chain(options.clone());
    Some(FsMount {
        id,
        device,
        root,
        mount_point,
        kind,
        source,
        read_only: of_both.any(|option| option == "ro"),
        options,
    })
}

fn comma_separated(field: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(field)
        .split(',')
        .filter(|option| !option.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Undoes the kernel's octal escapes (`\040` is a space).
pub(super) fn unescape(field: &[u8]) -> String {
    super::unescape(field, "\\", 3, 8)
}
