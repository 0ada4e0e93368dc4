//! Small text files of the kernel: one pure parser per format, and I/O functions whose errors name the path.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use anyhow::{Context, Result};

/// Reads a small file, without the final newline.
pub fn read(path: &Path) -> Result<String> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim_end().to_owned())
}

pub fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).with_context(|| format!("cannot write {value:?} to {}", path.display()))
}

/// Makes a user the owner of a file.
pub fn give(path: &Path, uid: u32) -> Result<()> {
    chown(path, Some(uid), Some(uid)).with_context(|| format!("cannot give {}", path.display()))
}

/// A line of /proc/meminfo, in bytes.
pub fn meminfo_bytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.split(':').next() == Some(field))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// A `name value` line, as in memory.stat and cgroup.events.
pub fn keyed(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.parse().ok())?
    })
}

/// CPU time of all tasks that ever were in a cgroup, microseconds.
pub fn cpu_us(group: &Path) -> Result<u64> {
    let text = read(&group.join("cpu.stat"))?;
    keyed(&text, "usage_usec").context("no usage_usec")
}

/// Page cache in memory.stat, bytes.
pub fn page_cache(stat: &str) -> Option<u64> {
    Some(keyed(stat, "file")?.saturating_sub(keyed(stat, "shmem")?))
}

/// Whether a process is in the cgroup or below it.
pub fn populated(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.events"))
        .is_ok_and(|text| keyed(&text, "populated") == Some(1))
}

/// A `key=value` field of the device `major:minor` in io.stat. A missing line is zero, because the kernel
/// prints only devices with traffic.
pub fn io_stat(text: &str, device: &str, key: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(device)?.strip_prefix(' '))
        .and_then(|fields| {
            fields
                .split_whitespace()
                .find_map(|f| f.strip_prefix(key)?.strip_prefix('='))
        })
        .and_then(|value| value.parse().ok())
        .unwrap_or(0)
}

/// `total=` of the `some` or `full` line of a pressure file, microseconds.
pub fn pressure_total_us(text: &str, kind: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.split(' ').next() == Some(kind))?;
    line.split("total=").nth(1)?.trim().parse().ok()
}

/// A memory limit in bytes; `None` for `max` and for unreadable values.
pub fn limit_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The last lines of a log; nothing of one that cannot be read.
pub fn log_tail(log: &Path, lines: usize) -> String {
    let text = fs::read(log).unwrap_or_default();
    tail(&String::from_utf8_lossy(&text), lines)
}

pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The mount options of `target` in the format of /proc/self/mounts; the last mount on it counts.
pub fn mount_options(mounts: &str, target: &str) -> Option<String> {
    mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        (fields.next()? == target).then(|| fields.nth(1).map(str::to_owned))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_bytes() {
        let text = "MemTotal:         768000 kB\nMemFree:  5 kB\n";
        assert_eq!(meminfo_bytes(text, "MemTotal"), Some(768_000 * 1024));
        assert_eq!(meminfo_bytes(text, "Mem"), None);
    }

    #[test]
    fn a_name_is_matched_whole() {
        let text = "file_dirty 7\nfile 5\nshmem 2\n";
        assert_eq!(keyed(text, "file"), Some(5));
        assert_eq!(keyed(text, "anon"), None);
    }

    #[test]
    fn io_stat_takes_its_own_device() {
        let text = "259:10 rbytes=1 wbytes=2\n259:1 rbytes=30 wbytes=40 rios=5\n";
        assert_eq!(io_stat(text, "259:1", "wbytes"), 40);
        assert_eq!(io_stat(text, "259:1", "bytes"), 0);
        assert_eq!(io_stat(text, "8:0", "rbytes"), 0);
    }

    #[test]
    fn pressure_lines_are_told_apart() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=34\n";
        assert_eq!(pressure_total_us(text, "some"), Some(12));
        assert_eq!(pressure_total_us(text, "full"), Some(34));
    }

    #[test]
    fn max_is_no_number() {
        assert_eq!(limit_bytes("max\n"), None);
        assert_eq!(limit_bytes("4096\n"), Some(4096));
    }

    #[test]
    fn the_topmost_mount_counts() {
        let mounts = "tmpfs /run tmpfs rw 0 0\n/dev/x /run ext4 rw,noatime 0 0\n";
        assert_eq!(mount_options(mounts, "/run").as_deref(), Some("rw,noatime"));
        assert_eq!(mount_options(mounts, "/tmp"), None);
    }
}
