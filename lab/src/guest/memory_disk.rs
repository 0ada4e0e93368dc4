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
use crate::protocol::{modules_of, MemoryDisk, Volume};
use justitia_machine::qemu::SERIAL_DATA;

const CONFIG: &str = "/sys/kernel/config";
/// Latency of a request besides its bytes, and number of concurrent requests, as for a good flash disk.
const COMPLETION_NS: u64 = 100_000;
const QUEUE_DEPTH: u64 = 64;
const BLOCK_BYTES: u64 = 4096;
/// Completion by a timer, not within the submitting call.
const IRQ_MODE_TIMER: u64 = 2;

/// Creates the disk, or the volume over several.
fn make(disk: &MemoryDisk) -> Result<GuestDisk> {
    let (count, bytes) = disk.disks();
    setup::load_module("null_blk", &["nr_devices=0"])?;
    mount("configfs", CONFIG, "configfs", MountFlags::empty(), c"")
        .context("cannot mount configfs")?;
    let names = ["data", "data2", "data3"].into_iter();
    let made = names
        .take(count as usize)
        .map(|name| one(disk, name, bytes));
    let mut made: Vec<GuestDisk> = made.collect::<Result<_>>()?;
    match disk.volume {
        Some(volume) => over(volume, &made, disk.bytes),
        None => made.pop().context("no disk"),
    }
}

/// The volume over these disks.
fn over(volume: Volume, disks: &[GuestDisk], bytes: u64) -> Result<GuestDisk> {
    for module in modules_of(volume) {
        setup::load_module(module, &[])?;
    }
    let name = match volume {
        // Documentation/admin-guide/device-mapper.
        Volume::Linear => mapped(&format!("linear {} 0", disks[0].node.display()), "", bytes),
        // The UUID is as cryptsetup names it.
        Volume::Crypt | Volume::CryptInline => {
            let target = format!("crypt cipher_null-ecb - 0 {} 0", disks[0].node.display());
            let inline = match volume {
                Volume::CryptInline => " 1 no_write_workqueue",
                _ => "",
            };
            mapped(&(target + inline), "CRYPT-PLAIN-volume", bytes)
        }
        // Chunks of 128 sectors, without metadata. The disks hold zeros and so agree.
        Volume::LvmRaid5 => {
            let parts = disks
                .iter()
                .map(|disk| format!(" - {}", disk.node.display()));
            let parts: String = parts.collect();
            let target = format!("raid raid5_ls 2 128 nosync {}{parts}", disks.len());
            mapped(&target, "LVM-volume", bytes)
        }
        Volume::Raid1 => array("raid1", &[], disks),
        // Layout 2 is left-symmetric, mdadm's default.
        Volume::Raid5 => array("raid5", &[("layout", "2"), ("chunk_size", "65536")], disks),
    }?;
    Ok(GuestDisk {
        queues: disks.iter().map(|disk| disk.name.clone()).collect(),
        ..GuestDisk::of(&Path::new("/sys/block").join(name))?
    })
}

/// A volume of this target of device mapper.
fn mapped(target: &str, uuid: &str, bytes: u64) -> Result<String> {
    let table = format!("0 {} {target}", bytes / 512);
    let mut dmsetup = Command::new("dmsetup");
    dmsetup.args(["create", "volume", "--noudevsync", "--table", &table]);
    dmsetup.args((!uuid.is_empty()).then(|| format!("--uuid={uuid}")));
    setup::run(&mut dmsetup)?;
    Ok("dm-0".to_owned())
}

/// Runs an array of md without metadata, as Documentation/admin-guide/md.rst says. The disks hold zeros and so agree.
fn array(level: &str, layout: &[(&str, &str)], disks: &[GuestDisk]) -> Result<String> {
    let name = "md0".to_owned();
    files::write(Path::new("/sys/module/md_mod/parameters/new_array"), &name)?;
    let md = Path::new("/sys/block").join(&name).join("md");
    let write = |attribute: &str, value: &str| files::write(&md.join(attribute), value);
    write("level", level)?;
    write("raid_disks", &disks.len().to_string())?;
    for (attribute, value) in layout {
        write(attribute, value)?;
    }
    write("resync_start", "none")?;
    let size = files::read(&Path::new("/sys/block").join(&disks[0].name).join("size"))?;
    let kib = (size.parse::<u64>().context("size of a disk")? / 2).to_string();
    write("component_size", &kib)?;
    for (slot, disk) in disks.iter().enumerate() {
        write("new_dev", &disk.number)?;
        write(&format!("dev-{}/size", disk.name), &kib)?;
        write(&format!("dev-{}/slot", disk.name), &slot.to_string())?;
    }
    write("array_state", "active")?;
    Ok(name)
}

/// Creates one disk with every block allocated: it is filled at memory speed and throttled afterwards.
fn one(disk: &MemoryDisk, name: &str, bytes: u64) -> Result<GuestDisk> {
    progress(&format!("making a disk of {} MiB of memory", bytes >> 20));
    let dir = Path::new(CONFIG).join("nullb").join(name);
    fs::create_dir(&dir).context("null_blk makes no disk")?;
    for (name, value) in [
        ("size", bytes >> 20),
        ("blocksize", BLOCK_BYTES),
        ("memory_backed", 1),
        ("power", 1),
    ] {
        set(&dir, name, value)?;
    }
    fill(disk, bytes, &found(&dir, name)?)?;
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
    let made = found(&dir, name)?;
    let limit = Path::new("/sys/block")
        .join(&made.name)
        .join("queue/max_sectors_kb");
    let present = files::read(&limit)?.parse().context("size of a request")?;
    let largest = largest_request_kib(disk.mib_per_s(), present);
    files::write(&limit, &largest.to_string())?;
    Ok(made)
}

/// The largest request of a disk with this speed: at most a tick's budget (`mb_per_tick`), because the driver never
/// serves a larger one.
fn largest_request_kib(mib_per_s: u64, present: u64) -> u64 {
    let budget = (1 << 20) / 50 * mib_per_s;
    present.min(budget / BLOCK_BYTES * (BLOCK_BYTES >> 10))
}

fn set(dir: &Path, attribute: &str, value: u64) -> Result<()> {
    files::write(&dir.join(attribute), &value.to_string())
}

fn fill(disk: &MemoryDisk, bytes: u64, made: &GuestDisk) -> Result<()> {
    let from = if disk.copies {
        disks::find(SERIAL_DATA)?.node
    } else {
        "/dev/zero".into()
    };
    let mut fill = Command::new("dd");
    fill.args(["bs=1M", "iflag=fullblock", "oflag=direct", "status=none"])
        .arg(format!("if={}", from.display()))
        .arg(format!("of={}", made.node.display()))
        .arg(format!("count={}", bytes >> 20));
    setup::run(&mut fill)
}

/// The disk of this directory of configfs. Its name is the directory's, in older kernels `nullb` and a number.
fn found(config: &Path, name: &str) -> Result<GuestDisk> {
    let numbered = format!("nullb{}", files::read(&config.join("index"))?);
    for name in [name, &numbered] {
        let dir = Path::new("/sys/block").join(name);
        if dir.join("dev").exists() {
            return GuestDisk::of(&dir);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_never_exceeds_the_budget_of_a_tick() {
        for mib_per_s in 1..=10 {
            let kib = largest_request_kib(mib_per_s, 124);
            assert!(kib > 0 && kib % 4 == 0, "{mib_per_s} MiB/s: {kib} KiB");
            assert!(
                kib << 10 <= 20_971 * mib_per_s,
                "{mib_per_s} MiB/s: {kib} KiB"
            );
        }
        assert_eq!(
            largest_request_kib(40, 124),
            124,
            "never more than the disk's own limit"
        );
    }
}
