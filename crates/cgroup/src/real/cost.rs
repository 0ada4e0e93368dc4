//! One disk for io.cost, as a directory of knobs: the disk's lines in the root cgroup's files, without the
//! leading device number, and the disk's counters.
//!
//! Only disks with a request queue of their own have one: io.cost never sees the bios of a volume that passes
//! them on (device mapper, RAID).

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
/// Lifetime of the lines. The agent reads all disks one after the other, in less time.
const LINES_LAST: Duration = Duration::from_millis(50);

/// The lines of all disks in the root cgroup's files. Each file is as long as there are disks, so it is read once for
/// the disks that are read one after the other. A write through a disk ends their life.
#[derive(Debug)]
pub(crate) struct CostLines {
    lasts: Duration,
    files: Mutex<BTreeMap<File, (Instant, Lines)>>,
}

/// Rest of the line of each device, by its number.
type Lines = BTreeMap<Vec<u8>, Vec<u8>>;

impl Default for CostLines {
    fn default() -> CostLines {
        CostLines {
            lasts: LINES_LAST,
            files: Mutex::default(),
        }
    }
}

impl CostLines {
    /// Reads the line of a device, or nothing if it has none: then io.cost was never configured for this disk.
    fn read(
        &self,
        root: &OwnedFd,
        file: File,
        number: &str,
        buffer: &mut Buffer,
    ) -> Result<(), Errno> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(files.get(&file), Some((read, _)) if read.elapsed() < self.lasts) {
            buffer.pread(open_at(root, file.name(), OFlags::RDONLY)?, true)?;
            files.insert(file, (Instant::now(), lines_of(buffer.bytes())));
        }
        let line = files
            .get(&file)
            .and_then(|(_, lines)| lines.get(number.as_bytes()));
        buffer
            .refill()
            .extend_from_slice(line.map_or(&[], Vec::as_slice));
        Ok(())
    }

    fn forget(&self) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.clear();
    }
}

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
    lines: Arc<CostLines>,
    shared: Arc<Shared>,
}

impl CostDirectory {
    /// Opens the disk `name` of a directory of block devices. `EOPNOTSUPP`: it is a path of NVMe multipath, which has
    /// no number and so no lines.
    pub(crate) fn open(
        block: impl AsFd,
        root: impl AsFd,
        name: &str,
        lines: Arc<CostLines>,
        shared: Arc<Shared>,
    ) -> Result<CostDirectory, Errno> {
        let dir = open_at(block, name, DIRECTORY)?;
        let path = cost_path(name);
        let mut buffer = Buffer::new();
        if is_hidden(&dir, &mut buffer) {
            return Err(Errno::OPNOTSUPP);
        }
        buffer.pread(open_at(&dir, "dev", OFlags::RDONLY)?, false)?;
        let number = String::from_utf8_lossy(buffer.bytes().trim_ascii()).into_owned();
        Ok(CostDirectory {
            id: directory_id(&path, fs::fstat(&dir)?.st_ino),
            path,
            dir,
            root: open_at(root, ".", DIRECTORY)?,
            number,
            lines,
            shared,
        })
    }
}

/// Whether a disk cannot be opened: the kernel shows one path of a disk of NVMe multipath so.
pub(crate) fn is_hidden(disk: impl AsFd, buffer: &mut Buffer) -> bool {
    let hidden = open_at(disk, "hidden", OFlags::RDONLY);
    let read = hidden.and_then(|fd| buffer.pread(fd, false));
    read.is_ok() && buffer.bytes().starts_with(b"1")
}

/// The rest of each device's line. Others without counters may precede it there ([`crate::parse::io::stat`]).
fn lines_of(text: &[u8]) -> Lines {
    let of_last = |line| {
        let (mut last, mut rest): (_, &[u8]) = (None, line);
        while let Some(space) = rest.iter().position(|&byte| byte == b' ') {
            if device(&rest[..space]).is_none() {
                break;
            }
            last = Some(rest[..space].to_vec());
            rest = &rest[space + 1..];
        }
        Some((last?, rest.to_vec()))
    };
    lines(text).filter_map(of_last).collect()
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
                self.lines.read(&self.root, file, &self.number, buffer)
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
        let written = rustix::io::write(&fd, &line).map(|_| ());
        self.lines.forget();
        written
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
        let lines = lines_of(b"8:0 7:1 \n11:0 254:16 rbytes=1 cost.vrate=97.50\n");
        let line = |number: &str| lines.get(number.as_bytes()).map(Vec::as_slice);
        let cost = line("254:16").and_then(crate::parse::disk::cost);
        assert_eq!(cost, Some((9750, None)));
        assert_eq!(line("11:0"), None);
        assert_eq!(line("7:1"), Some(&b""[..]));
    }

    #[test]
    fn disks_that_are_read_one_after_the_other_read_the_file_of_all_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = open_at(CWD, dir.path(), DIRECTORY).unwrap();
        let file = File::IoCostQos;
        let fill = |text: &str| std::fs::write(dir.path().join(file.name()), text).unwrap();
        fill("8:0 enable=1\n8:16 enable=1\n");
        for (lasts, second) in [
            (Duration::from_secs(3600), "enable=1"),
            (Duration::ZERO, ""),
        ] {
            let lines = CostLines {
                lasts,
                files: Mutex::default(),
            };
            let mut buffer = Buffer::new();
            let mut line = |number| {
                lines.read(&root, file, number, &mut buffer).unwrap();
                String::from_utf8(buffer.bytes().to_vec()).unwrap()
            };
            fill("8:0 enable=1\n8:16 enable=1\n");
            assert_eq!(line("8:0"), "enable=1");
            fill("");
            assert_eq!(line("8:16"), second, "{lasts:?}");
            lines.forget();
            assert_eq!(line("8:0"), "", "after a write");
        }
    }
}
