//! Turns a bare kernel into a guest that can run containers: mounts, cgroups, LRU, scheduler, data file
//! system.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, ensure, Context, Result};
use rustix::mount::{mount, mount_remount, MountFlags};

use super::disks::GuestDisk;
use super::files::{self, mount_options};
use crate::protocol::{Facts, Lru, Scheduler};

pub const CGROUP: &str = "/sys/fs/cgroup";

/// The driver keeps all its files in the guest below this directory, on tmpfs.
pub const STATE: &str = "/run/justitia-lab";

pub const TOOLS: &str = "/opt/lab";

/// Controllers for the containers.
const CONTROLLERS: [&str; 4] = ["memory", "io", "pids", "cpu"];

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

const LRU_GEN: &str = "/sys/kernel/mm/lru_gen/enabled";

/// Mounts what an init has to mount; existing mounts are kept.
pub fn mount_all() -> Result<()> {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount_unless_mounted(kind, target, "")?;
    }
    for target in ["/run", "/tmp"] {
        mount_unless_mounted("tmpfs", target, "mode=755")?;
    }
    mount_unless_mounted("cgroup2", CGROUP, "nsdelegate,memory_recursiveprot")?;
    let options = mount_options(&files::read(Path::new("/proc/self/mounts"))?, CGROUP);
    if !options.is_some_and(|o| o.contains("memory_recursiveprot")) {
        let data = c"nsdelegate,memory_recursiveprot";
        mount_remount(CGROUP, MountFlags::empty(), data)
            .context("cannot remount cgroup2 with memory_recursiveprot")?;
    }
    fs::create_dir_all(data_dir()).context("cannot make the state directory")
}

pub fn data_dir() -> PathBuf {
    Path::new(STATE).join("data")
}

fn mount_unless_mounted(kind: &str, target: &str, data: &str) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if mount_options(&mounts, target).is_some() {
        return Ok(());
    }
    let data = std::ffi::CString::new(data)?;
    match mount(kind, target, kind, MountFlags::empty(), data.as_c_str()) {
        // Already mounted by an earlier program, before /proc could show it.
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(e) => Err(e).with_context(|| format!("cannot mount {kind} on {target}")),
    }
}

/// Creates a cgroup and its ancestors, with all controllers enabled for their children.
pub fn make_group(path: &str) -> Result<PathBuf> {
    let mut dir = PathBuf::from(CGROUP);
    enable_controllers(&dir)?;
    for part in path.split('/').filter(|p| !p.is_empty()) {
        dir.push(part);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        enable_controllers(&dir)?;
    }
    Ok(dir)
}

fn enable_controllers(dir: &Path) -> Result<()> {
    for controller in CONTROLLERS {
        files::write(
            &dir.join("cgroup.subtree_control"),
            &format!("+{controller}"),
        )?;
    }
    Ok(())
}

/// Switches the LRU, or leaves it as it is; returns what the kernel reports afterwards.
pub fn set_lru(lru: Lru) -> Result<String> {
    let path = Path::new(LRU_GEN);
    let generations = match lru {
        Lru::Kernel => None,
        Lru::Classic => Some(false),
        Lru::Mglru => Some(true),
    };
    if !path.exists() {
        ensure!(
            generations != Some(true),
            "this kernel has no multi-generational LRU ({LRU_GEN})"
        );
        return Ok("classic (this kernel has no lru_gen)".into());
    }
    if let Some(on) = generations {
        files::write(path, if on { "y" } else { "n" })?;
    }
    let value = files::read(path)?;
    let on = value != "0x0000";
    ensure!(
        generations.is_none_or(|wanted| wanted == on),
        "{LRU_GEN} reads {value} after asking for {lru:?}"
    );
    let name = if on { "mglru" } else { "classic" };
    Ok(format!("{name} (lru_gen {value})"))
}

/// Disables transparent huge pages; returns what the kernel reports afterwards. With `always`, Debian's
/// default, half of the page cache was gone and up to 180 of 592 MB free whenever eight sysbench processes
/// started at once; with `never` this does not happen.
pub fn without_huge_pages() -> Result<String> {
    let path = Path::new(HUGE_PAGES);
    if !path.exists() {
        return Ok("none (this kernel has no transparent huge pages)".into());
    }
    files::write(path, "never")?;
    files::read(path)
}

/// Sets the scheduler of the disk, or of those below the volume, loading BFQ if it is a module; returns the
/// active one.
pub fn set_scheduler(disk: &GuestDisk, scheduler: Scheduler) -> Result<String> {
    let name = scheduler.name();
    for queue in &disk.queues {
        let path = Path::new("/sys/block").join(queue).join("queue/scheduler");
        if !files::read(&path)?.contains(&name) {
            load_module(&name, &[])?;
        }
        files::write(&path, &name)?;
        let list = files::read(&path)?;
        ensure!(
            list.split(['[', ']']).nth(1) == Some(&name),
            "the scheduler of {queue} is {list:?}, not {name}"
        );
    }
    Ok(name)
}

/// Loads a module from the tools disk, after its dependencies: `modules/order` lists all modules there as
/// `NN-name.ko`, each after its dependencies. The parameters are for the named module.
pub fn load_module(name: &str, parameters: &[&str]) -> Result<()> {
    let dir = Path::new(TOOLS).join("modules");
    let order = files::read(&dir.join("order"))?;
    // A module that is not there is built in: the host has looked for both.
    let Some(last) = order.lines().position(|file| module_name(file) == name) else {
        return Ok(());
    };
    for file in order.lines().take(last + 1) {
        if !Path::new("/sys/module").join(module_name(file)).exists() {
            let of_this = if module_name(file) == name {
                parameters
            } else {
                &[]
            };
            run(Command::new("insmod").arg(dir.join(file)).args(of_this))?;
        }
    }
    Ok(())
}

/// `03-some-module.ko` as /sys/module names it.
fn module_name(file: &str) -> String {
    let name = file.split_once('-').map_or(file, |(_, rest)| rest);
    name.split('.').next().unwrap_or(name).replace('-', "_")
}

/// Creates the data file system and mounts it; returns the options in force.
pub fn make_data(disk: &GuestDisk, options: &str) -> Result<String> {
    run(Command::new("mkfs.ext4")
        .args("-q -F -b 4096 -E lazy_itable_init=0,assume_storage_prezeroed=1".split(' '))
        .arg(&disk.node))?;
    mount_data(disk, options)
}

/// Mounts the existing data file system on the disk; returns the options in force.
pub fn mount_data(disk: &GuestDisk, options: &str) -> Result<String> {
    let target = data_dir();
    let data = std::ffi::CString::new(options)?;
    mount(
        &disk.node,
        &target,
        "ext4",
        MountFlags::empty(),
        data.as_c_str(),
    )
    .with_context(|| format!("cannot mount {} with {options:?}", disk.node.display()))?;
    let mounts = files::read(Path::new("/proc/self/mounts"))?;
    mount_options(&mounts, &target.to_string_lossy()).context("the data disk is not mounted")
}

/// Writes all dirty pages back and empties the page cache.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    files::write(Path::new("/proc/sys/vm/drop_caches"), "3")
}

/// Runs a program to completion; its output is part of the error.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    bail!(
        "{name} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&text).trim()
    )
}

pub fn kernel() -> String {
    let name = rustix::system::uname();
    name.release().to_string_lossy().into_owned()
}

pub fn facts() -> Result<Facts> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let facts = [
        ("mem_total_bytes", mem_total()?.to_string()),
        ("cpus", cpus.to_string()),
    ];
    let program = Path::new(TOOLS).join("justitia");
    let digest = program.exists().then(|| digest(&program)).transpose()?;
    let digest = digest.map(|digest| ("justitia_sha256", digest));
    let facts = facts.into_iter().chain(digest);
    Ok(facts
        .map(|(name, value)| (name.to_owned(), value))
        .collect())
}

/// SHA-256 of a file: tells which build of a program ran.
fn digest(path: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(path).output()?;
    ensure!(output.status.success(), "cannot read {}", path.display());
    let text = String::from_utf8(output.stdout)?;
    let digest = text.split_whitespace().next();
    Ok(digest.unwrap_or_default().to_owned())
}

pub fn mem_total() -> Result<u64> {
    let meminfo = files::read(Path::new("/proc/meminfo"))?;
    files::meminfo_bytes(&meminfo, "MemTotal").context("no MemTotal in meminfo")
}

/// The kernel's settings that matter to page cache.
pub fn vm_settings() -> impl Iterator<Item = (String, String)> {
    let knobs = ["dirty_ratio", "dirty_background_ratio", "swappiness"].into_iter();
    knobs.filter_map(|knob| {
        let value = files::read(&Path::new("/proc/sys/vm").join(knob)).ok()?;
        Some((format!("vm.{knob}"), value))
    })
}

/// Makes a command join a cgroup before it becomes its program.
pub fn enter_group(command: &mut Command, group: &Path) -> Result<()> {
    let members = File::options()
        .write(true)
        .open(group.join("cgroup.procs"))
        .with_context(|| format!("cannot join {}", group.display()))?;
    // SAFETY: between fork and exec only one write(2) on an open descriptor runs, which is
    // async-signal-safe; nothing is allocated on the success path.
    unsafe {
        command.pre_exec(move || (&members).write_all(b"0"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_files_give_module_names() {
        assert_eq!(module_name("00-bfq.ko"), "bfq");
        assert_eq!(module_name("12-async-tx.ko"), "async_tx");
    }
}
