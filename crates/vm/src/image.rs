//! A disk image, opened read-only on a descriptor of our own.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};

use justitia_cgroup::{OpenFile, Processes};
use rustix::fs::{fadvise, fstatfs, major, minor, seek, Advice, SeekFrom};

use crate::qcow2;
use crate::residency::{Resident, Sight};
use crate::track::Key;

/// Device and inode of a file from `stat(2)`. For a block device, `dev` is `u64::MAX` and `ino` is `st_rdev`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    pub dev: u64,
    pub ino: u64,
}

#[derive(Debug)]
pub struct Image {
    file: File,
    sight: Sight,
    pub identity: Identity,
    /// The kernel's identity of the file, by which the BPF programs look it up.
    pub key: Key,
    /// Its path as its machine sees it.
    pub path: String,
    /// `None`: raw, another format, or not read.
    pub qcow2: Option<qcow2::Header>,
    /// The defect of a header that has qcow2's magic.
    pub damage: Option<qcow2::Damage>,
}

/// The outcome of dropping a range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Pages that left the page cache.
    pub pages: u64,
    /// No page of the range is cached any more.
    pub clear: bool,
}

/// Pages: a range this short that contains a dirty page is not split any further.
const SMALLEST: u64 = 16;

/// File systems whose files live in memory, so that there is nothing to drop: the magic numbers of tmpfs,
/// hugetlbfs and ramfs (`include/uapi/linux/magic.h`).
const MEMORY: [u32; 3] = [0x0102_1994, 0x9584_58f6, 0x8584_58f6];

impl Image {
    /// Opens the file behind a process's descriptor if it can be a disk image: a block device, or a regular
    /// file on a disk. Otherwise `None`.
    ///
    /// # Errors
    /// The process closed it meanwhile, or we have no permission to open it.
    pub fn open(processes: &Processes, pid: u32, open: &OpenFile) -> io::Result<Option<Image>> {
        let file = processes.reopen(pid, open.fd)?;
        let meta = file.metadata()?;
        let block = meta.file_type().is_block_device();
        let memory = MEMORY.contains(&(fstatfs(&file)?.f_type as u32));
        if !block && (!meta.is_file() || memory) {
            return Ok(None);
        }
        let mount = open.info.mount;
        let device = mount.and_then(|mount| processes.device_of_mount(pid, mount));
        let (dev, ino, rdev) = (meta.dev(), meta.ino(), meta.rdev());
        let (dev, ino, key) = if block {
            (u64::MAX, rdev, Key::block_device(major(rdev), minor(rdev)))
        } else {
            let here = device.map(|device| (device.major, device.minor));
            let (major, minor) = here.unwrap_or((major(dev), minor(dev)));
            (dev, ino, Key::file(major, minor, ino))
        };
        let sight = Sight::probe(&file);
        Ok(Some(Image {
            file,
            sight,
            identity: Identity { dev, ino },
            key,
            path: open.path.clone(),
            qcow2: None,
            damage: None,
        }))
    }

    /// Reads the format from the head of the file. This brings a page into the page cache, so it is not for
    /// images that their machine opens with `O_DIRECT`.
    pub fn read_format(&mut self) {
        // The name of the backing file follows the header, which is small: 4096 bytes hold both for most
        // images.
        let mut head = vec![0; 4096];
        let Ok(read) = self.file.read_at(&mut head, 0) else {
            return;
        };
        head.truncate(read);
        let mut parsed = qcow2::parse(&head);
        if matches!(parsed, Some(Err(qcow2::Damage::Short))) {
            let mut more = vec![0; qcow2::HEAD];
            let read = self.file.read_at(&mut more, 0).unwrap_or(0);
            parsed = qcow2::parse(&more[..read]);
        }
        match parsed {
            Some(Ok(header)) => self.qcow2 = Some(header),
            Some(Err(damage)) => self.damage = Some(damage),
            None => {}
        }
    }

    /// Current size in bytes. Works for block devices too.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(seek(&self.file, SeekFrom::End(0))?)
    }

    /// True if the kernel reports the dirty pages of a range.
    pub fn dirty_is_known(&self) -> bool {
        self.sight == Sight::Cachestat
    }

    /// Residency of the whole image.
    pub fn resident(&self) -> io::Result<Resident> {
        let page = rustix::param::page_size() as u64;
        let bytes = self.bytes()?.next_multiple_of(page);
        self.sight.resident(&self.file, 0, bytes)
    }

    /// Residency of the pages `from..to`.
    pub fn resident_in(&self, from: u64, to: u64) -> io::Result<Resident> {
        let page = rustix::param::page_size() as u64;
        let end = to.min(self.bytes()?.div_ceil(page));
        let pages = end.saturating_sub(from);
        self.sight.resident(&self.file, from * page, pages * page)
    }

    /// Drops clean pages of `from..to`. `DONTNEED` would start writeback of dirty pages early, so a range
    /// with dirty pages is halved until the halves are clean. A range stays as it is when it is short or when
    /// more than half of its cached pages are dirty. A page may become dirty between the check and the drop:
    /// it is then written early and stays cached, and no data is lost.
    pub fn drop_clean(&self, from: u64, to: u64) -> io::Result<Dropped> {
        let before = self.resident_in(from, to)?;
        if before.cached == 0 {
            return Ok(Dropped {
                pages: 0,
                clear: true,
            });
        }
        let dirty = before.dirty.unwrap_or(0);
        if dirty > 0 {
            if to - from <= SMALLEST || dirty > before.cached / 2 {
                return Ok(Dropped::default());
            }
            let middle = from.midpoint(to);
            let (left, right) = (self.drop_clean(from, middle)?, self.drop_clean(middle, to)?);
            return Ok(Dropped {
                pages: left.pages + right.pages,
                clear: false,
            });
        }
        let page = rustix::param::page_size() as u64;
        let length = NonZeroU64::new(to.saturating_sub(from) * page);
        fadvise(&self.file, from * page, length, Advice::DontNeed)?;
        let after = self.resident_in(from, to)?;
        Ok(Dropped {
            pages: before.cached.saturating_sub(after.cached),
            clear: after.cached == 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A temporary file beside the sources, which are on a disk: `/tmp` may be a tmpfs.
    fn on_disk() -> tempfile::NamedTempFile {
        tempfile::NamedTempFile::new_in(std::env::current_dir().unwrap()).unwrap()
    }

    fn image_of(file: &tempfile::NamedTempFile) -> Image {
        let host = Processes::host();
        let pid = std::process::id();
        let name = file.path().display().to_string();
        let open = host.open_files(pid).unwrap();
        let open = open.into_iter().find(|open| open.path == name).unwrap();
        Image::open(&host, pid, &open).unwrap().unwrap()
    }

    #[test]
    fn clean_pages_are_dropped_and_dirty_ones_stay_as_they_are() {
        let page = rustix::param::page_size();
        let file = on_disk();
        let image = image_of(&file);
        let mut left_alone = !image.dirty_is_known();
        // Writeback may start at any time: then the pages are made dirty once more.
        for _ in 0..100 {
            file.as_file().write_all_at(&vec![7; 16 * page], 0).unwrap();
            let dropped = image.drop_clean(0, 16).unwrap();
            let resident = image.resident().unwrap();
            assert_eq!(resident.cached + dropped.pages, 16);
            left_alone |= resident.dirty == Some(16) && resident.in_flight == Some(0);
            if left_alone {
                break;
            }
        }
        assert!(left_alone, "dirty pages were written before their time");
        file.as_file().sync_all().unwrap();
        let dropped = image.drop_clean(0, 1000).unwrap();
        assert!(dropped.clear && dropped.pages == 16, "{dropped:?}");
        assert_eq!(image.resident().unwrap().cached, 0);
        assert!(image.drop_clean(0, 1000).unwrap().clear);
        let text = std::fs::read(file.path()).unwrap();
        assert!(text.iter().all(|&byte| byte == 7) && text.len() == 16 * page);
    }

    #[test]
    fn the_format_of_an_image_is_read() {
        let mut file = on_disk();
        let mut image = image_of(&file);
        image.read_format();
        assert_eq!((&image.qcow2, &image.damage), (&None, &None));
        file.write_all(b"QFI\xfb\0\0\0\x03").unwrap();
        image.read_format();
        assert!(image.damage.is_some());
    }
}
