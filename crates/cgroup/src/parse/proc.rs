//! `/proc/PID/io`, `/proc/PID/stat`, `cgroup.procs`. Units: bytes, system calls, kernel ticks.

use super::{keyed, lines, number, words};

/// Counters of `/proc/PID/io`: of all threads of the process, ended ones too, and of every ended child that
/// was waited for (the kernel adds a child's counters then).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// Bytes through read-like system calls: page cache, pipes, sockets, terminals alike.
    pub rchar: u64,
    /// Bytes through write-like system calls.
    pub wchar: u64,
    /// Read-like system calls.
    pub syscr: u64,
    /// Write-like system calls.
    pub syscw: u64,
}

/// Parses `/proc/PID/io`; `None` unless all four counters are there.
pub fn process_io(text: &[u8]) -> Option<ProcessIo> {
    let (mut rchar, mut wchar, mut syscr, mut syscw) = (None, None, None, None);
    for (key, value) in keyed(text, b':') {
        match key {
            b"rchar" => rchar = Some(value),
            b"wchar" => wchar = Some(value),
            b"syscr" => syscr = Some(value),
            b"syscw" => syscw = Some(value),
            _ => {}
        }
    }
    Some(ProcessIo {
        rchar: rchar?,
        wchar: wchar?,
        syscr: syscr?,
        syscw: syscw?,
    })
}

/// The path in the line `0::PATH` of `/proc/PID/cgroup`: the process's cgroup2.
pub fn unified_group(text: &[u8]) -> Option<String> {
    let path = lines(text).find_map(|line| line.strip_prefix(b"0::"))?;
    path.starts_with(b"/")
        .then(|| String::from_utf8_lossy(path).into_owned())
}

/// Identity of a process, from `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    /// Field 4.
    pub parent: u32,
    /// Field 22: start, in ticks since boot.
    pub start_ticks: u64,
}

/// Parses `/proc/PID/stat`. The command name (field 2) is in parentheses and may hold anything,
/// parentheses and line ends too: fields are counted from the last `)`.
pub fn process_stat(text: &[u8]) -> Option<ProcessStat> {
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let mut fields = words(&text[end + 1..]);
    let parent = number(fields.nth(1)?)?;
    let start_ticks = number(fields.nth(17)?)?;
    Some(ProcessStat {
        parent: u32::try_from(parent).ok()?,
        start_ticks,
    })
}

/// Appends the processes of `cgroup.procs`. A process of a pid namespace we cannot see, or one that ended during
/// the read, is shown as 0 and left out: the result is false then.
pub fn pids(text: &[u8], out: &mut Vec<u32>) -> bool {
    let mut all = true;
    for pid in lines(text).filter_map(number).map(u32::try_from) {
        match pid {
            Ok(0) => all = false,
            pid => out.extend(pid),
        }
    }
    all
}
