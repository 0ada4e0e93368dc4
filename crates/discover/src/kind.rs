//! Kinds of cgroups, told by the names that runtimes and systemd give.
//!
//! | runtime | cgroup |
//! |---|---|
//! | Docker | `docker-ID.scope`, `docker/ID` |
//! | Podman | `libpod-ID.scope`, `libpod_parent/libpod-ID`, `NAME.service/libpod-payload-ID`; pods `machine-libpod_pod_ID.slice` |
//! | containerd, nerdctl | `nerdctl-ID.scope`, `cri-containerd-ID.scope` |
//! | CRI-O | `crio-ID.scope` |
//! | Kubernetes pods | `…kubepods-…pod<uid>.slice`, `kubepods/…/pod<uid>` |
//! | crun, runc | `crun-ID.scope`, `runc-ID.scope` |
//! | libvirt | `machine-qemu\x2d1\x2dname.scope`, `machine/qemu-1-name.libvirt-qemu` |
//! | systemd-nspawn, machined | `systemd-nspawn@name.service`, `machine-name.scope` |
//! | LXC, Incus | `lxc.payload.name`, `lxc/name` |
//! | Proxmox VE | `qemu.slice/ID.scope`, `lxc/ID` |
//!
//! Monitors (`libpod-conmon-…`, `crio-conmon-…`, `lxc.monitor.…`) are none of these.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of a managed group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Container,
    /// A Kubernetes or Podman pod, with containers inside.
    Pod,
    /// A systemd service; managed if a glob matches it or it has a weight.
    Service,
    Vm,
    /// Any other group that a glob matches.
    Group,
}

/// Its word in JSON.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Facts that the last part of a path tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub kind: Kind,
    /// The name to show: the container's full ID, or the machine's or service's name.
    pub name: String,
}

/// Prefixes of the scopes of container runtimes, before the container's ID.
const SCOPES: [&str; 7] = [
    "docker",
    "libpod",
    "nerdctl",
    "cri-containerd",
    "crio",
    "crun",
    "runc",
];

/// Classifies a path by its name; `None` if the name tells nothing.
pub fn of_path(path: &str) -> Option<Named> {
    let mut components = path.rsplit('/').filter(|part| !part.is_empty());
    let last = components.next()?;
    let parent = components.next().unwrap_or("");
    pod(last, path)
        .or_else(|| container(last, parent, path))
        .or_else(|| machine(last, parent))
        .or_else(|| service(last))
}

/// Classifies a group that is managed once it is given a weight: a service, or a user's slice.
pub fn managed_by_weight(path: &str) -> Option<Named> {
    let (parent, last) = path.rsplit_once('/')?;
    let of_user = || {
        let name = last.strip_prefix("user-")?.strip_suffix(".slice")?;
        let uid: u32 = name.parse().ok()?;
        (parent == "/user.slice").then(|| named(Kind::Group, format!("user-{uid}")))
    };
    service(last).or_else(of_user)
}

fn named(kind: Kind, name: impl Into<String>) -> Named {
    Named {
        kind,
        name: name.into(),
    }
}

fn container(last: &str, parent: &str, path: &str) -> Option<Named> {
    if last.contains("conmon-") || last.starts_with("lxc.monitor") {
        return None;
    }
    let scope = last.strip_suffix(".scope");
    let of_scope = scope.and_then(|scope| {
        SCOPES
            .iter()
            .find_map(|prefix| scope.strip_prefix(prefix)?.strip_prefix('-'))
    });
    let below_pod = parent.starts_with("pod") && path.contains("/kubepods/");
    let id = of_scope
        .or_else(|| {
            let id = last.strip_prefix("libpod-")?;
            Some(id.strip_prefix("payload-").unwrap_or(id)).filter(|id| is_id(id))
        })
        .or_else(|| last.strip_prefix("lxc.payload."))
        .or_else(|| (parent == "docker" && is_id(last)).then_some(last))
        .or_else(|| (parent == "lxc" && last != "ns").then_some(last))
        .or_else(|| {
            // CRI-O with driver cgroupfs prefixes the ID.
            let id = last.strip_prefix("crio-").unwrap_or(last);
            (below_pod && is_id(id)).then_some(id)
        })?;
    (!id.is_empty()).then(|| named(Kind::Container, id))
}

fn pod(last: &str, path: &str) -> Option<Named> {
    let unit = last.strip_suffix(".slice");
    if let Some(id) = unit.and_then(|unit| unit.strip_prefix("machine-libpod_pod_")) {
        return Some(named(Kind::Pod, id));
    }
    let uid = match unit {
        // systemd turns dashes of the uid into underscores.
        Some(unit) if unit.split('-').any(|part| part == "kubepods") => {
            let (_, uid) = unit.rsplit_once("-pod")?;
            uid.replace('_', "-")
        }
        None if path.contains("/kubepods/") => last.strip_prefix("pod")?.to_owned(),
        _ => return None,
    };
    (!uid.is_empty()).then(|| named(Kind::Pod, uid))
}

fn machine(last: &str, parent: &str) -> Option<Named> {
    if let Some(scope) = last.strip_suffix(".scope") {
        if parent == "qemu.slice" {
            return Some(named(Kind::Vm, scope));
        }
        let name = unescape(scope.strip_prefix("machine-")?);
        // libvirt: driver, running number, name.
        return Some(match name.split_once('-') {
            Some(("qemu" | "xen" | "ch", rest)) => named(Kind::Vm, without_number(rest)),
            Some(("lxc", rest)) => named(Kind::Container, without_number(rest)),
            _ => named(Kind::Container, name),
        });
    }
    if let Some(name) = last.strip_suffix(".libvirt-qemu") {
        let name = name.strip_prefix("qemu-").unwrap_or(name);
        return Some(named(Kind::Vm, without_number(name)));
    }
    let name = last
        .strip_prefix("systemd-nspawn@")?
        .strip_suffix(".service")?;
    Some(named(Kind::Container, unescape(name)))
}

fn service(last: &str) -> Option<Named> {
    let name = last.strip_suffix(".service")?;
    Some(named(Kind::Service, unescape(name)))
}

/// A container id: at least twelve hexadecimal digits.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() >= 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// True if `name` is a container's ID, and `start` its beginning, at least four characters.
pub(crate) fn is_id_of(name: &str, start: &str) -> bool {
    start.len() >= 4 && is_id(name) && name.starts_with(start)
}

/// `1-name` without its number.
fn without_number(text: &str) -> &str {
    match text.split_once('-') {
        Some((number, name))
            if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            name
        }
        _ => text,
    }
}

/// Decodes systemd's `\x2d`.
fn unescape(text: &str) -> String {
    justitia_cgroup::unescape(text.as_bytes(), "\\x", 2, 16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// Groups: kind, name, path.
    const GROUPS: &str = r"
container ID     /system.slice/docker-ID.scope
container ID     /docker/ID
container ID     /machine.slice/libpod-ID.scope
container ID     /libpod_parent/libpod-ID
container ID     /system.slice/db.service/libpod-payload-ID
container ID     /system.slice/nerdctl-ID.scope
container web    /system.slice/crun-web.scope
container web    /system.slice/runc-web.scope
container ID     /kubepods/burstable/pod12-34/crio-ID
container ID     /kubepods/burstable/pod12-34/ID
pod       12-34  /kubepods/besteffort/pod12-34
pod       12-34  /kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod12_34.slice
pod       12-34  /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice
container ID     /kubepods.slice/kubepods-pod12_34.slice/cri-containerd-ID.scope
container ID     /kubepods.slice/kubepods-pod12_34.slice/crio-ID.scope
pod       ID     /machine.slice/machine-libpod_pod_ID.slice
vm        web-1  /machine.slice/machine-qemu\x2d3\x2dweb\x2d1.scope
vm        web    /machine/qemu-3-web.libvirt-qemu
container old    /machine.slice/machine-lxc\x2d7\x2dold.scope
container sid    /machine.slice/machine-sid.scope
container sid    /machine.slice/systemd-nspawn@sid.service
container web    /lxc.payload.web
container 101    /lxc/101
vm        100    /qemu.slice/100.scope
service   nginx  /system.slice/nginx.service
";

    #[test]
    fn every_runtimes_groups_are_known_by_name() {
        for line in GROUPS.trim().lines() {
            let line = line.replace("ID", ID);
            let words: Vec<&str> = line.split_whitespace().collect();
            let [kind, name, path] = words[..] else {
                panic!("{line}")
            };
            let found = of_path(path).map(|found| (found.kind.to_string(), found.name));
            assert_eq!(found, Some((kind.into(), name.into())), "{path}");
        }
    }

    #[test]
    fn monitors_slices_and_sessions_are_nothing_to_manage() {
        for path in [
            format!("/machine.slice/libpod-conmon-{ID}.scope"),
            format!("/x/crio-conmon-{ID}.scope"),
            "/lxc.monitor.web".into(),
            "/kubepods.slice/kubepods-burstable.slice".into(),
            "/kubepods/burstable".into(),
            "/user.slice/user-1000.slice/session-3.scope".into(),
            "/system.slice".into(),
            "/docker/buildx".into(),
            "/app/db".into(),
            "/".into(),
            String::new(),
        ] {
            assert_eq!(of_path(&path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_name_panics(path in "(/|\\\\x|-|[a-z0-9.@_é]|docker|pod|machine|qemu|\\.scope|\\.slice|libpod){0,12}") {
            let _ = of_path(&path);
        }
    }
}
