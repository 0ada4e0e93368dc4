//! One disk for io.cost, as a directory of knobs: the disk's lines in the root cgroup's files, without the
//! leading device number, and the disk's counters.
//!
//! Only disks with a request queue of their own have one: io.cost never sees the bios of a volume that passes
//! them on (device mapper, RAID).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use justitia_policy::snapshot::GroupId;
use rustix::fs::{self, Access, AtFlags, OFlags, CWD};
use rustix::io::Errno;

use super::directory::Shared;
use super::{open_at, DIRECTORY};
use crate::file::{cost_path, directory_id};
use crate::parse::io::device;
use crate::parse::lines;
use crate::{Buffer, Directory, File, Quirks, Watch};

/// The database of udev.
const UDEV: &str = "/run/udev/data";

/// A disk for io.cost.
#[derive(Debug)]
pub(crate) struct CostDirectory {
    id: GroupId,
    path: String,
    /// Its directory in sysfs.
    dir: OwnedFd,
    /// The root cgroup.
    root: OwnedFd,
    /// `MAJOR:MINOR`.
    number: String,
    shared: Arc<Shared>,
}

impl CostDirectory {
    /// Opens the disk `name` of a directory of block devices.
    pub(crate) fn open(
        block: impl AsFd,
        root: impl AsFd,
        name: &str,
        shared: Arc<Shared>,
    ) -> Result<CostDirectory, Errno> {
        let dir = open_at(block, name, DIRECTORY)?;
        let path = cost_path(name);
        let mut buffer = Buffer::new();
        buffer.pread(open_at(&dir, "dev", OFlags::RDONLY)?, false)?;
        let number = String::from_utf8_lossy(buffer.bytes().trim_ascii()).into_owned();
        Ok(CostDirectory {
            id: directory_id(&path, fs::fstat(&dir)?.st_ino),
            path,
            dir,
            root: open_at(root, ".", DIRECTORY)?,
            number,
            shared,
        })
    }
}

/// The rest of the line of this device. Others without counters may precede it there ([`crate::parse::io::stat`]).
fn line_of<'a>(text: &'a [u8], number: &str) -> Option<&'a [u8]> {
    lines(text).find_map(|line| {
        let (mut last, mut rest) = (None, line);
        while let Some(space) = rest.iter().position(|&byte| byte == b' ') {
            if device(&rest[..space]).is_none() {
                break;
            }
            last = Some(&rest[..space]);
            rest = &rest[space + 1..];
        }
        (last == Some(number.as_bytes())).then_some(rest)
    })
}

impl Directory for CostDirectory {
    fn id(&self) -> GroupId {
        self.id
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn exists(&self) -> bool {
        fs::accessat(&self.dir, "queue", Access::EXISTS, AtFlags::empty()).is_ok()
    }

    fn read(&self, file: File, buffer: &mut Buffer) -> Result<(), Errno> {
        if !self.exists() {
            return Err(Errno::NODEV);
        }
        match file {
            File::IoCostQos | File::IoCostModel | File::IoStat => {
                buffer.pread(open_at(&self.root, file.name(), OFlags::RDONLY)?, true)?;
                // Without a line, io.cost was never configured for this disk.
                let line = line_of(buffer.bytes(), &self.number).unwrap_or_default();
                let line = line.to_vec();
                buffer.refill().extend_from_slice(&line);
                Ok(())
            }
            File::DiskStat => buffer.pread(open_at(&self.dir, file.name(), OFlags::RDONLY)?, false),
            File::Udev => {
                let path = format!("{UDEV}/b{}", self.number);
                buffer.pread(open_at(CWD, path, OFlags::RDONLY)?, true)
            }
            _ => Err(Errno::NOENT),
        }
    }

    fn write(&self, file: File, text: &[u8]) -> Result<(), Errno> {
        if !self.exists() {
            return Err(Errno::NODEV);
        }
        let fd = open_at(&self.root, file.name(), OFlags::WRONLY)?;
        let line = [self.number.as_bytes(), b" ", text].concat();
        rustix::io::write(&fd, &line).map(|_| ())
    }

    fn can_write(&self, file: File) -> bool {
        fs::accessat(&self.root, file.name(), Access::WRITE_OK, AtFlags::empty()).is_ok()
    }

    fn xattr(&self, _name: &str, _buffer: &mut Buffer) -> Result<(), Errno> {
        Err(Errno::NODATA)
    }

    fn set_xattr(&self, _name: &str, _value: Option<&[u8]>) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn watch(&self, _file: File) -> Result<Watch, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn quirks(&self) -> &Quirks {
        &self.shared.quirks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_belong_to_the_last_device_before_them() {
        let text = b"8:0 7:1 \n11:0 254:16 rbytes=1 cost.vrate=97.50\n";
        let cost = line_of(text, "254:16").and_then(crate::parse::disk::cost);
        assert_eq!(cost, Some((9750, None)));
        assert_eq!(line_of(text, "11:0"), None);
        assert_eq!(line_of(text, "7:1"), Some(&b""[..]));
    }
}
