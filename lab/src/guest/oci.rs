//! The OCI configuration of a container (runtime-spec 1.0, cgroup v2), as crun reads it. Pure.
//!
//! The root file system is an empty directory with the guest's programs and libraries mounted
//! read-only; the container's files are a bind mount of its own directory on the data disk. No
//! capabilities, its own pid, mount, ipc, uts and cgroup namespaces.
//!
//! Weights: `blockIO.weight` is what Docker and Kubernetes write. Its range ends at 1000. A larger weight is
//! not written there but stated in the annotation `io.justitia.weight` and written to the cgroup after
//! creation.

use std::path::{Path, PathBuf};

use serde_json::{json, Value};

pub const MAX_OCI_WEIGHT: u32 = 1000;

pub const MIN_OCI_WEIGHT: u32 = 10;

/// Inputs of the configuration of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle<'a> {
    pub hostname: &'a str,
    /// Cgroup, absolute below the cgroup mount: `/app/name`.
    pub cgroup: &'a str,
    pub weight: u32,
    pub uid: u32,
    pub rootfs: &'a Path,
    pub args: &'a [&'a str],
    pub binds: &'a [Bind],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    pub source: PathBuf,
    pub target: String,
    pub writable: bool,
}

impl Bind {
    pub fn new(source: impl Into<PathBuf>, target: &str, writable: bool) -> Self {
        Self {
            source: source.into(),
            target: target.to_owned(),
            writable,
        }
    }
}

/// True if `blockIO.weight` can express the weight.
pub fn fits_block_io(weight: u32) -> bool {
    (MIN_OCI_WEIGHT..=MAX_OCI_WEIGHT).contains(&weight)
}

pub fn config(bundle: &Bundle) -> Value {
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
               "options": ["nosuid", "mode=755", "size=65536k"]}),
    ];
    mounts.extend(bundle.binds.iter().map(|bind| {
        let mode = if bind.writable { "rw" } else { "ro" };
        json!({"destination": bind.target, "type": "bind", "source": bind.source,
               "options": ["rbind", mode]})
    }));
    let weight = bundle.weight;
    let (resources, annotations) = if fits_block_io(weight) {
        (json!({"blockIO": {"weight": weight}}), json!({}))
    } else {
        let stated = json!({"io.justitia.weight": weight.to_string()});
        (json!({}), stated)
    };
    json!({
        "ociVersion": "1.0.0",
        "hostname": bundle.hostname,
        "process": {
            "terminal": false,
            "user": {"uid": bundle.uid, "gid": bundle.uid},
            "args": bundle.args,
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "RUST_BACKTRACE=1"],
            "cwd": "/",
            "noNewPrivileges": true,
        },
        "root": {"path": bundle.rootfs, "readonly": true},
        "mounts": mounts,
        "annotations": annotations,
        "linux": {
            "cgroupsPath": bundle.cgroup,
            "resources": resources,
            "namespaces": [
                {"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"},
                {"type": "cgroup"},
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(weight: u32) -> Value {
        config(&Bundle {
            hostname: "c1",
            cgroup: "/app/tenant/a",
            weight,
            uid: 0,
            rootfs: Path::new("/run/rootfs"),
            args: &["/opt/x", "load"],
            binds: &[Bind::new("/d/a", "/data", true)],
        })
    }

    #[test]
    fn the_weight_travels_as_block_io() {
        let config = built(400);
        assert_eq!(config["linux"]["resources"]["blockIO"]["weight"], 400);
        assert_eq!(config["linux"]["cgroupsPath"], "/app/tenant/a");
        assert_eq!(config["process"]["args"][1], "load");
    }

    #[test]
    fn a_weight_outside_the_oci_range_is_an_annotation() {
        for weight in [5, 1500] {
            let config = built(weight);
            assert!(config["linux"]["resources"].get("blockIO").is_none());
            assert_eq!(
                config["annotations"]["io.justitia.weight"],
                weight.to_string()
            );
        }
    }

    #[test]
    fn binds_keep_their_mode() {
        let config = built(100);
        let mounts = config["mounts"].as_array().unwrap();
        let data = mounts.iter().find(|m| m["destination"] == "/data").unwrap();
        assert_eq!(data["source"], "/d/a");
        assert_eq!(data["options"], json!(["rbind", "rw"]));
    }
}
