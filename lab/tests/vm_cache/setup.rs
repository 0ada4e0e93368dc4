//! The machine of these tests: its disks, its programs, and the `justitia` under test.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use justitia_machine::architecture::Architecture;
use justitia_machine::cache::Cache;
use justitia_machine::image;
use justitia_machine::kernels::{self, Series};
use justitia_machine::qemu::{
    self, Accelerator, Clock, Disk, Machine, SERIAL_DATA, SERIAL_ROOT, SERIAL_TOOLS,
};
use tempfile::TempDir;

use crate::DISK_BYTES;

/// Guest memory; some 100 MiB of it remain for its page cache.
const GUEST_BYTES: u64 = 192 << 20;

/// Executes commands from the console, line by line. The disk stays open, otherwise the guest would drop its
/// cached pages.
const GUEST: &str = r#"#!/bin/bash
for disk in /sys/block/nvme*; do
    read -r serial <"$disk/device/serial"
    [ "$serial" = data ] && data=/dev/${disk##*/}
done
exec 5<"$data"
write() {
    yes "$1" | head -c 65536 |
        dd of="$data" bs=64k seek="$2" conv=notrunc,fsync iflag=fullblock status=none
}
echo "@done 0"
while read -r line; do
    eval "$line"
    echo "@done $?"
done </dev/console
"#;

pub(crate) struct Setup {
    pub(crate) machine: Machine,
    pub(crate) image: PathBuf,
    pub(crate) resident: PathBuf,
    pub(crate) justitia: PathBuf,
    pub(crate) dir: PathBuf,
    _programs: TempDir,
}

impl Setup {
    /// The machine with another image.
    pub(crate) fn machine_of(&self, image: &Path) -> Machine {
        let mut machine = self.machine.clone();
        let data = machine.disks.last_mut().unwrap();
        image.clone_into(&mut data.path);
        machine
    }
}

/// Creates all of it below `dir`.
pub(crate) fn setup(dir: &Path) -> Setup {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let justitia = std::env::var_os("JUSTITIA_TEST_BINARY")
        .map_or_else(|| workspace.join("target/release/justitia"), PathBuf::from);
    assert!(
        justitia.exists(),
        "build it first: cargo build --release; or say where it is in JUSTITIA_TEST_BINARY"
    );
    let status = Command::new(env!("CARGO"))
        .current_dir(&workspace)
        .args(["build", "-q", "-p", "justitia-vm", "--example", "resident"])
        .status()
        .unwrap();
    assert!(status.success());
    let resident = workspace.join("target/debug/examples/resident");
    let program = dir.join("justitia-lab-guest");
    fs::write(&program, GUEST).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();

    let mut progress = |line: &str| eprintln!("{line}");
    let cache = Cache::open().unwrap().lock(&mut progress).unwrap();
    let architecture = Architecture::default();
    let kernel = kernels::obtain(&cache, architecture, Series::V6_12, &mut progress).unwrap();
    let root = image::root_image(&cache, architecture, image::RELEASE, &[], &mut progress).unwrap();
    let tools = image::tools_image(&cache, &kernel, &[program, resident.clone()], &[]);
    drop(cache);
    // The guest's programs are in memory, where nothing can be dropped, because they are not part of the
    // measurement.
    let programs = tempfile::tempdir_in("/dev/shm").unwrap();
    let [root, tools] = [root, tools.unwrap()].map(|disk| {
        let copy = programs.path().join(disk.file_name().unwrap());
        fs::copy(&disk, &copy).unwrap();
        copy
    });

    let image = dir.join("disk.img");
    fill(&image, DISK_BYTES);
    let disks = vec![
        Disk::shared(&root, SERIAL_ROOT),
        Disk::shared(&tools, SERIAL_TOOLS),
        Disk::private(&image, SERIAL_DATA, None),
    ];
    Setup {
        machine: Machine {
            architecture,
            accelerator: Accelerator::Tcg,
            qemu_major: qemu::version(architecture).unwrap().0,
            memory_bytes: GUEST_BYTES,
            cpus: 1,
            kernel: kernel.image().unwrap(),
            disks,
            // On a busy host the guest's kernel may not see its timer work.
            cmdline: vec!["lru_gen=off".into(), "no_timer_check".into()],
            patches_text: false,
            clock: Clock::Host,
        },
        image,
        resident,
        justitia,
        dir: dir.to_owned(),
        _programs: programs,
    }
}

pub(crate) fn fill(image: &Path, bytes: u64) {
    let mut random = File::open("/dev/urandom").unwrap().take(bytes);
    std::io::copy(&mut random, &mut File::create(image).unwrap()).unwrap();
    File::open(image).unwrap().sync_all().unwrap();
}
