//! The directories in which container runtimes keep one directory for each container.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::stat;
use serde::Deserialize;

use super::formats::Layout;
use crate::trusted::Place;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeDirs {
    /// The root of the file system, or of an imitation in a test.
    root: Option<PathBuf>,
}

impl RuntimeDirs {
    /// The places of this host.
    pub fn host() -> RuntimeDirs {
        RuntimeDirs::under("/")
    }

    /// No places: no record is ever found.
    pub fn none() -> RuntimeDirs {
        RuntimeDirs::default()
    }

    /// The places of a host whose root is `root`.
    pub fn under(root: impl Into<PathBuf>) -> RuntimeDirs {
        RuntimeDirs {
            root: Some(root.into()),
        }
    }

    /// Directories that hold one directory for each container, with the layout in which each has its
    /// configuration.
    pub(super) fn state_dirs(&self) -> Vec<(Place, Layout)> {
        let Some(root) = &self.root else {
            return Vec::new();
        };
        let owner = stat(root).map_or(0, |stat| stat.st_uid);
        let open = |path: &str| Place::of_root(&root.join(path), owner);
        let mut dirs = of_runtimes(|name| open(&format!("run/{name}")), usize::MAX);
        let daemon: DockerDaemon = open("etc/docker")
            .and_then(|etc| etc.json(Path::new("daemon.json")))
            .unwrap_or_default();
        let docker = daemon.data_root.unwrap_or_else(|| "var/lib/docker".into());
        let docker = open(docker.trim_start_matches('/'));
        let remapped: Vec<Place> = below(docker.as_ref(), is_remapped).collect();
        let roots = docker.into_iter().chain(remapped);
        let containers = roots.filter_map(|root| root.below("containers".as_ref()));
        dirs.extend(containers.map(|place| (place, Layout::Docker)));
        let storage = |directory: &str| open(directory)?.read(Path::new("storage.conf"));
        let storage = storage("etc/containers").or_else(|| storage("usr/share/containers"));
        for storage in PodmanStorage::of(storage.as_deref()).roots() {
            let storage = open(storage.trim_start_matches('/'));
            let drivers = below(storage.as_ref(), |name| name.ends_with("-containers"));
            dirs.extend(drivers.map(|driver| (driver, Layout::UserData)));
        }
        if let Some(users) = open("run/user") {
            for name in users.directories(usize::MAX).0 {
                let uid = name.to_str().and_then(|name| name.parse().ok());
                let user = uid.and_then(|uid| users.of_user(uid));
                let open = |name: &str| user.as_ref()?.below(name.as_ref());
                dirs.extend(of_runtimes(open, NAMESPACES_OF_USER));
            }
        }
        dirs
    }
}

/// The directories of records below `/run`, or below a user's `/run/user/UID`, which `open` opens by name.
/// Of each containerd there are at most this many namespaces.
fn of_runtimes(open: impl Fn(&str) -> Option<Place>, namespaces: usize) -> Vec<(Place, Layout)> {
    let mut dirs = Vec::new();
    for (name, layout) in RUNTIMES {
        dirs.extend(open(name).map(|place| (place, layout)));
    }
    for containerd in CONTAINERDS {
        let tasks = open(&format!("{containerd}/io.containerd.runtime.v2.task"));
        let names = tasks
            .iter()
            .flat_map(|tasks| tasks.directories(namespaces).0);
        let places = names.filter_map(|name| tasks.as_ref()?.below(&name));
        dirs.extend(places.map(|place| (place, Layout::Bundle)));
    }
    dirs
}

/// The directories below a place whose names `wanted` accepts.
fn below<'a>(
    place: Option<&'a Place>,
    wanted: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = Place> + 'a {
    place.into_iter().flat_map(move |place| {
        let names = place.directories(usize::MAX).0.into_iter();
        let names: Vec<OsString> = names
            .filter(|name| wanted(&name.to_string_lossy()))
            .collect();
        names.into_iter().filter_map(|name| place.below(&name))
    })
}

/// True if Docker with `userns-remap` keeps its data in a directory of this name: `UID.GID`.
fn is_remapped(name: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    name.split_once('.')
        .is_some_and(|(uid, gid)| is_number(uid) && is_number(gid))
}

/// OCI runtimes that keep records of their own, in `/run/NAME` and in a user's `/run/user/UID/NAME`.
const RUNTIMES: [(&str, Layout); 2] = [("crun", Layout::Crun), ("runc", Layout::Runc)];

/// State directories of containerd in the same places: its own, that of a containerd started by dockerd, that of k3s
/// and RKE2, and that of k0s.
const CONTAINERDS: [&str; 4] = [
    "containerd",
    "docker/containerd/daemon",
    "k3s/containerd",
    "k0s/containerd",
];

/// Namespaces of a user's containerd whose records are read, at most.
const NAMESPACES_OF_USER: usize = 8;

/// The keys that matter here of `storage.conf`, in `/etc/containers` or else in `/usr/share/containers`.
#[derive(Debug, Default, Deserialize)]
struct PodmanStorage {
    graphroot: Option<String>,
    runroot: Option<String>,
}

impl PodmanStorage {
    /// Those of a file's text. A file that cannot be parsed names nothing.
    fn of(text: Option<&[u8]>) -> PodmanStorage {
        #[derive(Deserialize)]
        struct File {
            storage: PodmanStorage,
        }
        let file = text.and_then(|text| toml::from_slice::<File>(text).ok());
        file.map(|file| file.storage).unwrap_or_default()
    }

    /// The directories below which Podman keeps its containers' records.
    fn roots(&self) -> [&str; 2] {
        let graph = self.graphroot.as_deref();
        let run = self.runroot.as_deref();
        [
            graph.unwrap_or("/var/lib/containers/storage"),
            run.unwrap_or("/run/containers/storage"),
        ]
    }
}

/// The keys of `/etc/docker/daemon.json` that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct DockerDaemon {
    data_root: Option<String>,
}
