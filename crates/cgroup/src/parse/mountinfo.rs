//! `/proc/self/mountinfo`: where cgroup file systems are mounted and how.

use super::{lines, words};

/// One cgroup or cgroup2 mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMount {
    /// Root of the mount within the file system; not `/` when a part of the tree is mounted.
    pub root: String,
    /// Directory on which it is mounted.
    pub mount_point: String,
    /// `cgroup2`, as opposed to v1.
    pub v2: bool,
    /// Mounted read-only.
    pub read_only: bool,
    /// Options of the file system: controllers (v1), `memory_recursiveprot` (v2).
    pub options: Vec<String>,
}

impl CgroupMount {
    /// True if the file system has an option.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|have| have == option)
    }
}

/// The cgroup mounts among all mounts, in the order they were mounted.
pub fn cgroup_mounts(text: &[u8]) -> Vec<CgroupMount> {
    lines(text).filter_map(cgroup_mount).collect()
}

/// `36 35 98:0 /root /point rw,noatime optional.. - type source super,options`.
fn cgroup_mount(line: &[u8]) -> Option<CgroupMount> {
    let mut fields = words(line);
    let root = unescape(fields.nth(3)?);
    let mount_point = unescape(fields.next()?);
    let flags = fields.next()?;
    let mut tail = fields.skip_while(|&field| field != b"-").skip(1);
    let v2 = match tail.next()? {
        b"cgroup2" => true,
        b"cgroup" => false,
        _ => return None,
    };
    let options = comma_separated(tail.nth(1).unwrap_or_default());
    let read_only = [comma_separated(flags), options.clone()]
        .concat()
        .iter()
        .any(|option| option == "ro");
    Some(CgroupMount {
        root,
        mount_point,
        v2,
        read_only,
        options,
    })
}

pub(super) fn comma_separated(field: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(field)
        .split(',')
        .filter(|option| !option.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Undoes the kernel's octal escapes (`\040` is a space).
pub(super) fn unescape(field: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|digits| byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        if let Some(digits) = octal {
            let value = digits
                .iter()
                .fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            bytes.push(u8::try_from(value).unwrap_or(b'?'));
            rest = &tail[3..];
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
