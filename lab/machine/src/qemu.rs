//! The QEMU command line of a guest, as a pure function of [`Machine`], and the facts it depends on.
//!
//! Disks are NVMe because stock kernels have that driver built in. The guest identifies them by serial
//! ([`SERIAL_ROOT`] and so on, in `/sys/block/nvme*/device/serial`), never by number, because the kernel
//! probes NVMe devices in parallel.
//!
//! Every disk is `cache=unsafe`: the throttle alone determines the speed of the disk that the guest measures.
//! Writes go to the host's page cache and flushes cost nothing beyond the throttle, so a slow or busy host
//! disk does not affect the result. The files are thrown away after the run, so no data is lost. `cache=none`
//! would make the host's device a second bottleneck.
//!
//! Facts about emulation: QEMU before 10 mis-emulates cmpxchg16b under multi-threaded TCG, and the guest then
//! panics at random in the slab allocator; the instruction is therefore hidden there. It also runs into a
//! breakpoint that is no longer there when one CPU patches kernel text that another one executes. A guest
//! that does so over and over ([`Machine::patches_text`]) gets one thread for all its CPUs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::architecture::Architecture;
use crate::error::{LabError, Result};
use crate::image::ROOT_PARTUUID;
use crate::tools;

/// Serial of the read-only root disk.
pub const SERIAL_ROOT: &str = "root";
/// Serial of the tools disk, mounted on `/opt/lab` by the guest's init.
pub const SERIAL_TOOLS: &str = "tools";
pub const SERIAL_JOB: &str = "job";
/// Serial of the empty, throttled data disk.
pub const SERIAL_DATA: &str = "data";

const REMEDY: &str = "reinstall QEMU's packages";

/// Execution of the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    Kvm,
    /// By software, one host thread per virtual CPU.
    Tcg,
}

impl Accelerator {
    /// The name used in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub path: PathBuf,
    /// Serial the guest sees; also the name of the drive.
    pub serial: &'static str,
    /// The image is shared and must not change.
    pub read_only: bool,
    /// Reads and writes together, in 10^6 bytes per second; `None` is unlimited.
    pub mbps: Option<u32>,
    /// Requests per second, reads and writes together; `None` is unlimited.
    pub iops: Option<u32>,
    /// Writes of the guest are thrown away, and the image does not change.
    pub forgets: bool,
}

impl Disk {
    /// An image that several guests may use at once.
    pub fn shared(path: &Path, serial: &'static str) -> Self {
        Self {
            path: path.to_owned(),
            serial,
            read_only: true,
            mbps: None,
            iops: None,
            forgets: false,
        }
    }

    /// A disk of one run.
    pub fn private(path: &Path, serial: &'static str, mbps: Option<u32>) -> Self {
        Self {
            read_only: false,
            mbps,
            ..Self::shared(path, serial)
        }
    }
}

#[derive(Debug, Clone)]
pub struct Machine {
    pub architecture: Architecture,
    pub accelerator: Accelerator,
    pub qemu_major: u32,
    /// Guest memory in bytes, rounded down to mebibytes.
    pub memory_bytes: u64,
    pub cpus: u32,
    pub kernel: PathBuf,
    /// Disks, in order of attachment.
    pub disks: Vec<Disk>,
    pub cmdline: Vec<String>,
    /// The guest often patches its kernel's text: it attaches and detaches BPF programs.
    pub patches_text: bool,
    pub clock: Clock,
}

/// The source of a guest's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    #[default]
    Host,
    /// Each instruction advances the time by a fixed amount, all CPUs of the guest in turn. The cost of a
    /// program is then its instructions, and the host's other work hardly shows. Such a guest is always
    /// emulated.
    Instructions {
        /// Nanoseconds as a power of two: 0 is one nanosecond, 1 is two.
        shift: u8,
        /// While all CPUs are idle, time jumps to the next timer. Without this, idle time passes in real
        /// time, and a host that is late for the guest's timers affects the result. Where the guest waits for
        /// the host itself (its root disk), any amount of time may pass.
        #[serde(default)]
        jumps: bool,
    },
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("the host's"),
            Self::Instructions { shift, jumps } => {
                let idle = if *jumps { ", jumping while idle" } else { "" };
                write!(f, "{} ns an instruction{idle}", 1_u32 << shift)
            }
        }
    }
}

/// The accelerator and the processor that the guest sees.
fn processor(machine: &Machine) -> (&'static str, String) {
    if machine.accelerator == Accelerator::Kvm {
        return ("kvm", "host".into());
    }
    let old = machine.qemu_major < 10;
    let mut cpu = String::from("max");
    let counts = machine.clock != Clock::Host;
    let arm = machine.architecture == Architecture::Arm64;
    if arm {
        // The default algorithm for signed addresses is slow to emulate (QEMU's manual, "Arm CPU Features").
        cpu.push_str(",pauth-impdef=on");
    } else if old {
        cpu.push_str(",la57=off,cx16=off");
    }
    if counts && !arm {
        // A string instruction counts once per item. Without instructions that move bytes, kernel and libc
        // move words, which is closer to a real processor.
        cpu.push_str(",erms=off,fsrm=off");
    }
    let single = counts || old && machine.patches_text;
    let accelerator = if single {
        "tcg,thread=single"
    } else {
        "tcg,thread=multi"
    };
    (accelerator, cpu)
}

/// The arguments for [`Architecture::qemu`].
pub fn arguments(machine: &Machine) -> Vec<String> {
    let (accelerator, cpu) = processor(machine);
    let mut arguments = words("-nodefaults -no-user-config -no-reboot -display none");
    let board = machine.architecture.board();
    arguments.extend(["-machine".into(), board.into()]);
    arguments.extend(["-accel".into(), accelerator.into(), "-cpu".into(), cpu]);
    if let (Clock::Instructions { shift, jumps }, Accelerator::Tcg) =
        (machine.clock, machine.accelerator)
    {
        let sleep = if jumps { "off" } else { "on" };
        let counting = format!("shift={shift},align=off,sleep={sleep}");
        arguments.extend(["-icount".into(), counting]);
    }
    arguments.extend(["-smp".into(), machine.cpus.to_string()]);
    arguments.extend(["-m".into(), format!("{}M", machine.memory_bytes >> 20)]);
    arguments.extend(words(
        "-chardev stdio,id=console,signal=off -serial chardev:console",
    ));
    arguments.extend(["-kernel".into(), machine.kernel.display().to_string()]);
    let mut cmdline = machine.cmdline.clone();
    if let Clock::Instructions { jumps: true, .. } = machine.clock {
        // A request to the root disk takes no guest time, or a lot.
        cmdline.push("nvme_core.io_timeout=1000000".into());
    }
    arguments.extend([
        "-append".into(),
        kernel_command_line(machine.architecture.console(), &cmdline),
    ]);
    for disk in &machine.disks {
        arguments.extend(["-drive".into(), drive(disk)]);
        let device = format!("nvme,drive={0},serial={0}", disk.serial);
        arguments.extend(["-device".into(), device]);
    }
    arguments
}

/// The kernel is quiet unless something breaks. A panic or an oops ends the guest at once, pressure
/// information is on whatever the build's default, and cgroup v1 is disabled. A word from the caller replaces
/// ours with the same key, because the kernel accumulates all values of `cgroup_no_v1=`.
fn kernel_command_line(console: &str, extra: &[String]) -> String {
    let ours = format!(
        "root=PARTUUID={ROOT_PARTUUID} rootwait ro rootfstype=ext4 init=/sbin/lab-init \
         console={console} quiet loglevel=4 panic=-1 oops=panic mitigations=off psi=1 cgroup_no_v1=all"
    );
    let key = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let replaced: Vec<String> = extra.iter().map(|word| key(word)).collect();
    let kept = ours
        .split(' ')
        .filter(|word| !replaced.contains(&key(word)));
    let words: Vec<&str> = kept.chain(extra.iter().map(String::as_str)).collect();
    words.join(" ")
}

fn drive(disk: &Disk) -> String {
    // A comma separates options in this notation; a doubled comma is literal.
    let path = disk.path.display().to_string().replace(',', ",,");
    let text = format!(
        "if=none,id={},format=raw,cache=unsafe,file={path}",
        disk.serial
    );
    let read_only = if disk.read_only { ",readonly=on" } else { "" };
    let snapshot = if disk.forgets { ",snapshot=on" } else { "" };
    let throttle = disk.mbps.map_or_else(String::new, |mbps| {
        format!(",throttling.bps-total={}", u64::from(mbps) * 1_000_000)
    });
    let requests = disk
        .iops
        .map_or_else(String::new, |iops| format!(",throttling.iops-total={iops}"));
    text + read_only + snapshot + &throttle + &requests
}

fn words(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

/// QEMU's version, as (major version, whole first line).
pub fn version(architecture: Architecture) -> Result<(u32, String)> {
    let output = tools::run(
        Command::new(tools::find(architecture.qemu())?).arg("--version"),
        REMEDY,
    )?;
    let line = String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    let major = parse_major(&line)
        .ok_or_else(|| LabError::environment(format!("QEMU reports no version: {line}"), REMEDY))?;
    Ok((major, line))
}

fn parse_major(line: &str) -> Option<u32> {
    line.split_once("version ")?
        .1
        .split('.')
        .next()?
        .parse()
        .ok()
}

/// True if this user may open the device. This does not show that a guest boots on it.
pub fn kvm_is_accessible() -> bool {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_ok()
}

/// Identifies this boot of the machine with this QEMU, as a key for the result of the probe.
pub fn probe_identity(version_line: &str) -> String {
    let boot = fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
    format!("{} {version_line}", boot.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(accelerator: Accelerator, qemu_major: u32) -> Machine {
        Machine {
            architecture: Architecture::Amd64,
            accelerator,
            qemu_major,
            memory_bytes: 768 << 20,
            cpus: 2,
            kernel: "/k/vmlinuz".into(),
            disks: vec![
                Disk::shared(Path::new("/i/a,b.img"), SERIAL_ROOT),
                Disk::private(Path::new("/r/d"), SERIAL_DATA, Some(40)),
            ],
            cmdline: vec!["lru_gen=off".into()],
            patches_text: false,
            clock: Clock::Host,
        }
    }

    fn value_of<'a>(arguments: &'a [String], flag: &str) -> Vec<&'a str> {
        arguments
            .windows(2)
            .filter(|pair| pair[0] == flag)
            .map(|pair| pair[1].as_str())
            .collect()
    }

    #[test]
    fn old_emulation_hides_the_broken_instruction_and_new_does_not() {
        let old = arguments(&machine(Accelerator::Tcg, 7));
        assert_eq!(value_of(&old, "-cpu"), ["max,la57=off,cx16=off"]);
        assert_eq!(value_of(&old, "-accel"), ["tcg,thread=multi"]);
        assert_eq!(
            value_of(&arguments(&machine(Accelerator::Tcg, 10)), "-cpu"),
            ["max"]
        );
        assert_eq!(
            value_of(&arguments(&machine(Accelerator::Kvm, 7)), "-cpu"),
            ["host"]
        );
    }

    #[test]
    fn a_guest_of_another_processor_has_its_board_and_console() {
        let arm = arguments(&Machine {
            architecture: Architecture::Arm64,
            ..machine(Accelerator::Tcg, 7)
        });
        assert_eq!(value_of(&arm, "-machine"), ["virt"]);
        assert_eq!(value_of(&arm, "-cpu"), ["max,pauth-impdef=on"]);
        let line = value_of(&arm, "-append")[0];
        assert!(line.contains(" console=ttyAMA0 "), "{line}");
    }

    #[test]
    fn a_guest_that_patches_its_text_runs_in_one_thread_where_that_matters() {
        for (major, accelerator) in [(7, "tcg,thread=single"), (10, "tcg,thread=multi")] {
            let patching = Machine {
                patches_text: true,
                ..machine(Accelerator::Tcg, major)
            };
            assert_eq!(value_of(&arguments(&patching), "-accel"), [accelerator]);
        }
    }

    #[test]
    fn a_clock_of_instructions_is_for_emulation_in_one_thread() {
        for (major, cpu) in [
            (7, "max,la57=off,cx16=off,erms=off,fsrm=off"),
            (10, "max,erms=off,fsrm=off"),
        ] {
            let counting = |accelerator| Machine {
                clock: Clock::Instructions {
                    shift: 1,
                    jumps: false,
                },
                ..machine(accelerator, major)
            };
            let emulated = arguments(&counting(Accelerator::Tcg));
            assert_eq!(value_of(&emulated, "-accel"), ["tcg,thread=single"]);
            assert_eq!(value_of(&emulated, "-cpu"), [cpu]);
            assert_eq!(
                value_of(&emulated, "-icount"),
                ["shift=1,align=off,sleep=on"]
            );
            let virtualized = arguments(&counting(Accelerator::Kvm));
            assert!(value_of(&virtualized, "-icount").is_empty());
        }
    }

    #[test]
    fn a_clock_that_jumps_leaves_the_root_disk_all_the_time_there_is() {
        let jumping = arguments(&Machine {
            clock: Clock::Instructions {
                shift: 0,
                jumps: true,
            },
            ..machine(Accelerator::Tcg, 7)
        });
        let counting = value_of(&jumping, "-icount");
        assert_eq!(counting, ["shift=0,align=off,sleep=off"]);
        let line = value_of(&jumping, "-append")[0];
        assert!(line.contains(" nvme_core.io_timeout="), "{line}");
    }

    #[test]
    fn size_and_kernel_reach_the_command_line() {
        let arguments = arguments(&machine(Accelerator::Tcg, 7));
        assert_eq!(value_of(&arguments, "-m"), ["768M"]);
        assert_eq!(value_of(&arguments, "-smp"), ["2"]);
        assert_eq!(value_of(&arguments, "-kernel"), ["/k/vmlinuz"]);
        let line = value_of(&arguments, "-append")[0];
        for word in "root=PARTUUID=4a555354-01 panic=-1 psi=1 lru_gen=off".split(' ') {
            assert!(
                line.split(' ').any(|present| present == word),
                "{word} in {line}"
            );
        }
    }

    #[test]
    fn a_word_of_the_callers_takes_the_place_of_ours() {
        let line = kernel_command_line("ttyS0", &["psi=0".into(), "cgroup_no_v1=named".into()]);
        let with = |key: &str| line.split(' ').filter(|word| word.starts_with(key)).count();
        assert_eq!((with("psi="), with("cgroup_no_v1=")), (1, 1), "{line}");
        assert!(line.ends_with(" psi=0 cgroup_no_v1=named"), "{line}");
    }

    #[test]
    fn only_the_data_disk_is_throttled_and_only_shared_images_are_read_only() {
        let arguments = arguments(&machine(Accelerator::Tcg, 7));
        let drives = value_of(&arguments, "-drive");
        assert!(drives[0].contains("file=/i/a,,b.img,readonly=on"));
        assert!(!drives[0].contains("throttling"));
        assert!(drives[1].ends_with("file=/r/d,throttling.bps-total=40000000"));
        assert_eq!(
            value_of(&arguments, "-device"),
            ["nvme,drive=root,serial=root", "nvme,drive=data,serial=data"]
        );
    }

    #[test]
    fn a_disk_that_forgets_leaves_its_image_alone_and_may_limit_requests() {
        let mut disk = Disk::private(Path::new("/r/d"), SERIAL_DATA, None);
        disk.iops = Some(300);
        disk.forgets = true;
        let drive = drive(&disk);
        assert!(drive.ends_with("file=/r/d,snapshot=on,throttling.iops-total=300"));
    }

    #[test]
    fn the_major_version_is_read() {
        assert_eq!(
            parse_major("QEMU emulator version 7.2.22 (Debian 1:7.2)"),
            Some(7)
        );
        assert_eq!(parse_major("QEMU emulator version 10.0.2"), Some(10));
        assert_eq!(parse_major("nonsense"), None);
    }
}
