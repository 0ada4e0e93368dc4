//! Formats of the records that runtimes keep of a container.
//!
//! The files in the cgroup distort the owner's number: runc maps `blockIO.weight` 10..1000 to `io.weight`
//! 1..10000 by 1 + (w - 10) * 9999 / 990, and writes it raw where BFQ's file exists. The bundle's
//! `config.json` has the intended number, so nothing needs to be undone. An update is in the manager's own
//! record, which is rewritten before the cgroup's files are: Docker's `hostconfig.json`, Podman's
//! `config.json` (5.4 writes it, 4.3 does not).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;
use serde::Deserialize;

use crate::kubernetes::{checked, Pod};
use crate::trusted::{Author, Place, Stamp};
use crate::weight::parse;

/// The annotation by which a container states its weight.
pub const ANNOTATION: &str = "io.justitia.weight";

/// Annotations by which containerd records the pod of a container: uid, namespace, name, the container's name.
const OF_CONTAINERD: [&str; 4] = [
    "io.kubernetes.cri.sandbox-uid",
    "io.kubernetes.cri.sandbox-namespace",
    "io.kubernetes.cri.sandbox-name",
    "io.kubernetes.cri.container-name",
];

/// The same of CRI-O: the kubelet's labels, which replace the pod's annotations of these names.
const OF_CRIO: [&str; 4] = [
    "io.kubernetes.pod.uid",
    "io.kubernetes.pod.namespace",
    "io.kubernetes.pod.name",
    "io.kubernetes.container.name",
];

/// CRI-O's record of the annotations that the kubelet passed, as JSON.
const CRIO_ANNOTATIONS: &str = "io.kubernetes.cri-o.Annotations";

/// Longer paths in a record are not kept.
const LONGEST_PATH: usize = 1024;

/// Longer names of a scope are not kept.
const LONGEST_NAME: usize = 255;

/// The layout of a container's directory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layout {
    /// `config.json` in it.
    Bundle,
    /// `config.json` and `status`, which has the cgroup's path.
    Crun,
    /// `state.json`, which names the bundle and has the cgroup's path.
    Runc,
    /// `userdata/config.json`, rewritten by each `podman update`.
    UserData,
    /// `hostconfig.json`, rewritten by each `docker update`, and `config.v2.json`.
    Docker,
}

impl Layout {
    /// The file in a container's directory that a manager rewrites while the container lives.
    fn changes(self) -> Option<&'static str> {
        match self {
            Layout::UserData => Some("userdata/config.json"),
            Layout::Docker => Some("hostconfig.json"),
            Layout::Bundle | Layout::Crun | Layout::Runc => None,
        }
    }

    /// The annotations that record a pod here. Under others, CRI-O copies what the pod's creator wrote.
    fn of_pod(self) -> Option<[&'static str; 4]> {
        match self {
            Layout::Bundle => Some(OF_CONTAINERD),
            Layout::UserData => Some(OF_CRIO),
            Layout::Crun | Layout::Runc | Layout::Docker => None,
        }
    }
}

/// The record of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Owner of the record.
    pub author: Author,
    pub id: String,
    /// The cgroup's path, if it is recorded.
    pub cgroup: Option<String>,
    /// The name of its systemd scope, if it has one.
    pub scope: Option<String>,
    /// The annotation `io.justitia.weight`.
    pub annotation: Option<Weight>,
    /// `linux.resources.blockIO.weight`, or Docker's `BlkioWeight`.
    pub block_io: Option<Weight>,
    /// Its owner's name for it.
    pub name: Option<String>,
    /// Its Kubernetes pod.
    pub pod: Option<PodRecord>,
    /// The version of a manager's record, which changes while the container lives.
    pub(super) stamp: Option<Stamp>,
    /// The version of its directory, which a runtime makes again for a new container of the same ID.
    pub(super) directory: Option<Stamp>,
}

impl Record {
    /// The weight that it states.
    pub(crate) fn stated(&self) -> Option<(Weight, WeightSource)> {
        let annotation = self.annotation.map(|w| (w, WeightSource::OciAnnotation));
        let block_io = self.block_io.map(|w| (w, WeightSource::OciBlockIo));
        annotation.or(block_io)
    }
}

/// The pod in a container's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRecord {
    pub(super) uid: String,
    pub(super) pod: Pod,
    /// The container's name; a sandbox has none.
    pub(super) container: Option<String>,
}

/// The version of a manager's record of a container.
pub(super) fn stamp(dir: &Place, id: &OsStr, layout: Layout) -> Option<Stamp> {
    dir.stamp(&Path::new(id).join(layout.changes()?))
}

/// The version of a container's directory. The place is open, so no mount of a user's is entered.
pub(super) fn version(dir: &Place) -> Option<Stamp> {
    dir.stamp(Path::new("."))
}

/// Reads a record. `stamp` was taken before.
pub(super) fn read_record(dir: &Place, stamp: Option<Stamp>, layout: Layout) -> Option<Record> {
    let id = dir.path.file_name()?.to_str()?.to_owned();
    // Taken first: a change during the read counts at the next look.
    let directory = version(dir);
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
    let annotation = spec.annotations.get(ANNOTATION);
    let cgroup = cgroup
        .filter(|path| !path.is_empty())
        .map(|path| absolute(&path))
        .or(spec_cgroup);
    Some(Record {
        author: dir.author,
        id,
        cgroup: cgroup.filter(|path| path.len() <= LONGEST_PATH),
        scope: scope.filter(|name| name.len() <= LONGEST_NAME),
        annotation: annotation.and_then(|text| parse(text)),
        block_io: spec.linux.resources.block_io.weight.and_then(weight),
        name: None,
        pod: layout.of_pod().and_then(|keys| spec.pod(keys)),
        stamp,
        directory,
    })
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
        directory: None,
    })
}

/// The configuration of a bundle that a record names. A path that an unprivileged user wrote is not followed:
/// it could lead to a file system that keeps its readers waiting.
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

/// Accepts `null` in place of an object.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Spec {
    /// `linux.cgroupsPath` as a path, or the scope that systemd creates for `slice:prefix:name`.
    fn cgroup(&self) -> (Option<String>, Option<String>) {
        let Some(path) = self.linux.cgroups_path.as_deref() else {
            return (None, None);
        };
        let fields: Vec<&str> = path.splitn(4, ':').collect();
        match fields[..] {
            [_, "", name] => (None, Some(format!("{name}.scope"))),
            [_, prefix, name] => (None, Some(format!("{prefix}-{name}.scope"))),
            _ if path.trim_matches('/').is_empty() => (None, None),
            _ => (Some(absolute(path)), None),
        }
    }

    /// The pod in the annotations of a CRI implementation.
    fn pod(&self, keys: [&str; 4]) -> Option<PodRecord> {
        let text = |key| self.annotations.get(key).map(String::as_str);
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
pub(super) struct Stored {
    pub(super) id: String,
    #[serde(deserialize_with = "lenient")]
    pub(super) names: Vec<String>,
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
    /// The bundle's configuration as far as runc keeps it: annotations are labels.
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
