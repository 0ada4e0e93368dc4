//! Builds the command or setting that changes a knob, for the group's owner: Docker, Podman, Kubernetes or
//! systemd, or else a write to the file itself.
//!
//! Sizes are rounded up to MiB: the kernel, systemd, Docker and Podman understand `512M`.

use justitia_cgroup::File;
use justitia_discover::{kind, Kind};
use justitia_policy::units::Bytes;

use crate::facts::{Facts, GroupFacts};

/// The command or setting that sets a memory knob of a group.
pub(crate) fn set(facts: &Facts, group: &GroupFacts, file: File, bytes: Bytes) -> String {
    let size = format!("{}M", bytes.0.div_ceil(1 << 20).max(1));
    let of_owner = match owner(&group.path) {
        Owner::Engine { program, id } => {
            let option = match file {
                File::MemoryMax => Some("--memory"),
                File::MemoryLow => Some("--memory-reservation"),
                _ => None,
            };
            option.map(|option| format!("{program} update {option} {size} {}", quoted(id)))
        }
        Owner::Kubernetes => Some(match file {
            File::MemoryMax => format!("in the pod's spec: resources.limits.memory: {size}i"),
            _ => format!(
                "in the pod's spec: resources.requests.memory: {size}i, with the kubelet's feature MemoryQoS"
            ),
        }),
        Owner::Unit(unit) => property(file)
            .map(|property| format!("systemctl set-property {} {property}={size}", quoted(unit))),
        Owner::Nobody => None,
    };
    of_owner.unwrap_or_else(|| write(facts, group, file, &size))
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

enum Owner<'a> {
    Engine { program: &'static str, id: &'a str },
    Kubernetes,
    Unit(&'a str),
    Nobody,
}

fn owner(path: &str) -> Owner<'_> {
    if path.contains("kubepods") {
        return Owner::Kubernetes;
    }
    if path
        .rsplit_once('/')
        .is_some_and(|(above, _)| is_managed_apart(above))
    {
        return Owner::Nobody;
    }
    let mut parts = path.rsplit('/');
    let last = parts.next().unwrap_or_default();
    let parent = parts.next().unwrap_or_default();
    let scope = last.strip_suffix(".scope").unwrap_or(last);
    let engines = [("docker-", "docker"), ("libpod-", "podman")];
    let named = engines
        .into_iter()
        .find_map(|(prefix, program)| Some((program, scope.strip_prefix(prefix)?)));
    if let Some((program, id)) = named.or((parent == "docker").then_some(("docker", last))) {
        // The first twelve digits of a container's ID, as the engines print it.
        let id = id.get(..12).unwrap_or(id);
        return Owner::Engine { program, id };
    }
    unit(path).map_or(Owner::Nobody, Owner::Unit)
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
