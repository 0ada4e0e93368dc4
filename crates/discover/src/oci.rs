//! What container runtimes recorded: the OCI configuration behind a cgroup.
//!
//! The files in the cgroup distort the owner's number: runc maps `blockIO.weight` 10..1000 to
//! `io.weight` 1..10000 by 1 + (w - 10) * 9999 / 990, and writes it raw where BFQ's file exists.
//! The bundle's `config.json` has it as it was meant, so nothing needs to be undone. What an update changes
//! is in the manager's own record, written anew before the cgroup's files are: Docker's `hostconfig.json`,
//! Podman's `config.json` (5.4 writes it, 4.3 does not). It comes before what the runtime's says. Of other runtimes'
//! containers say a new weight by xattr or configuration. Names are in Docker's record and in Podman's storage.
//!
//! Records are found in the runtimes' state directories and matched to a cgroup by its path or by
//! the container's id. All of it is other people's text: what does not parse is no record. A record of an
//! unprivileged user's runtime (`/run/user/UID`) counts only for cgroups below that user's slice that lie in
//! a directory that root delegated, where it comes after every record of root's; how these files are read
//! says [`crate::trusted`].

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use justitia_policy::units::Weight;
use rustix::fs::stat;
use serde::Deserialize;

use crate::kubernetes::{checked, Pod, Pods};
use crate::trusted::{Author, Place, Stamp};
use crate::Trouble;

/// The annotation by which a container states its weight.
pub const ANNOTATION: &str = "io.justitia.weight";

/// How CRI implementations record which pod a container is of: uid, namespace, name, the container's name.
const POD_ANNOTATIONS: [[&str; 4]; 2] = [
    [
        "io.kubernetes.cri.sandbox-uid",
        "io.kubernetes.cri.sandbox-namespace",
        "io.kubernetes.cri.sandbox-name",
        "io.kubernetes.cri.container-name",
    ],
    [
        "io.kubernetes.pod.uid",
        "io.kubernetes.pod.namespace",
        "io.kubernetes.pod.name",
        "io.kubernetes.container.name",
    ],
];
/// CRI-O's record of the annotations that the kubelet gave, as JSON.
const CRIO_ANNOTATIONS: &str = "io.kubernetes.cri-o.Annotations";

/// Entries that are looked at in one directory of an unprivileged user's records, ...
const MOST_OF_USER: usize = 256;
/// ... and how many that are not known yet, or are no records, in one scan.
const NEW_OF_USER: usize = 32;
/// Longer paths in a record are not kept, ...
const LONGEST_PATH: usize = 1024;
/// ... nor longer names of a scope.
const LONGEST_NAME: usize = 255;

/// Where runtimes keep their records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeDirs {
    /// The root of the file system, or of a test's imitation.
    root: Option<PathBuf>,
}

impl RuntimeDirs {
    /// This host's.
    pub fn host() -> RuntimeDirs {
        RuntimeDirs::under("/")
    }

    /// None: no record is ever found.
    pub fn none() -> RuntimeDirs {
        RuntimeDirs { root: None }
    }

    /// As on a host whose root is here.
    pub fn under(root: impl Into<PathBuf>) -> RuntimeDirs {
        RuntimeDirs {
            root: Some(root.into()),
        }
    }

    /// Directories that hold one directory for each container, and how to find its configuration
    /// in it.
    fn shelves(&self) -> Vec<(Place, Layout)> {
        let Some(root) = &self.root else {
            return Vec::new();
        };
        let owner = stat(root).map_or(0, |stat| stat.st_uid);
        let open = |path: &str| Place::of_root(&root.join(path), owner);
        let mut shelves = Vec::new();
        for (path, layout) in [("run/crun", Layout::Crun), ("run/runc", Layout::Runc)] {
            shelves.extend(open(path).map(|place| (place, layout)));
        }
        for containerd in CONTAINERDS {
            let tasks = open(&format!("{containerd}/io.containerd.runtime.v2.task"));
            let namespaces = below(tasks.as_ref(), |_| true);
            shelves.extend(namespaces.map(|namespace| (namespace, Layout::Bundle)));
        }
        let daemon: DockerDaemon = open("etc/docker")
            .and_then(|etc| etc.json(Path::new("daemon.json")))
            .unwrap_or_default();
        let docker = daemon.data_root.unwrap_or_else(|| "var/lib/docker".into());
        let docker = open(docker.trim_start_matches('/'));
        let remapped = below(docker.as_ref(), is_remapped);
        let docker = docker
            .iter()
            .filter_map(|root| root.below("containers".as_ref()));
        let remapped = remapped.filter_map(|root| root.below("containers".as_ref()));
        shelves.extend(docker.chain(remapped).map(|place| (place, Layout::Docker)));
        for storage in ["var/lib/containers/storage", "run/containers/storage"] {
            let storage = open(storage);
            let drivers = below(storage.as_ref(), |name| name.ends_with("-containers"));
            shelves.extend(drivers.map(|driver| (driver, Layout::UserData)));
        }
        let users = open("run/user");
        for name in users
            .iter()
            .flat_map(|users| users.directories(usize::MAX).0)
        {
            let uid = name.to_str().and_then(|name| name.parse().ok());
            let user = uid
                .zip(users.as_ref())
                .and_then(|(uid, users)| users.of_user(uid));
            for (name, layout) in [("crun", Layout::Crun), ("runc", Layout::Runc)] {
                let shelf = user.as_ref().and_then(|user| user.below(name.as_ref()));
                shelves.extend(shelf.map(|shelf| (shelf, layout)));
            }
        }
        shelves
    }
}

/// The directories below a place whose names are wanted.
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

/// Whether Docker keeps its data in a directory of this name with `userns-remap`: `UID.GID`.
fn is_remapped(name: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    name.split_once('.')
        .is_some_and(|(uid, gid)| is_number(uid) && is_number(gid))
}

/// State directories of containerd: its own, of the one that dockerd starts, of those in k3s and RKE2.
const CONTAINERDS: [&str; 3] = [
    "run/containerd",
    "run/docker/containerd/daemon",
    "run/k3s/containerd",
];

/// How a container's directory is laid out.
#[derive(Debug, Clone, Copy)]
enum Layout {
    /// `config.json` in it.
    Bundle,
    /// `config.json` and `status`, which has the cgroup's path.
    Crun,
    /// `state.json`, which names the bundle and has the cgroup's path.
    Runc,
    /// `userdata/config.json`, written anew by each `podman update`.
    UserData,
    /// `hostconfig.json`, written anew by each `docker update`, and `config.v2.json`.
    Docker,
}

impl Layout {
    /// The file in a container's directory that a manager writes anew while the container lives.
    fn changes(self) -> Option<&'static str> {
        match self {
            Layout::UserData => Some("userdata/config.json"),
            Layout::Docker => Some("hostconfig.json"),
            Layout::Bundle | Layout::Crun | Layout::Runc => None,
        }
    }
}

/// What one container's record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose word it is.
    pub author: Author,
    /// The container's id.
    pub id: String,
    /// The cgroup's path, as far as it is recorded.
    pub cgroup: Option<String>,
    /// The name of its systemd scope.
    pub scope: Option<String>,
    /// The annotation `io.justitia.weight`.
    pub annotation: Option<Weight>,
    /// `linux.resources.blockIO.weight`, or Docker's `BlkioWeight`.
    pub block_io: Option<Weight>,
    /// What its owner calls it.
    pub name: Option<String>,
    /// The Kubernetes pod that it is of.
    pub pod: Option<PodRecord>,
    /// The version of a manager's record, which changes.
    stamp: Option<Stamp>,
}

/// What a container's record says of its pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRecord {
    /// The pod's uid.
    uid: String,
    pod: Pod,
    /// The container's name; a sandbox has none.
    container: Option<String>,
}

/// The records of all runtimes, read once each.
#[derive(Debug)]
pub(crate) struct Records {
    dirs: RuntimeDirs,
    by_directory: BTreeMap<PathBuf, Record>,
    by_cgroup: HashMap<(Author, String), PathBuf>,
    by_id: HashMap<(Author, String), PathBuf>,
    pods: Pods,
    /// Names of the containers of root's Podman, by the shelf that lists them.
    names: BTreeMap<PathBuf, Names>,
}

/// The files in a storage's directory of containers that name them: those that last, and those that go when they
/// end. Each is written anew when a container comes, goes or is renamed.
const NAMES: [&str; 2] = ["containers.json", "volatile-containers.json"];

/// Names of containers, by id.
#[derive(Debug, Default)]
struct Names {
    stamps: [Option<Stamp>; NAMES.len()],
    by_id: HashMap<String, String>,
}

impl Names {
    /// Reads the files where one has changed.
    fn refresh(&mut self, shelf: &Place) {
        let stamps = NAMES.map(|file| shelf.stamp(file.as_ref()));
        if stamps == self.stamps {
            return;
        }
        self.stamps = stamps;
        let lists = NAMES.map(|file| shelf.json::<Vec<Stored>>(file.as_ref()));
        let stored = lists.into_iter().flatten().flatten();
        let named = stored.filter_map(|stored| Some((stored.id, stored.names.into_iter().next()?)));
        self.by_id = named.collect();
    }
}

impl Records {
    pub(crate) fn new(dirs: RuntimeDirs) -> Records {
        Records {
            dirs,
            by_directory: BTreeMap::new(),
            by_cgroup: HashMap::new(),
            by_id: HashMap::new(),
            pods: Pods::default(),
            names: BTreeMap::new(),
        }
    }

    /// What root's records say of pods.
    pub(crate) fn pods(&self) -> &Pods {
        &self.pods
    }

    /// Reads the records that are new and forgets those whose container is gone. Lists
    /// directories only, when nothing changed. Appends what is in the way.
    pub(crate) fn refresh(&mut self, troubles: &mut Vec<Trouble>) {
        let mut current = BTreeMap::new();
        let shelves = self.dirs.shelves();
        let storages = shelves.iter().map(|(shelf, layout)| match layout {
            Layout::UserData => Some(shelf),
            _ => None,
        });
        let mut names = std::mem::take(&mut self.names);
        for shelf in storages.flatten() {
            let mut of_shelf = names.remove(&shelf.path).unwrap_or_default();
            of_shelf.refresh(shelf);
            self.names.insert(shelf.path.clone(), of_shelf);
        }
        for (shelf, layout) in shelves {
            let (most, mut new) = match shelf.author {
                Author::Root => (usize::MAX, usize::MAX),
                Author::User(_) => (MOST_OF_USER, NEW_OF_USER),
            };
            let (names, more) = shelf.directories(most);
            if more {
                troubles.push(Trouble {
                    group: None,
                    cause: format!(
                        "{} has more than {MOST_OF_USER} entries; the others are not looked at",
                        shelf.path.display()
                    ),
                    remedy: "remove what its owner left there",
                });
            }
            for name in names {
                let dir = shelf.path.join(&name);
                let known = self.by_directory.remove(&dir);
                let stands = known.as_ref().is_some_and(|record| match record.stamp {
                    Some(_) => record.stamp == stamp(&shelf, &name, layout),
                    // A record without a cgroup may be half written: look again.
                    None => record.cgroup.is_some() || record.scope.is_some(),
                });
                let mut read = || {
                    new = new.checked_sub(1)?;
                    read_record(&shelf.below(&name)?, stamp(&shelf, &name, layout), layout)
                };
                // One that is being written says nothing new.
                let record = if stands { known } else { read().or(known) };
                if let Some(mut record) = record {
                    // CRI-O has such a storage too; a pod's container is known by its pod.
                    if matches!(layout, Layout::UserData) && record.pod.is_none() {
                        let mut names = self.names.values();
                        record.name = names.find_map(|of| of.by_id.get(&record.id).cloned());
                    }
                    current.insert(dir, record);
                }
            }
        }
        // Docker's or Podman's present record comes before the bundle, which is of the start.
        let managers = current.values().filter(|record| record.stamp.is_some());
        let managers: HashMap<String, Record> = managers
            .map(|record| (record.id.clone(), record.clone()))
            .collect();
        for record in current.values_mut().filter(|r| r.author == Author::Root) {
            if let Some(manager) = managers.get(&record.id) {
                record.block_io = manager.block_io.or(record.block_io);
                record.name.clone_from(&manager.name);
            }
        }
        self.by_directory = current;
        self.by_cgroup.clear();
        self.by_id.clear();
        self.pods = Pods::default();
        for (dir, record) in &self.by_directory {
            if let Some(of) = record
                .pod
                .as_ref()
                .filter(|_| record.author == Author::Root)
            {
                self.pods.add_pod(&of.uid, of.pod.clone());
                if let Some(container) = &of.container {
                    self.pods.add_container(&record.id, &of.uid, container);
                }
            }
            for cgroup in record.cgroup.iter().chain(&record.scope) {
                let key = (record.author, cgroup.clone());
                keep_best(&self.by_directory, &mut self.by_cgroup, key, dir);
            }
            let key = (record.author, record.id.clone());
            keep_best(&self.by_directory, &mut self.by_id, key, dir);
        }
    }

    /// How many records there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.by_directory.len()
    }

    /// Of the paths that are kept.
    #[cfg(test)]
    pub(crate) fn longest_path(&self) -> usize {
        let paths = self.by_directory.values().flat_map(|record| &record.cgroup);
        paths.map(String::len).max().unwrap_or(0)
    }

    /// The record of the container in a cgroup: by the whole path, by the scope's name, or by the
    /// id in its name. Root's word comes before a user's, which counts for what is `delegated` only.
    pub(crate) fn of_cgroup(
        &self,
        path: &str,
        id: Option<&str>,
        delegated: bool,
    ) -> Option<&Record> {
        let last = path.rsplit('/').next().unwrap_or(path);
        authors(path, delegated).find_map(|author| {
            let by_cgroup = |name: &str| self.by_cgroup.get(&(author, name.to_owned()));
            let dir = by_cgroup(path)
                .or_else(|| by_cgroup(last))
                .or_else(|| self.by_id.get(&(author, id?.to_owned())))?;
            self.by_directory.get(dir)
        })
    }

    /// Whether a runtime says that this very cgroup is a container.
    pub(crate) fn is_container(&self, path: &str, delegated: bool) -> bool {
        authors(path, delegated)
            .any(|author| self.by_cgroup.contains_key(&(author, path.to_owned())))
    }
}

/// Who may have a say about a cgroup: root, and where root delegated it, below a user's slice, that user.
fn authors(path: &str, delegated: bool) -> impl Iterator<Item = Author> {
    let uid = path
        .strip_prefix("/user.slice/user-")
        .and_then(|rest| rest.split_once(".slice/"))
        .and_then(|(uid, _)| uid.parse().ok());
    [
        Some(Author::Root),
        uid.filter(|_| delegated).map(Author::User),
    ]
    .into_iter()
    .flatten()
}

/// Two runtimes' directories may describe the same container (Podman's storage and crun's
/// state): the one that states a weight wins.
fn keep_best(
    records: &BTreeMap<PathBuf, Record>,
    index: &mut HashMap<(Author, String), PathBuf>,
    key: (Author, String),
    dir: &Path,
) {
    let states = |dir: &Path| {
        records
            .get(dir)
            .is_some_and(|record| record.annotation.is_some() || record.block_io.is_some())
    };
    let keep = index
        .get(&key)
        .is_some_and(|old| states(old) || !states(dir));
    if !keep {
        index.insert(key, dir.to_owned());
    }
}

/// Which version of a manager's record of a container there is.
fn stamp(shelf: &Place, id: &OsStr, layout: Layout) -> Option<Stamp> {
    shelf.stamp(&Path::new(id).join(layout.changes()?))
}

fn read_docker(dir: &Place, stamp: Option<Stamp>, id: String) -> Option<Record> {
    let host: DockerHost = dir.json(Path::new("hostconfig.json"))?;
    let config: DockerConfig = dir.json(Path::new("config.v2.json")).unwrap_or_default();
    let name = config.name.trim_start_matches('/');
    Some(Record {
        author: dir.author,
        id,
        cgroup: None,
        scope: None,
        annotation: None,
        block_io: weight(host.blkio_weight),
        name: (!name.is_empty()).then(|| name.to_owned()),
        pod: None,
        stamp,
    })
}

/// `stamp`: taken before.
fn read_record(dir: &Place, stamp: Option<Stamp>, layout: Layout) -> Option<Record> {
    let id = dir.path.file_name()?.to_str()?.to_owned();
    let config = Path::new("config.json");
    let (spec, cgroup) = match layout {
        Layout::Bundle => (dir.json::<Spec>(config)?, None),
        Layout::Docker => return read_docker(dir, stamp, id),
        Layout::UserData => (dir.below("userdata".as_ref())?.json(config)?, None),
        Layout::Crun => {
            let status = dir
                .json::<CrunStatus>(Path::new("status"))
                .unwrap_or_default();
            let spec = dir.json(config).or_else(|| named(dir, &status.bundle?))?;
            (spec, status.cgroup_path)
        }
        Layout::Runc => {
            let state = dir.json::<RuncState>(Path::new("state.json"))?.config;
            let label = |label: &String| label.strip_prefix("bundle=").map(PathBuf::from);
            let bundle = state.labels.iter().find_map(label)?;
            let spec = match dir.author {
                Author::Root => named(dir, &bundle)?,
                Author::User(_) => state.spec(),
            };
            (spec, state.cgroups.path)
        }
    };
    let (spec_cgroup, scope) = spec.cgroup();
    let cgroup = cgroup
        .filter(|path| !path.is_empty())
        .map(|path| absolute(&path))
        .or(spec_cgroup);
    Some(Record {
        author: dir.author,
        id,
        cgroup: cgroup.filter(|path| path.len() <= LONGEST_PATH),
        scope: scope.filter(|name| name.len() <= LONGEST_NAME),
        annotation: spec
            .annotations
            .get(ANNOTATION)
            .and_then(|text| text.trim().parse().ok())
            .and_then(weight),
        block_io: spec.linux.resources.block_io.weight.and_then(weight),
        name: None,
        pod: spec.pod(),
        stamp,
    })
}

/// The configuration of a bundle that a record names. A path that an unprivileged user wrote is not
/// followed: it could lead to a file system that keeps its readers waiting.
fn named(record: &Place, bundle: &Path) -> Option<Spec> {
    match record.author {
        Author::Root => record.json_at(&bundle.join("config.json")),
        Author::User(_) => None,
    }
}

fn weight(value: u32) -> Option<Weight> {
    Weight::new(value).ok()
}

fn absolute(path: &str) -> String {
    format!("/{}", path.trim_matches('/'))
}

/// The parts of an OCI runtime configuration that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "lenient")]
    annotations: HashMap<String, String>,
    #[serde(deserialize_with = "lenient")]
    linux: Linux,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Linux {
    cgroups_path: Option<String>,
    #[serde(deserialize_with = "lenient")]
    resources: Resources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    #[serde(rename = "blockIO", deserialize_with = "lenient")]
    block_io: BlockIo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BlockIo {
    /// 0 means "not set".
    weight: Option<u32>,
}

/// `null` where an object may be.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Spec {
    /// `linux.cgroupsPath` as a path, or as the scope that `slice:prefix:name` makes systemd
    /// create.
    fn cgroup(&self) -> (Option<String>, Option<String>) {
        let Some(path) = self.linux.cgroups_path.as_deref() else {
            return (None, None);
        };
        let mut fields = path.split(':');
        match (fields.next(), fields.next(), fields.next(), fields.next()) {
            (Some(_), Some(""), Some(name), None) => (None, Some(format!("{name}.scope"))),
            (Some(_), Some(prefix), Some(name), None) => {
                (None, Some(format!("{prefix}-{name}.scope")))
            }
            _ if path.trim_matches('/').is_empty() => (None, None),
            _ => (Some(absolute(path)), None),
        }
    }

    /// The pod that the annotations of a CRI implementation tell of.
    fn pod(&self) -> Option<PodRecord> {
        let text = |key| self.annotations.get(key).map(String::as_str);
        let keys = POD_ANNOTATIONS
            .iter()
            .find(|keys| text(keys[0]).is_some())?;
        let given = text(CRIO_ANNOTATIONS).map(serde_json::from_str::<HashMap<String, String>>);
        let given = given.and_then(Result::ok).unwrap_or_default();
        let all = self.annotations.iter().chain(&given);
        let all = all.map(|(key, text)| (key.as_str(), text.as_str()));
        Some(PodRecord {
            uid: checked(text(keys[0])?)?,
            pod: Pod::new(text(keys[1])?, text(keys[2])?, all)?,
            container: text(keys[3]).and_then(checked),
        })
    }
}

/// What matters of `/etc/docker/daemon.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct DockerDaemon {
    data_root: Option<String>,
}

/// Docker's `hostconfig.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct DockerHost {
    /// 0 means "not set".
    blkio_weight: u32,
}

/// Docker's `config.v2.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct DockerConfig {
    name: String,
}

/// A container in a storage's list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stored {
    id: String,
    #[serde(deserialize_with = "lenient")]
    names: Vec<String>,
}

/// crun's `status` file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CrunStatus {
    bundle: Option<PathBuf>,
    #[serde(rename = "cgroup-path")]
    cgroup_path: Option<String>,
}

/// runc's `state.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuncState {
    config: RuncConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuncConfig {
    #[serde(deserialize_with = "lenient")]
    labels: Vec<String>,
    #[serde(deserialize_with = "lenient")]
    cgroups: RuncCgroups,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuncCgroups {
    path: Option<String>,
    blkio_weight: Option<u32>,
}

impl RuncConfig {
    /// What runc keeps of the bundle's configuration: annotations are labels.
    fn spec(&self) -> Spec {
        let annotation = |label: &String| {
            let (key, value) = label.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        };
        let weight = self.cgroups.blkio_weight;
        let block_io = BlockIo { weight };
        Spec {
            annotations: self.labels.iter().filter_map(annotation).collect(),
            linux: Linux {
                cgroups_path: None,
                resources: Resources { block_io },
            },
        }
    }
}
