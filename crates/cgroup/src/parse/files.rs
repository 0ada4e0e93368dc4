//! `/proc/PID/fdinfo/FD`, and what `/proc/PID/mountinfo` and `/proc/PID/cgroup` say beyond cgroups.

use super::{lines, number};

/// `O_ACCMODE`, `O_WRONLY` and `O_RDWR`: the same on every architecture.
const ACCESS: u64 = 3;
const WRITE_ONLY: u64 = 1;
const READ_WRITE: u64 = 2;

/// Open flags and mount of a file (`/proc/PID/fdinfo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdInfo {
    /// Flags of `open(2)`, as the kernel keeps them.
    pub flags: u64,
    /// The mount it was opened on.
    pub mount: Option<u64>,
}

impl FdInfo {
    /// True if it bypasses the page cache (`O_DIRECT`).
    pub fn direct(self) -> bool {
        self.flags & u64::from(rustix::fs::OFlags::DIRECT.bits()) != 0
    }

    /// For writing, perhaps for reading too.
    pub fn writes(self) -> bool {
        matches!(self.flags & ACCESS, WRITE_ONLY | READ_WRITE)
    }

    /// For reading, perhaps for writing too.
    pub fn reads(self) -> bool {
        self.flags & ACCESS != WRITE_ONLY
    }
}

/// Parses an `fdinfo`; `None` without its flags.
pub fn fd_info(text: &[u8]) -> Option<FdInfo> {
    let value = |key: &[u8]| {
        lines(text).find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(b":")?.trim_ascii()))
    };
    let flags = std::str::from_utf8(value(b"flags")?).ok()?;
    Some(FdInfo {
        // `from_str_radix` would accept a sign.
        flags: Some(flags)
            .filter(|flags| flags.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|flags| u64::from_str_radix(flags, 8).ok())?,
        mount: value(b"mnt_id").and_then(number),
    })
}

/// The path in the line `N:name=systemd:PATH` of `/proc/PID/cgroup`.
pub fn systemd_group(text: &[u8]) -> Option<String> {
    lines(text).find_map(|line| {
        let mut fields = line.splitn(3, |&byte| byte == b':').skip(1);
        let path = (fields.next()? == b"name=systemd").then(|| fields.next())??;
        Some(String::from_utf8_lossy(path).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_octal_and_tell_how_a_file_was_opened() {
        let buffered = fd_info(b"pos:\t0\nflags:\t02100002\nmnt_id:\t29\nino:\t7\n").unwrap();
        assert_eq!(buffered.mount, Some(29));
        assert!(buffered.writes() && buffered.reads() && !buffered.direct());
        let direct = rustix::fs::OFlags::DIRECT.bits();
        let text = format!("flags:\t{direct:o}\n");
        let direct = fd_info(text.as_bytes()).unwrap();
        assert!(direct.direct() && !direct.writes());
        assert!(!fd_info(b"flags:\t01\n").unwrap().reads());
        for bad in ["", "pos: 1\n", "flags:\t+2\n", "flags:\t9\n", "flags:\n"] {
            assert_eq!(fd_info(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn the_v1_group_is_systemds() {
        let text = b"4:memory:/m\n1:name=systemd:/machine.slice/a:b.scope\n0::/\n";
        assert_eq!(
            systemd_group(text).as_deref(),
            Some("/machine.slice/a:b.scope")
        );
        assert_eq!(systemd_group(b"0::/\n1:name=systemd\n"), None);
    }
}
