//! Builds the command or setting that changes a knob, for the group's owner: Docker, Podman, Kubernetes or
//! systemd, or else a write to the file itself.
//!
//! Sizes are rounded up to MiB: the kernel, systemd, Docker and Podman understand `512M`.

use justitia_cgroup::File;
use justitia_discover::{kind, Kind};
use justitia_policy::units::{Bytes, Limit};

use crate::facts::{Facts, GroupFacts};

/// The command or setting that sets a memory knob of a group.
pub(crate) fn set(facts: &Facts, group: &GroupFacts, file: File, bytes: Bytes) -> String {
    let size = in_mib(bytes);
    let owners = match pod(&group.path, file, &size) {
        Some(setting) => Some(setting),
        // The kubelet owns the slices above its pods and has no such settings for them.
        None if group.path.contains("kubepods") => None,
        None => of_owner(group, file, bytes),
    };
    owners.unwrap_or_else(|| write(facts, group, file, &size))
}

/// The setting of a pod or of a container of a pod; `None`: it is neither, or Kubernetes knows no such setting.
fn pod(path: &str, file: File, size: &str) -> Option<String> {
    let named = kind::of_path(path).filter(|_| path.contains("kubepods"))?;
    let of_pod = matches!(named.kind, Kind::Pod | Kind::Container);
    match file {
        File::MemoryMax if of_pod => Some(format!("in the pod's spec: resources.limits.memory: {size}i")),
        File::MemoryMin | File::MemoryLow | File::MemoryHigh if of_pod => Some(format!(
            "in the pod's spec: resources.requests.memory: {size}i, with the kubelet's feature MemoryQoS"
        )),
        _ => None,
    }
}

/// The command or setting of the group's owner; `None`: it has no owner, or the owner knows no such knob.
fn of_owner(group: &GroupFacts, file: File, bytes: Bytes) -> Option<String> {
    let (path, size) = (group.path.as_str(), in_mib(bytes));
    let (above, last) = path.rsplit_once('/')?;
    if is_managed_apart(above) {
        return None;
    }
    let scope = last.strip_suffix(".scope").unwrap_or(last);
    let engines = [("docker-", "docker"), ("libpod-", "podman")];
    let named = engines
        .into_iter()
        .find_map(|(prefix, program)| Some((program, scope.strip_prefix(prefix)?)));
    let below = above.ends_with("/docker").then_some(("docker", last));
    if let Some((program, id)) = named.or(below) {
        let option = match file {
            File::MemoryMax => "--memory",
            File::MemoryLow => "--memory-reservation",
            _ => return None,
        };
        // The first twelve digits of a container's ID, as the engines print it.
        let id = quoted(id.get(..12).unwrap_or(id));
        let swap = match (file, group.swap_max.clone().ok().flatten()) {
            (File::MemoryMax, Some(swap)) => with_swap(bytes, swap),
            _ => String::new(),
        };
        return Some(format!("{program} update {option} {size}{swap} {id}"));
    }
    let (unit, property) = (quoted(unit(path)?), property(file)?);
    Some(format!("systemctl set-property {unit} {property}={size}"))
}

fn in_mib(bytes: Bytes) -> String {
    format!("{}M", bytes.0.div_ceil(1 << 20).max(1))
}

/// The option that keeps a container's swap. The engines count memory and swap together, and refuse a limit of memory
/// above that of both.
fn with_swap(memory: Bytes, swap: Limit) -> String {
    match swap {
        Limit::Bytes(swap) => format!(" --memory-swap {}", in_mib(memory + swap)),
        Limit::Max => " --memory-swap -1".to_owned(),
    }
}

/// The command that writes a value to a file of a group, whoever owns it.
pub(crate) fn write(facts: &Facts, group: &GroupFacts, file: File, value: &str) -> String {
    let path = file_path(facts, &group.path, file);
    format!("echo {value} > {path}")
}

/// Path of a file of a group, quoted for a shell.
pub(crate) fn file_path(facts: &Facts, group: &str, file: File) -> String {
    let group = group.trim_end_matches('/');
    quoted(&format!("{}{group}/{}", facts.mount_point, file.name()))
}

/// A path or a name as one word of a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@+".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The unit of the host's system manager that a group is, by the last component of its path.
pub(crate) fn unit(path: &str) -> Option<&str> {
    let (above, last) = path.rsplit_once('/')?;
    if is_managed_apart(above) {
        return None;
    }
    let is_unit = [".service", ".slice", ".scope"]
        .iter()
        .any(|ending| last.ends_with(ending));
    is_unit.then_some(last)
}

/// True for a user's service manager, a container and a machine, and all below: what manages groups there has units
/// and containers of the same names as the host.
fn is_managed_apart(path: &str) -> bool {
    let up_to = |(end, _)| &path[..end];
    let mut paths = path.match_indices('/').map(up_to).chain([path]);
    paths.any(|path| {
        let last = path.rsplit('/').next().unwrap_or_default();
        let named = kind::of_path(path).map(|named| named.kind);
        last.starts_with("user@") || matches!(named, Some(Kind::Container | Kind::Vm))
    })
}

fn property(file: File) -> Option<&'static str> {
    match file {
        File::MemoryMin => Some("MemoryMin"),
        File::MemoryLow => Some("MemoryLow"),
        File::MemoryHigh => Some("MemoryHigh"),
        File::MemoryMax => Some("MemoryMax"),
        File::MemorySwapMax => Some("MemorySwapMax"),
        _ => None,
    }
}
