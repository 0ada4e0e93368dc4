//! One real process.
//!
//! An open `/proc/PID/io` stays bound to its process: after the process ends, a read returns `ESRCH`, even if
//! the pid was recycled. Without a descriptor to spare, the start time identifies the process.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{OFlags, CWD};
use rustix::io::Errno;

use super::budget::{Budget, Kept};
use super::open_at;
use crate::parse::proc::{process_io, process_stat, ProcessIo, ProcessStat};
use crate::{Buffer, Process};

#[derive(Debug)]
pub(crate) struct RealProcess {
    pid: u32,
    start_ticks: u64,
    io: Option<Kept>,
    budget: Arc<Budget>,
}

impl RealProcess {
    pub(crate) fn open(pid: u32, budget: &Arc<Budget>) -> Result<RealProcess, Errno> {
        // Both files are opened through one directory, so they belong to one process.
        let dir = open_directory(pid)?;
        let stat = read_stat(&dir, &mut Buffer::new())?;
        let io = keep(&dir, budget)?;
        Ok(RealProcess {
            pid,
            start_ticks: stat.start_ticks,
            io,
            budget: Arc::clone(budget),
        })
    }

    /// The process's directory and its `stat`, if it is still the same process.
    fn look(&self, buffer: &mut Buffer) -> Result<(OwnedFd, ProcessStat), Errno> {
        let dir = open_directory(self.pid)?;
        let stat = read_stat(&dir, buffer)?;
        if stat.start_ticks == self.start_ticks {
            Ok((dir, stat))
        } else {
            Err(Errno::SRCH)
        }
    }
}

impl Process for RealProcess {
    fn started(&self) -> Duration {
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Duration::from_millis(self.start_ticks.saturating_mul(1000) / per_second)
    }

    fn parent(&mut self, buffer: &mut Buffer) -> Result<u32, Errno> {
        Ok(self.look(buffer)?.1.parent)
    }

    fn io(&mut self, buffer: &mut Buffer) -> Result<ProcessIo, Errno> {
        if let Some(kept) = &self.io {
            buffer.pread(&kept.fd, false)?;
        } else {
            // Groups that went quiet since may have returned their descriptors.
            let (dir, _) = self.look(buffer)?;
            self.io = keep(&dir, &self.budget)?;
            match &self.io {
                Some(kept) => buffer.pread(&kept.fd, false)?,
                None => buffer.pread(open_file(&dir, "io")?, false)?,
            }
        }
        process_io(buffer.bytes()).ok_or(Errno::NODATA)
    }
}

/// Opens `io` to be kept open, if there is a descriptor to spare.
fn keep(dir: &OwnedFd, budget: &Arc<Budget>) -> Result<Option<Kept>, Errno> {
    let Some(permit) = budget.take(true) else {
        return Ok(None);
    };
    let fd = open_file(dir, "io")?;
    Ok(Some(Kept {
        fd,
        _permit: permit,
    }))
}

fn open_directory(pid: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    open_at(CWD, format!("/proc/{pid}"), flags).map_err(ended)
}

fn open_file(dir: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    open_at(dir, name, OFlags::RDONLY).map_err(ended)
}

fn read_stat(dir: &OwnedFd, buffer: &mut Buffer) -> Result<ProcessStat, Errno> {
    buffer.pread(open_file(dir, "stat")?, false)?;
    process_stat(buffer.bytes()).ok_or(Errno::NODATA)
}

/// A process without a directory has ended.
fn ended(errno: Errno) -> Errno {
    match errno {
        Errno::NOENT => Errno::SRCH,
        errno => errno,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn opened_with(files: i64) -> (RealProcess, std::process::Child) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = RealProcess::open(child.id(), &Budget::new(files)).unwrap();
        (process, child)
    }

    #[test]
    fn a_process_that_ended_is_no_process_with_or_without_an_open_file() {
        for files in [0, 10] {
            let (mut process, mut child) = opened_with(files);
            let mut buffer = Buffer::new();
            assert!(process.io(&mut buffer).is_ok());
            assert_eq!(process.parent(&mut buffer), Ok(std::process::id()));
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(process.io(&mut buffer), Err(Errno::SRCH));
            assert_eq!(process.parent(&mut buffer), Err(Errno::SRCH));
        }
    }

    #[test]
    fn a_process_keeps_its_file_open_as_soon_as_a_descriptor_is_free() {
        let budget = Budget::new(2);
        let taken = budget.take(false);
        let mut me = RealProcess::open(std::process::id(), &budget).unwrap();
        let mut buffer = Buffer::new();
        assert!(me.io(&mut buffer).is_ok() && me.io.is_none());
        drop(taken);
        assert!(me.io(&mut buffer).is_ok() && me.io.is_some());
    }

    #[test]
    fn a_recycled_pid_is_another_process() {
        let (mut process, mut child) = opened_with(0);
        process.start_ticks += 1;
        assert_eq!(process.io(&mut Buffer::new()), Err(Errno::SRCH));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn io_counts_what_a_process_writes_to_the_page_cache() {
        let budget = Budget::new(10);
        let mut me = RealProcess::open(std::process::id(), &budget).unwrap();
        let mut buffer = Buffer::new();
        let before = me.io(&mut buffer).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![0; 1 << 20]).unwrap();
        let after = me.io(&mut buffer).unwrap();
        assert!(after.wchar - before.wchar >= 1 << 20);
    }
}
