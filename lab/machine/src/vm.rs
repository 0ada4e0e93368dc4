//! One boot of a guest: prepares its inputs, hands it a job, follows it, collects its report.
//!
//! Works for any user. Preparation (kernel, root image, tools image, choice of accelerator) happens under the
//! cache's lock and costs only checksums when everything is cached. The disks of a run are its own and are
//! removed with it.
//!
//! A panic of a guest is a failure of the machine (emulation has rare faults of its own), so the guest is
//! started once more and [`GuestOutput::retries`] records it. A second panic, or a guest that exceeds its
//! time limit, is an environment error that names the console's log.
//!
//! Conventions of the console: a line that starts with [`PROGRESS_PREFIX`] goes to the caller. A line that
//! starts with [`FAILURE_PREFIX`] says why the guest program gave up, and becomes the error when no report
//! follows.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::architecture::Architecture;
use crate::cache::{Cache, LockedCache};
use crate::console::{watch, Ending};
use crate::error::{LabError, OrCannot, Result, Say};
use crate::job_disk;
use crate::kernels::{Kernel, Wanted};
use crate::qemu::{
    self, Accelerator, Clock, Disk, Machine, SERIAL_DATA, SERIAL_JOB, SERIAL_ROOT, SERIAL_TOOLS,
};
use crate::{image, tools};

/// A console line with this prefix tells the caller what the guest is doing.
pub const PROGRESS_PREFIX: &str = "@lab ";

/// A console line with this prefix says in one line why the guest program gave up.
pub const FAILURE_PREFIX: &str = "@lab-error ";

/// Printed by the guest's init as its first act.
const INIT_IS_UP: &str = "lab-init: up";

/// A guest that does not reach its init on KVM within this time does not run on KVM.
const KVM_PROBE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct VmSpec {
    pub architecture: Architecture,
    pub kernel: Wanted,
    pub memory_bytes: u64,
    pub cpus: u32,
    /// Limit of the data disk, reads and writes together, in 10^6 bytes per second.
    pub disk_mbps: Option<u32>,
    pub disk_iops: Option<u32>,
    /// Size of the empty data disk in bytes; 0 for none.
    pub data_bytes: u64,
    /// The source of the data disk and its fate.
    pub data: DataDisk,
    /// Programs put into `/opt/lab`; the guest runs the first one.
    pub binaries: Vec<PathBuf>,
    /// Kernel modules put into `/opt/lab/modules`, with their dependencies.
    pub modules: Vec<String>,
    pub release: &'static str,
    /// Debian packages in the root besides [`image::BASE_PACKAGES`].
    pub extra_packages: Vec<String>,
    /// Limit for the whole boot, from power-on to power-off.
    pub timeout: Duration,
    pub console_log: PathBuf,
    pub cmdline: Vec<String>,
    pub patches_text: bool,
    pub clock: Clock,
}

impl VmSpec {
    /// A guest with two CPUs and 1 GiB on the host's clock, without a data disk and its limits.
    pub fn new(kernel: impl Into<Wanted>, binaries: Vec<PathBuf>, timeout: Duration) -> Self {
        Self {
            architecture: Architecture::default(),
            kernel: kernel.into(),
            memory_bytes: 1 << 30,
            cpus: 2,
            disk_mbps: None,
            disk_iops: None,
            data_bytes: 0,
            data: DataDisk::Scratch,
            binaries,
            modules: Vec::new(),
            release: image::RELEASE,
            extra_packages: Vec::new(),
            timeout,
            console_log: PathBuf::new(),
            cmdline: Vec::new(),
            patches_text: false,
            clock: Clock::Host,
        }
    }
}

/// The source of a guest's data disk and its fate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DataDisk {
    /// Empty; removed with the run.
    #[default]
    Scratch,
    /// Empty; created at this path and kept.
    MadeAt(PathBuf),
    /// This image; writes of the guest are thrown away.
    From(PathBuf),
}

#[derive(Debug, Clone, PartialEq)]
pub struct GuestOutput {
    pub report: Vec<u8>,
    /// The console of the boot that wrote it.
    pub console_log: PathBuf,
    /// Boots that panicked before the one that succeeded.
    pub retries: u32,
    pub accelerator: Accelerator,
    /// `uname -r` of the kernel booted.
    pub kernel_release: String,
    /// First line of `qemu --version`.
    pub qemu_version: String,
}

#[derive(Debug)]
pub struct Prepared {
    cache: Cache,
    kernel: Kernel,
    kernel_image: PathBuf,
    root: PathBuf,
    tools: PathBuf,
    accelerator: Accelerator,
    qemu_major: u32,
    qemu_version: String,
}

/// Fetches and builds what `spec` needs, or finds it in the cache.
pub fn prepare(spec: &VmSpec, progress: &mut Say) -> Result<Prepared> {
    tools::check_all()?;
    let architecture = spec.architecture;
    let (qemu_major, qemu_version) = qemu::version(architecture)?;
    let cache = Cache::open()?.lock(progress)?;
    let kernel = spec.kernel.obtain(&cache, architecture, progress)?;
    let kernel_image = kernel.image()?;
    let root = image::root_image(
        &cache,
        architecture,
        spec.release,
        &spec.extra_packages,
        progress,
    )?;
    let tools = image::tools_image(&cache, &kernel, &spec.binaries, &spec.modules)?;
    let mut prepared = Prepared {
        cache: cache.clone(),
        kernel,
        kernel_image,
        root,
        tools,
        accelerator: Accelerator::Tcg,
        qemu_major,
        qemu_version,
    };
    // Only the emulator can count instructions, and only it can run another architecture than the host's.
    if spec.clock == Clock::Host && architecture == Architecture::default() {
        prepared.accelerator = choose_accelerator(&prepared, &cache, progress)?;
    }
    Ok(prepared)
}

/// Boots a guest with a job and returns its report. An environment error (exit code 69) if something is missing,
/// or the guest panicked twice or exceeded its time limit. A failure (1) if the guest program gave up.
pub fn run_guest(spec: &VmSpec, job: &[u8], progress: &mut Say) -> Result<GuestOutput> {
    let prepared = prepare(spec, progress)?;
    let mut retries = 0;
    let report = loop {
        match boot(&prepared, spec, job, progress)? {
            Outcome::Reported(report) => break report,
            Outcome::Panicked(line) if retries > 0 => {
                return Err(LabError::environment(
                    format!("the guest panicked twice: {line}"),
                    format!(
                        "read {}, or choose another kernel series",
                        spec.console_log.display()
                    ),
                ))
            }
            Outcome::Panicked(line) => {
                retries += 1;
                let kept = spec.console_log.with_extension("panic.log");
                fs::rename(&spec.console_log, &kept).or_cannot("rename", &spec.console_log)?;
                progress(&format!(
                    "the guest panicked ({line}); trying once more, log kept in {}",
                    kept.display()
                ));
            }
        }
    };
    Ok(GuestOutput {
        report,
        console_log: spec.console_log.clone(),
        retries,
        accelerator: prepared.accelerator,
        kernel_release: prepared.kernel.release,
        qemu_version: prepared.qemu_version,
    })
}

enum Outcome {
    Reported(Vec<u8>),
    Panicked(String),
}

fn boot(prepared: &Prepared, spec: &VmSpec, job: &[u8], progress: &mut Say) -> Result<Outcome> {
    if let Some(dir) = spec.console_log.parent() {
        fs::create_dir_all(dir).or_cannot("create", dir)?;
    }
    let run = prepared.cache.run_dir()?;
    let job_path = run.path().join("job");
    job_disk::create(&job_path, job).or_cannot("write", &job_path)?;
    let machine = machine(prepared, spec, run.path(), &job_path)?;
    let mut complaint = None;
    let ending = watch(
        Command::new(tools::find(machine.architecture.qemu())?).args(qemu::arguments(&machine)),
        &spec.console_log,
        spec.timeout,
        &mut |line| {
            if let Some(message) = line.strip_prefix(PROGRESS_PREFIX) {
                progress(message);
            } else if let Some(message) = line.strip_prefix(FAILURE_PREFIX) {
                complaint = Some(message.to_owned());
            }
            false
        },
    )?;
    let log = spec.console_log.display();
    match ending {
        Ending::PoweredOff | Ending::Stopped => {}
        Ending::Panicked(line) => return Ok(Outcome::Panicked(line)),
        Ending::TimedOut => {
            let limit = spec.timeout.as_secs();
            return Err(LabError::environment(
                format!("the guest did not finish within {limit} s"),
                format!("read {log}; a machine with less load or with KVM is faster"),
            ));
        }
        Ending::QemuFailed(message) => {
            return Err(LabError::environment(
                format!("QEMU failed: {message}"),
                format!("read {log}; reinstall QEMU's packages if they are damaged"),
            ));
        }
    }
    let report = File::open(&job_path)
        .and_then(|file| job_disk::read_message(&file, job_disk::REPORT_OFFSET))
        .or_cannot("read", &job_path)?;
    match report {
        Some(report) => Ok(Outcome::Reported(report)),
        None => Err(LabError::failed(
            complaint.unwrap_or_else(|| "the guest ended without a report".to_owned()),
            format!("read {log}"),
        )),
    }
}

/// The machine of a run, with a fresh data disk.
fn machine(prepared: &Prepared, spec: &VmSpec, dir: &Path, job_path: &Path) -> Result<Machine> {
    let mut disks = vec![
        Disk::shared(&prepared.root, SERIAL_ROOT),
        Disk::shared(&prepared.tools, SERIAL_TOOLS),
        Disk::private(job_path, SERIAL_JOB, None),
    ];
    let data = match &spec.data {
        DataDisk::Scratch if spec.data_bytes == 0 => None,
        DataDisk::Scratch => Some(empty(dir.join("data"), spec.data_bytes)?),
        DataDisk::MadeAt(path) => Some(empty(path.clone(), spec.data_bytes)?),
        DataDisk::From(path) => Some(path.clone()),
    };
    if let Some(path) = data {
        disks.push(Disk {
            iops: spec.disk_iops,
            forgets: matches!(spec.data, DataDisk::From(_)),
            ..Disk::private(&path, SERIAL_DATA, spec.disk_mbps)
        });
    }
    Ok(Machine {
        architecture: spec.architecture,
        accelerator: prepared.accelerator,
        qemu_major: prepared.qemu_major,
        memory_bytes: spec.memory_bytes,
        cpus: spec.cpus,
        kernel: prepared.kernel_image.clone(),
        disks,
        cmdline: spec.cmdline.clone(),
        patches_text: spec.patches_text,
        clock: spec.clock,
    })
}

/// A sparse file of this size.
fn empty(path: PathBuf, bytes: u64) -> Result<PathBuf> {
    File::create(&path)
        .and_then(|file| file.set_len(bytes))
        .or_cannot("create", &path)?;
    Ok(path)
}

/// Chooses KVM only if this kernel actually reaches its init on it. The answer is kept until the machine
/// reboots or QEMU changes.
fn choose_accelerator(
    prepared: &Prepared,
    cache: &LockedCache,
    progress: &mut Say,
) -> Result<Accelerator> {
    if !qemu::kvm_is_accessible() {
        return Ok(Accelerator::Tcg);
    }
    let identity = qemu::probe_identity(&prepared.qemu_version);
    let memory = cache.path(format!("kvm-{}", prepared.kernel.release));
    let known = fs::read_to_string(&memory).unwrap_or_default();
    match known.strip_prefix(&identity).map(str::trim) {
        Some("kvm") => return Ok(Accelerator::Kvm),
        Some("tcg") => return Ok(Accelerator::Tcg),
        _ => {}
    }
    progress("testing whether a stock kernel boots on KVM");
    let run = cache.run_dir()?;
    let machine = Machine {
        architecture: Architecture::default(),
        accelerator: Accelerator::Kvm,
        qemu_major: prepared.qemu_major,
        memory_bytes: 512 << 20,
        cpus: 2,
        kernel: prepared.kernel_image.clone(),
        disks: vec![Disk::shared(&prepared.root, SERIAL_ROOT)],
        cmdline: Vec::new(),
        patches_text: false,
        clock: Clock::Host,
    };
    let mut is_up = false;
    watch(
        Command::new(tools::find(machine.architecture.qemu())?).args(qemu::arguments(&machine)),
        &run.path().join("console.log"),
        KVM_PROBE_TIMEOUT,
        &mut |line| {
            is_up |= line == INIT_IS_UP;
            is_up
        },
    )?;
    let accelerator = if is_up {
        Accelerator::Kvm
    } else {
        Accelerator::Tcg
    };
    fs::write(&memory, format!("{identity} {}", accelerator.name())).or_cannot("write", &memory)?;
    Ok(accelerator)
}
