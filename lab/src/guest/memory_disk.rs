//! A data disk of the guest's own memory, limited by the guest's own clock.
//!
//! The emulator limits its disks by the host's time. Where a guest's clock counts instructions, the two
//! drift apart and no bandwidth means anything, so the guest makes its disk itself: `null_blk`,
//! backed by memory, whose timers are the guest kernel's (`drivers/block/null_blk/main.c`: a budget of bytes
//! fifty times a second, and a timer that completes each request). Such a disk waits for nobody on the host.
//!
//! All its memory is taken before anything is measured: a disk that grows would take page cache away.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, Context, Result};
use rustix::mount::{mount, MountFlags};

use super::disks::{self, GuestDisk};
use super::{files, progress, setup};
use crate::protocol::MemoryDisk;
use justitia_machine::qemu::SERIAL_DATA;

/// Where configfs is mounted.
const CONFIG: &str = "/sys/kernel/config";
/// How long a request takes besides its bytes, and how many of them at once: as a good flash disk does.
const COMPLETION_NS: u64 = 100_000;
const QUEUE_DEPTH: u64 = 64;
const BLOCK_BYTES: u64 = 4096;
/// Completed by a timer, not within the call that submits.
const IRQ_MODE_TIMER: u64 = 2;

/// Makes the disk, every block of it there: filled at the speed of memory, then limited.
fn make(disk: &MemoryDisk) -> Result<GuestDisk> {
    progress(&format!(
        "making a disk of {} MiB of memory",
        disk.bytes >> 20
    ));
    setup::load_module("null_blk", &["nr_devices=0"])?;
    mount("configfs", CONFIG, "configfs", MountFlags::empty(), c"")
        .context("cannot mount configfs")?;
    let dir = Path::new(CONFIG).join("nullb/data");
    fs::create_dir(&dir).context("null_blk makes no disk")?;
    for (name, value) in [
        ("size", disk.bytes >> 20),
        ("blocksize", BLOCK_BYTES),
        ("memory_backed", 1),
        ("power", 1),
    ] {
        set(&dir, name, value)?;
    }
    fill(disk, &find()?)?;
    // The memory stays while the disk is off (`null_del_dev`), and only then can its speed be set.
    // At a queue depth of one, the time of completion gives the operations per second.
    let (depth, completion_ns) = match disk.iops {
        Some(iops) => (1, 1_000_000_000 / u64::from(iops)),
        None => (QUEUE_DEPTH, COMPLETION_NS),
    };
    for (name, value) in [
        ("power", 0),
        ("mbps", disk.mib_per_s()),
        ("irqmode", IRQ_MODE_TIMER),
        ("completion_nsec", completion_ns),
        ("hw_queue_depth", depth),
        ("power", 1),
    ] {
        set(&dir, name, value)?;
    }
    find()
}

fn set(dir: &Path, attribute: &str, value: u64) -> Result<()> {
    files::write(&dir.join(attribute), &value.to_string())
}

fn fill(disk: &MemoryDisk, made: &GuestDisk) -> Result<()> {
    let from = if disk.copies {
        disks::find(SERIAL_DATA)?.node
    } else {
        "/dev/zero".into()
    };
    let mut fill = Command::new("dd");
    fill.args(["bs=1M", "iflag=fullblock", "oflag=direct", "status=none"])
        .arg(format!("if={}", from.display()))
        .arg(format!("of={}", made.node.display()))
        .arg(format!("count={}", disk.bytes >> 20));
    setup::run(&mut fill)
}

/// The one disk of that driver; its name changed over time.
fn find() -> Result<GuestDisk> {
    let entries = fs::read_dir("/sys/block").context("cannot read /sys/block")?;
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("nullb") || name == "data" {
            let number = files::read(&Path::new("/sys/block").join(&name).join("dev"))?;
            return Ok(GuestDisk {
                node: Path::new("/dev").join(&name),
                name,
                number,
            });
        }
    }
    bail!("null_blk made no disk")
}

/// The disk that a job is about: its own, or the one attached.
pub(super) fn of_job(own: Option<&MemoryDisk>) -> Result<GuestDisk> {
    match own {
        Some(disk) => make(disk),
        None => disks::find(SERIAL_DATA),
    }
}
