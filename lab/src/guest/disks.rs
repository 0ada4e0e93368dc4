//! The guest's disks by serial number, and the job and report on the job disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use serde::{de::DeserializeOwned, Serialize};

use super::files;
use justitia_machine::job_disk::{read_message, write_message, JOB_OFFSET, REPORT_OFFSET};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestDisk {
    pub name: String,
    pub node: PathBuf,
    /// `major:minor`, as in io.stat.
    pub number: String,
    /// Names of the disks with a request queue of their own: its own, or those below a volume.
    pub queues: Vec<String>,
}

impl GuestDisk {
    /// The disk of this directory in /sys/block.
    pub fn of(dir: &Path) -> Result<Self> {
        let name = dir.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        Ok(Self {
            node: Path::new("/dev").join(&name),
            number: files::read(&dir.join("dev"))?,
            queues: vec![name.clone()],
            name,
        })
    }
}

pub fn find(serial: &str) -> Result<GuestDisk> {
    find_below(Path::new("/sys/block"), serial)
}

fn find_below(sys_block: &Path, serial: &str) -> Result<GuestDisk> {
    let entries =
        fs::read_dir(sys_block).with_context(|| format!("cannot read {}", sys_block.display()))?;
    for entry in entries {
        let dir = entry?.path();
        // Other kinds of disks have no serial number there.
        let found = fs::read_to_string(dir.join("device/serial"));
        if found.is_ok_and(|text| text.trim() == serial) {
            return GuestDisk::of(&dir);
        }
    }
    bail!("no disk with serial number {serial:?} is attached to this guest")
}

pub fn receive<T: DeserializeOwned>(disk: &Path) -> Result<T> {
    let file = File::open(disk).with_context(|| format!("cannot open {}", disk.display()))?;
    let text = read_message(&file, JOB_OFFSET)
        .context("cannot read the job disk")?
        .context("the job disk holds no job")?;
    serde_json::from_slice(&text).context("the job in the job disk cannot be understood")
}

/// Writes the report to the job disk and flushes it.
pub fn send<T: Serialize>(disk: &Path, report: &T) -> Result<()> {
    let text = serde_json::to_vec(report).context("cannot write the report as JSON")?;
    let file = File::options()
        .write(true)
        .open(disk)
        .with_context(|| format!("cannot open {}", disk.display()))?;
    write_message(&file, REPORT_OFFSET, &text).context("cannot write the report to the job disk")
}

#[cfg(test)]
mod tests {
    use super::*;
    use justitia_machine::job_disk;

    #[test]
    fn job_and_report_have_their_own_places() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job");
        job_disk::create(&path, b"[1,2]").unwrap();
        send(&path, &7u32).unwrap();
        assert_eq!(receive::<Vec<u32>>(&path).unwrap(), [1, 2]);
        assert!(receive::<String>(&path).is_err());
    }

    #[test]
    fn a_disk_is_found_by_its_padded_serial_number() {
        let dir = tempfile::tempdir().unwrap();
        for (name, serial) in [("nvme0n1", "root   \n"), ("nvme1n1", "data \n")] {
            let disk = dir.path().join(name);
            fs::create_dir_all(disk.join("device")).unwrap();
            fs::write(disk.join("device/serial"), serial).unwrap();
            fs::write(disk.join("dev"), "259:3\n").unwrap();
        }
        fs::create_dir(dir.path().join("loop0")).unwrap();
        let disk = find_below(dir.path(), "data").unwrap();
        assert_eq!(disk.node, Path::new("/dev/nvme1n1"));
        assert_eq!(disk.number, "259:3");
        assert!(find_below(dir.path(), "job").is_err());
    }
}
