//! What container runtimes recorded: the OCI configuration behind a cgroup.
//!
//! The files in the cgroup distort the owner's number: runc maps `blockIO.weight` 10..1000 to
//! `io.weight` 1..10000 by 1 + (w - 10) * 9999 / 990, and writes it raw where BFQ's file exists.
//! The bundle's `config.json` has it as it was meant, so nothing needs to be undone. A weight
//! changed at run time (`docker update`) is not in the bundle: say it by xattr or configuration.
//!
//! Records are found in the runtimes' state directories and matched to a cgroup by its path or by
//! the container's id. All of it is other people's text: what does not parse is no record.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use justitia_policy::units::Weight;
use serde::Deserialize;

/// The annotation by which a container states its weight.
pub const ANNOTATION: &str = "io.justitia.weight";

/// Longer files are not configurations.
const LONGEST: u64 = 4 << 20;

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
    fn shelves(&self) -> Vec<(PathBuf, Layout)> {
        let Some(root) = &self.root else {
            return Vec::new();
        };
        let mut shelves = vec![
            (root.join("run/crun"), Layout::Crun),
            (root.join("run/runc"), Layout::Runc),
        ];
        let tasks = root.join("run/containerd/io.containerd.runtime.v2.task");
        shelves.extend(entries(&tasks).map(|namespace| (namespace, Layout::Bundle)));
        for storage in ["var/lib/containers/storage", "run/containers/storage"] {
            let drivers = entries(&root.join(storage)).filter(|dir| {
                dir.file_name()
                    .is_some_and(|name| name.to_string_lossy().ends_with("-containers"))
            });
            shelves.extend(drivers.map(|driver| (driver, Layout::UserData)));
        }
        for user in entries(&root.join("run/user")) {
            shelves.push((user.join("crun"), Layout::Crun));
            shelves.push((user.join("runc"), Layout::Runc));
        }
        shelves
    }
}

/// How a container's directory is laid out.
#[derive(Debug, Clone, Copy)]
enum Layout {
    /// `config.json` in it.
    Bundle,
    /// `config.json` and `status`, which has the cgroup's path.
    Crun,
    /// `state.json`, which names the bundle and has the cgroup's path.
    Runc,
    /// `userdata/config.json`.
    UserData,
}

/// What one container's record says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The container's id.
    pub id: String,
    /// The cgroup's path, as far as it is recorded.
    pub cgroup: Option<String>,
    /// The name of its systemd scope.
    pub scope: Option<String>,
    /// The annotation `io.justitia.weight`.
    pub annotation: Option<Weight>,
    /// `linux.resources.blockIO.weight`.
    pub block_io: Option<Weight>,
}

/// The records of all runtimes, read once each.
#[derive(Debug)]
pub(crate) struct Records {
    dirs: RuntimeDirs,
    by_directory: BTreeMap<PathBuf, Record>,
    by_cgroup: HashMap<String, PathBuf>,
    by_id: HashMap<String, PathBuf>,
}

impl Records {
    pub(crate) fn new(dirs: RuntimeDirs) -> Records {
        Records {
            dirs,
            by_directory: BTreeMap::new(),
            by_cgroup: HashMap::new(),
            by_id: HashMap::new(),
        }
    }

    /// Reads the records that are new and forgets those whose container is gone. Lists
    /// directories only, when nothing changed.
    pub(crate) fn refresh(&mut self) {
        let mut current = BTreeMap::new();
        for (shelf, layout) in self.dirs.shelves() {
            for dir in entries(&shelf) {
                // A record without a cgroup may be half written: look again.
                let known = self.by_directory.remove(&dir);
                let record = known
                    .filter(|record| record.cgroup.is_some() || record.scope.is_some())
                    .or_else(|| read_record(&dir, layout));
                if let Some(record) = record {
                    current.insert(dir, record);
                }
            }
        }
        self.by_directory = current;
        self.by_cgroup.clear();
        self.by_id.clear();
        for (dir, record) in &self.by_directory {
            for cgroup in record.cgroup.iter().chain(&record.scope) {
                keep_best(&self.by_directory, &mut self.by_cgroup, cgroup, dir);
            }
            keep_best(&self.by_directory, &mut self.by_id, &record.id, dir);
        }
    }

    /// The record of the container in a cgroup: by the whole path, by the scope's name, or by the
    /// id in its name.
    pub(crate) fn of_cgroup(&self, path: &str, id: Option<&str>) -> Option<&Record> {
        let last = path.rsplit('/').next().unwrap_or(path);
        let dir = self
            .by_cgroup
            .get(path)
            .or_else(|| self.by_cgroup.get(last))
            .or_else(|| self.by_id.get(id?))?;
        self.by_directory.get(dir)
    }

    /// Whether a runtime says that this very cgroup is a container.
    pub(crate) fn is_container(&self, path: &str) -> bool {
        self.by_cgroup.contains_key(path)
    }
}

/// Two runtimes' directories may describe the same container (Podman's storage and crun's
/// state): the one that states a weight wins.
fn keep_best(
    records: &BTreeMap<PathBuf, Record>,
    index: &mut HashMap<String, PathBuf>,
    key: &str,
    dir: &Path,
) {
    let states = |dir: &Path| {
        records
            .get(dir)
            .is_some_and(|record| record.annotation.is_some() || record.block_io.is_some())
    };
    let keep = index
        .get(key)
        .is_some_and(|old| states(old) || !states(dir));
    if !keep {
        index.insert(key.to_owned(), dir.to_owned());
    }
}

fn read_record(dir: &Path, layout: Layout) -> Option<Record> {
    let id = dir.file_name()?.to_str()?.to_owned();
    let (bundle, cgroup) = match layout {
        Layout::Bundle => (dir.to_owned(), None),
        Layout::UserData => (dir.join("userdata"), None),
        Layout::Crun => {
            let status = json::<CrunStatus>(&dir.join("status")).unwrap_or_default();
            let bundle = if dir.join("config.json").exists() {
                dir.to_owned()
            } else {
                status.bundle?
            };
            (bundle, status.cgroup_path)
        }
        Layout::Runc => {
            let state = json::<RuncState>(&dir.join("state.json"))?;
            let label = |label: &String| label.strip_prefix("bundle=").map(PathBuf::from);
            let bundle = state.config.labels.iter().find_map(label)?;
            (bundle, state.config.cgroups.path)
        }
    };
    let spec = json::<Spec>(&bundle.join("config.json"))?;
    let (spec_cgroup, scope) = spec.cgroup();
    Some(Record {
        id,
        cgroup: cgroup
            .filter(|path| !path.is_empty())
            .map(|path| absolute(&path))
            .or(spec_cgroup),
        scope,
        annotation: spec
            .annotations
            .get(ANNOTATION)
            .and_then(|text| text.trim().parse().ok())
            .and_then(weight),
        block_io: spec.linux.resources.block_io.weight.and_then(weight),
    })
}

fn weight(value: u32) -> Option<Weight> {
    Weight::new(value).ok()
}

fn absolute(path: &str) -> String {
    format!("/{}", path.trim_matches('/'))
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

fn json<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    if fs::metadata(path).ok()?.len() > LONGEST {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
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
}
