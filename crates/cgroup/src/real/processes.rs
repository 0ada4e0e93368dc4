//! Processes and the files they hold open: `/proc/PID/{exe,cmdline,stat,cgroup,fd,fdinfo,mountinfo}`.
//!
//! A process may end, and a descriptor may be closed, between any two reads: it is then left out or `None`.
//! To be sure that a process is still the same, compare [`Processes::started`].

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::parse::files::{fd_info, systemd_group, FdInfo};
use crate::parse::mountinfo::mounts;
use crate::parse::proc::{process_stat, unified_group};
use crate::Device;

/// The processes of a host.
#[derive(Debug, Clone)]
pub struct Processes {
    root: PathBuf,
}

/// A file that a process holds open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenFile {
    /// Its descriptor.
    pub fd: u32,
    /// Its path as the process sees it; ` (deleted)` at the end of one that was removed.
    pub path: String,
    /// Its open flags and mount.
    pub info: FdInfo,
}

impl Processes {
    /// Those of this host.
    pub fn host() -> Processes {
        Processes::at("/proc")
    }

    /// Those of a directory that looks like `/proc`.
    pub fn at(root: impl Into<PathBuf>) -> Processes {
        Processes { root: root.into() }
    }

    /// All process ids, in order.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        let mut pids: Vec<u32> = numbers(&self.root)?;
        pids.sort_unstable();
        Ok(pids)
    }

    /// The path of the program that a process runs. `None` for a kernel thread, or one that may
    /// not be looked at.
    pub fn program(&self, pid: u32) -> Option<PathBuf> {
        fs::read_link(self.of(pid, "exe")).ok()
    }

    /// Its arguments, the program's name first.
    pub fn arguments(&self, pid: u32) -> Option<Vec<String>> {
        let text = fs::read(self.of(pid, "cmdline")).ok()?;
        let text = text.strip_suffix(b"\0").unwrap_or(&text);
        let words = text.split(|&byte| byte == 0);
        Some(
            words
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
        )
    }

    /// Time of its start, in ticks since boot. Identifies the process together with its number.
    pub fn started(&self, pid: u32) -> Option<u64> {
        Some(process_stat(&fs::read(self.of(pid, "stat")).ok()?)?.start_ticks)
    }

    /// Its cgroup in cgroup v2, or, if that is the root or missing, in systemd's v1 hierarchy.
    pub fn group(&self, pid: u32) -> Option<String> {
        let text = fs::read(self.of(pid, "cgroup")).ok()?;
        let unified = unified_group(&text).filter(|path| path != "/");
        unified.or_else(|| systemd_group(&text))
    }

    /// The files it holds open, in order of their descriptors.
    ///
    /// # Errors
    /// They cannot be listed: the process has ended, or may not be looked at.
    pub fn open_files(&self, pid: u32) -> io::Result<Vec<OpenFile>> {
        let mut fds = numbers(&self.of(pid, "fd"))?;
        fds.sort_unstable();
        let look = |fd: u32| {
            let path = fs::read_link(self.of(pid, &format!("fd/{fd}"))).ok()?;
            let info = fs::read(self.of(pid, &format!("fdinfo/{fd}"))).ok()?;
            Some(OpenFile {
                fd,
                path: path.to_string_lossy().into_owned(),
                info: fd_info(&info)?,
            })
        };
        Ok(fds.into_iter().filter_map(look).collect())
    }

    /// Reopens the file behind another process's descriptor, read-only. This also works for a removed file
    /// and for a file in another mount namespace. The new descriptor shares neither position nor locks.
    ///
    /// # Errors
    /// It is closed by now, or we may not open it.
    pub fn reopen(&self, pid: u32, fd: u32) -> io::Result<File> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
            .open(self.of(pid, &format!("fd/{fd}")))
    }

    /// The device number of the file system of a mount. Files of a btrfs subvolume have another number in
    /// `stat(2)`.
    pub fn device_of_mount(&self, pid: u32, mount: u64) -> Option<Device> {
        let mounts = mounts(&fs::read(self.of(pid, "mountinfo")).ok()?);
        mounts.iter().find(|one| one.id == mount)?.device
    }

    fn of(&self, pid: u32, file: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(file)
    }
}

/// Entries of a directory whose names are numbers.
fn numbers(dir: &Path) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(dir)?;
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(entries.filter_map(number).collect())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn this_process_and_a_file_that_it_holds_and_removed() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"image").unwrap();
        let path = file.path().to_owned();
        let held = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let host = Processes::host();
        let pid = std::process::id();
        assert!(host.pids().unwrap().contains(&pid));
        assert_eq!(host.program(pid), std::env::current_exe().ok());
        assert!(host.arguments(pid).unwrap()[0].contains("cgroup"));
        assert!(host.started(pid) > Some(0));
        let deleted = format!("{} (deleted)", path.display());
        let found: Vec<OpenFile> = host.open_files(pid).unwrap();
        let found: Vec<_> = found.iter().filter(|open| open.path == deleted).collect();
        assert_eq!(found.len(), 2, "the writer's descriptor and ours");
        let read_only = found.iter().find(|open| !open.info.writes()).unwrap();
        assert!(!read_only.info.direct());
        let mut text = String::new();
        let mut again = host.reopen(pid, read_only.fd).unwrap();
        again.read_to_string(&mut text).unwrap();
        assert_eq!(text, "image");
        drop(held);
    }

    #[test]
    fn a_mount_has_the_device_that_stat_says_on_an_ordinary_file_system() {
        use std::os::unix::fs::MetadataExt as _;
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let host = Processes::host();
        let pid = std::process::id();
        let open = host.open_files(pid).unwrap();
        let name = std::env::current_exe().unwrap().display().to_string();
        let open = open.iter().find(|open| open.path == name).unwrap();
        let device = host.device_of_mount(pid, open.info.mount.unwrap()).unwrap();
        let dev = file.metadata().unwrap().dev();
        assert_eq!(
            (device.major, device.minor),
            (rustix::fs::major(dev), rustix::fs::minor(dev))
        );
    }

    #[test]
    fn a_process_that_is_not_there_has_nothing() {
        let host = Processes::at("/nonexistent");
        assert!(host.pids().is_err());
        assert_eq!(host.program(1), None);
        assert_eq!(host.arguments(1), None);
        assert_eq!(host.group(1), None);
        assert!(host.open_files(1).is_err());
    }
}
