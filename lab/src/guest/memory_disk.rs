//! A data disk in the guest's own memory, throttled by the guest's own clock.
//!
//! The emulator throttles its disks by the host's time. If the guest's clock counts instructions, the two
//! drift apart and bandwidth has no meaning. The guest therefore creates the disk itself: `null_blk`, backed
//! by memory, whose timers are the guest kernel's (`drivers/block/null_blk/main.c`: a budget of bytes fifty
//! times per second, and a timer that completes each request). Such a disk never waits for the host.
//!
//! All its memory is allocated before the measurement: a disk that grows would take page cache away.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, Context, Result};
use rustix::mount::{mount, MountFlags};

use super::disks::{self, GuestDisk};
use super::{files, progress, setup};
use crate::protocol::MemoryDisk;
use justitia_machine::qemu::SERIAL_DATA;

/// Mount point of configfs.
const CONFIG: &str = "/sys/kernel/config";
/// Latency of a request besides its bytes, and number of concurrent requests, as for a good flash disk.
const COMPLETION_NS: u64 = 100_000;
const QUEUE_DEPTH: u64 = 64;
const BLOCK_BYTES: u64 = 4096;
/// Completion by a timer, not within the submitting call.
const IRQ_MODE_TIMER: u64 = 2;

/// Creates the disk with every block allocated: the disk is filled at memory speed and throttled afterwards.
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
    // A disk that is powered off keeps its memory (`null_del_dev`), and only then takes a new speed.
    // At a queue depth of one, the completion time sets the operations per second.
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

/// The driver's only disk; its name changed over time.
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

/// The disk of a job: its own memory disk, or the attached one.
pub(super) fn of_job(own: Option<&MemoryDisk>) -> Result<GuestDisk> {
    match own {
        Some(disk) => make(disk),
        None => disks::find(SERIAL_DATA),
    }
}
