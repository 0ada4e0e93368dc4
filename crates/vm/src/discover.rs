//! Finds processes that are virtual machines, and the images they hold open.
//!
//! A machine is a process that runs one of QEMU's programs (`qemu-system-*`, `qemu-kvm`, `kvm`, and
//! `qemu-storage-daemon`, which serves disks for it). Its images are the block devices and regular files on
//! disks that it holds open for reading, except the guest's memory. They are found by the process's
//! descriptors, not by its command line. An image whose descriptors are all `O_DIRECT` (`cache=none`)
//! bypasses the page cache and is left alone.
//!
//! The cgroup says who runs the machine: libvirt and machined (`machine.slice`, `machine-*.scope`), Proxmox
//! VE (`qemu.slice`), Kata Containers, a container, or none of these.

use std::collections::BTreeMap;
use std::path::Path;

use justitia_cgroup::Processes;
use justitia_discover::kind::{of_path, Kind};
use serde::Serialize;

use crate::image::{Identity, Image};
use crate::Error;

/// A virtual machine.
#[derive(Debug)]
pub struct Machine {
    pub pid: u32,
    /// Start time of the process, ticks since boot: it tells apart processes with the same `pid`.
    pub started: u64,
    pub name: String,
    pub manager: Manager,
    /// Path of its cgroup.
    pub group: Option<String>,
    /// Several machines may share an image.
    pub images: Vec<Held>,
}

/// An image that a machine holds open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub identity: Identity,
    /// Its path as the machine sees it.
    pub path: String,
    /// The machine can write it.
    pub writable: bool,
    /// All of the machine's descriptors are `O_DIRECT`.
    pub direct: bool,
}

/// The software that runs a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    /// libvirt, machined or Proxmox VE.
    Machine,
    /// Kata Containers.
    Kata,
    /// A container or pod that runs QEMU itself.
    Container,
    /// A service, a shell, anything else.
    Plain,
}

#[derive(Debug, Default)]
pub struct Found {
    /// In order of process IDs.
    pub machines: Vec<Machine>,
    /// The new images of all machines, without those that bypass the page cache.
    pub images: BTreeMap<Identity, Image>,
}

/// Finds all machines. `Found::images` leaves out the images that `known` accepts.
///
/// # Errors
/// The processes cannot be listed, or a machine's process may not be inspected.
pub fn find(processes: &Processes, known: &dyn Fn(Identity) -> bool) -> Result<Found, Error> {
    let pids = processes
        .pids()
        .map_err(|error| Error::io("list", Path::new("the processes"), &error))?;
    let mut found = Found::default();
    for pid in pids {
        let Some(program) = processes.program(pid) else {
            // A kernel thread, a process that ended, or another user's process: its arguments are readable.
            let arguments = processes.arguments(pid).unwrap_or_default();
            let name = arguments.first().map(Path::new).and_then(Path::file_name);
            if name.is_some_and(|name| is_qemu(&name.to_string_lossy())) {
                return Err(Error::environment(
                    format!("process {pid} runs a machine and cannot be inspected"),
                    "run it as root",
                ));
            }
            continue;
        };
        let program = program.file_name().unwrap_or_default().to_string_lossy();
        if !is_qemu(&program) {
            continue;
        }
        if let Some(machine) = look_at(processes, pid, known, &mut found.images) {
            found.machines.push(machine);
        }
    }
    Ok(found)
}

/// True if a program of this name runs or serves virtual machines. After an upgrade of its package a running
/// one is called `qemu-system-x86_64 (deleted)`.
fn is_qemu(program: &str) -> bool {
    let program = program.strip_suffix(" (deleted)").unwrap_or(program);
    program.starts_with("qemu-system-")
        || ["qemu-kvm", "kvm", "qemu-storage-daemon"].contains(&program)
}

fn look_at(
    processes: &Processes,
    pid: u32,
    known: &dyn Fn(Identity) -> bool,
    images: &mut BTreeMap<Identity, Image>,
) -> Option<Machine> {
    let started = processes.started(pid)?;
    let arguments = processes.arguments(pid)?;
    let group = processes.group(pid);
    let mut held: Vec<Held> = Vec::new();
    for open in processes.open_files(pid).unwrap_or_default() {
        if !open.info.reads() || !open.path.starts_with('/') {
            continue;
        }
        let Ok(Some(mut image)) = Image::open(processes, pid, &open) else {
            continue;
        };
        let identity = image.identity;
        let direct = open.info.direct();
        match held.iter_mut().find(|held| held.identity == identity) {
            Some(held) => {
                held.direct &= direct;
                held.writable |= open.info.writes();
            }
            None if is_memory(&arguments, &open.path) => continue,
            None => held.push(Held {
                identity,
                path: open.path.clone(),
                writable: open.info.writes(),
                direct,
            }),
        }
        if !direct && !known(identity) && !images.contains_key(&identity) {
            image.read_format();
            images.insert(identity, image);
        }
    }
    // The process ended meanwhile, and its process ID may have been reused.
    if processes.started(pid) != Some(started) {
        return None;
    }
    Some(Machine {
        pid,
        started,
        name: name_of(&arguments, group.as_deref(), pid),
        manager: manager_of(&arguments, group.as_deref()),
        group,
        images: held,
    })
}

/// True if the command line names this file as the guest's memory (`mem-path=`, `-mem-path`).
fn is_memory(arguments: &[String], path: &str) -> bool {
    let options = arguments.iter().flat_map(|argument| argument.split(','));
    let dirs = options
        .filter_map(|option| option.strip_prefix("mem-path="))
        .chain(after(arguments, "-mem-path"));
    dirs.filter(|dir| !dir.is_empty())
        .any(|dir| path == dir || path.starts_with(&format!("{}/", dir.trim_end_matches('/'))))
}

fn after<'a>(arguments: &'a [String], flag: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = arguments.windows(2).filter(move |pair| pair[0] == flag);
    pairs.map(|pair| pair[1].as_str())
}

/// The name in the command line, or else the cgroup's, or else one made from the process ID.
fn name_of(arguments: &[String], group: Option<&str>, pid: u32) -> String {
    let named = after(arguments, "-name").find_map(|name| {
        let mut parts = name.split(',');
        let guest = name.split(',').find_map(|part| part.strip_prefix("guest="));
        guest.or_else(|| parts.next().filter(|part| !part.contains('=')))
    });
    let named = named.filter(|name| !name.is_empty()).map(str::to_owned);
    named
        .or_else(|| Some(machine_above(group?)?.name))
        .unwrap_or_else(|| format!("qemu-{pid}"))
}

/// The nearest cgroup, from this one upward, whose name identifies a machine or container: libvirt puts QEMU
/// some levels below its machine's scope.
fn machine_above(group: &str) -> Option<justitia_discover::kind::Named> {
    let mut group = group;
    while !group.is_empty() {
        let found = of_path(group).filter(|named| named.kind != Kind::Service);
        if found.is_some() {
            return found;
        }
        group = &group[..group.rfind('/')?];
    }
    None
}

fn manager_of(arguments: &[String], group: Option<&str>) -> Manager {
    let kata = group.is_some_and(|group| group.contains("kata"))
        || after(arguments, "-name").any(|name| name.starts_with("sandbox-"));
    match group.and_then(machine_above).map(|named| named.kind) {
        _ if kata => Manager::Kata,
        Some(Kind::Vm) => Manager::Machine,
        Some(Kind::Container | Kind::Pod) => Manager::Container,
        _ => Manager::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_machine_is_called_what_its_command_line_or_its_cgroup_says() {
        let scope = Some("/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/libvirt/emulator");
        let named = |line: &str, group| name_of(&words(line), group, 7);
        assert_eq!(named("qemu -name guest=db,debug-threads=on", scope), "db");
        assert_eq!(named("qemu -name plain", None), "plain");
        assert_eq!(named("qemu -name debug-threads=on", scope), "web");
        assert_eq!(named("qemu -m 1G", scope), "web");
        assert_eq!(named("qemu -m 1G", Some("/user.slice")), "qemu-7");
        assert_eq!(named("qemu -name", None), "qemu-7");
    }

    #[test]
    fn a_machines_manager_is_known_by_its_cgroup_or_name() {
        let by = |line: &str, group| manager_of(&words(line), Some(group));
        let scope = "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/libvirt/emulator";
        assert_eq!(by("qemu", scope), Manager::Machine);
        assert_eq!(by("qemu", "/qemu.slice/100.scope"), Manager::Machine);
        assert_eq!(by("qemu -name sandbox-12", "/x"), Manager::Kata);
        assert_eq!(by("qemu", "/kata_overhead/12"), Manager::Kata);
        assert_eq!(by("qemu", "/user.slice/session-1.scope"), Manager::Plain);
        assert_eq!(manager_of(&words("qemu"), None), Manager::Plain);
    }

    #[test]
    fn the_guests_memory_is_no_image() {
        let line =
            words("qemu -object memory-backend-file,mem-path=/mem/vm,size=1G -mem-path /huge/");
        assert!(is_memory(&line, "/mem/vm"));
        assert!(is_memory(&line, "/mem/vm/qemu_back_mem.x (deleted)"));
        assert!(is_memory(&line, "/huge/a"));
        assert!(!is_memory(&line, "/mem/vm.qcow2"));
    }

    #[test]
    fn a_machine_that_may_not_be_looked_at_is_not_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let process = dir.path().join("77");
        std::fs::create_dir(&process).unwrap();
        std::fs::write(
            process.join("cmdline"),
            "/usr/bin/qemu-system-x86_64\0-nodefaults\0",
        )
        .unwrap();
        let processes = Processes::at(dir.path());
        let error = find(&processes, &|_| false).unwrap_err();
        assert!(error.to_string().contains("process 77"), "{error}");
        // A process that ended has no arguments.
        std::fs::write(process.join("cmdline"), "").unwrap();
        assert!(find(&processes, &|_| false).unwrap().machines.is_empty());
    }

    #[test]
    fn qemus_programs_are_known_by_name() {
        for program in [
            "qemu-system-x86_64",
            "qemu-kvm",
            "qemu-system-arm (deleted)",
        ] {
            assert!(is_qemu(program));
        }
        for program in ["qemu-img", "qemu-ga", "kvmtool", ""] {
            assert!(!is_qemu(program), "{program}");
        }
    }
}
