//! Promises of a scan, on a fake host with imitated runtime directories.

use std::path::Path;
use std::sync::Arc;

use justitia_cgroup::{xattr, CgroupFs, FakeFs, Fs, RealFs};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use proptest::prelude::*;
use rustix::fs::{chown, mkfifoat, Mode, Uid, CWD};
use rustix::io::Errno;

use super::*;

mod pods;
mod records;
mod tree;
mod trust;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn weight(value: u32) -> Weight {
    Weight::new(value).unwrap()
}

fn fake(paths: &[&str]) -> Arc<FakeFs> {
    let fs = FakeFs::new();
    for path in paths {
        fs.mkdir(path);
    }
    fs
}

fn scanner(fs: &Arc<FakeFs>, manage: &[&str], runtime: RuntimeDirs) -> Scanner {
    scanner_with(fs, DiscoverConfig::managing(manage), runtime)
}

fn scanner_with(fs: &Arc<FakeFs>, config: DiscoverConfig, runtime: RuntimeDirs) -> Scanner {
    Scanner::new(Arc::clone(fs) as Fs, config, runtime).unwrap()
}

fn paths(scanner: &Scanner) -> Vec<&str> {
    scanner
        .groups()
        .iter()
        .map(|group| group.path.as_str())
        .collect()
}

fn write(root: &Path, file: &str, text: &str) {
    let file = root.join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

/// An unprivileged user: 1000 if the tests run as root, otherwise the user who runs them.
fn user() -> u32 {
    match rustix::process::getuid().as_raw() {
        0 => 1000,
        uid => uid,
    }
}

/// The configuration of a container as containerd writes it for the kubelet.
fn container_of_pod(more: &str) -> String {
    format!(
        r#"{{"annotations": {{"io.kubernetes.cri.sandbox-uid": "ab-cd", "io.kubernetes.cri.sandbox-name": "db-0",
            "io.kubernetes.cri.sandbox-namespace": "shop", "io.kubernetes.cri.container-name": "main" {more}}},
            "linux": {{"cgroupsPath": "kubepods-burstable-podab_cd.slice:cri-containerd:{ID}"}}}}"#
    )
}
