//! Records of container runtimes: the OCI configuration behind a cgroup.
//!
//! A manager's own record comes before the runtime's record, which holds the state at the container's start.
//! For containers of other runtimes, state a new weight by xattr or configuration. Names are in Docker's
//! record and in Podman's storage.
//!
//! Records are found in the runtimes' state directories, and matched to a cgroup by its path or by the
//! container's ID. All of them are other people's text: a record that does not parse is no record. A record
//! of an unprivileged user's runtime (`/run/user/UID`) counts only for cgroups below that user's slice that
//! lie in a directory that root delegated, or that belong to that user where the configuration trusts it. It
//! comes after every record of root's. [`crate::trusted`] describes how these files are read.

mod formats;
mod places;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use justitia_report::status::Problem;

use formats::{read_record, stamp, version, Layout, Stored};
pub use formats::{PodRecord, Record, ANNOTATION};
pub use places::RuntimeDirs;

use crate::kubernetes::Pods;
use crate::trusted::{Author, Place, Stamp};

/// Entries that are looked at in one directory of an unprivileged user's records, at most.
const MOST_OF_USER: usize = 256;
/// Entries of such a directory that one scan reads at most because they are not known yet, or are no records.
const NEW_OF_USER: usize = 32;

/// The records of all runtimes, read once each.
#[derive(Debug, Default)]
pub(crate) struct Records {
    dirs: RuntimeDirs,
    by_directory: BTreeMap<PathBuf, Record>,
    by_cgroup: HashMap<(Author, String), PathBuf>,
    by_id: HashMap<(Author, String), PathBuf>,
    pods: Pods,
    /// Names of the containers of root's Podman, by the directory that lists them.
    names: BTreeMap<PathBuf, Names>,
}

/// The files with container names in a storage's directory of containers: lasting containers, and those that
/// are removed when they end. Each file is rewritten when a container comes, goes or is renamed.
const NAMES: [&str; 2] = ["containers.json", "volatile-containers.json"];

/// Names of containers, by id.
#[derive(Debug, Default)]
struct Names {
    stamps: [Option<Stamp>; NAMES.len()],
    by_id: HashMap<String, String>,
}

impl Names {
    /// Reads the files again if one has changed.
    fn refresh(&mut self, dir: &Place) {
        let stamps = NAMES.map(|file| dir.stamp(file.as_ref()));
        if stamps == self.stamps {
            return;
        }
        self.stamps = stamps;
        let lists = NAMES.map(|file| dir.json::<Vec<Stored>>(file.as_ref()));
        let stored = lists.into_iter().flatten().flatten();
        let named = stored.filter_map(|stored| Some((stored.id, stored.names.into_iter().next()?)));
        self.by_id = named.collect();
    }
}

impl Records {
    pub(crate) fn new(dirs: RuntimeDirs) -> Records {
        Records {
            dirs,
            ..Records::default()
        }
    }

    /// The pods in root's records.
    pub(crate) fn pods(&self) -> &Pods {
        &self.pods
    }

    /// Reads the new and changed records, and forgets those of containers that are gone. If nothing changed, it
    /// only looks at directories. Appends problems to `problems`.
    pub(crate) fn refresh(&mut self, problems: &mut Vec<Problem>) {
        let mut current = BTreeMap::new();
        let dirs = self.dirs.state_dirs();
        let storages = dirs.iter();
        let mut names = std::mem::take(&mut self.names);
        for (dir, _) in storages.filter(|(_, layout)| matches!(layout, Layout::UserData)) {
            let mut listed = names.remove(&dir.path).unwrap_or_default();
            listed.refresh(dir);
            self.names.insert(dir.path.clone(), listed);
        }
        for (dir, layout) in dirs {
            let (most, mut new) = match dir.author {
                Author::Root => (usize::MAX, usize::MAX),
                Author::User(_) => (MOST_OF_USER, NEW_OF_USER),
            };
            let (names, more) = dir.directories(most);
            if more {
                problems.push(Problem {
                    group: None,
                    cause: format!(
                        "{} has more than {MOST_OF_USER} entries; the others are ignored",
                        dir.path.display()
                    ),
                    remedy: "remove entries that its owner left there".to_owned(),
                });
            }
            for name in names {
                let path = dir.path.join(&name);
                let known = self.by_directory.remove(&path);
                let place = dir.below(&name);
                let stands = known.as_ref().is_some_and(|record| match record.stamp {
                    Some(_) => record.stamp == stamp(&dir, &name, layout),
                    // A record without a cgroup may be half written: look again.
                    None if record.cgroup.is_none() && record.scope.is_none() => false,
                    None => record.directory == place.as_ref().and_then(version),
                });
                let mut read = || {
                    new = new.checked_sub(1)?;
                    read_record(place.as_ref()?, stamp(&dir, &name, layout), layout)
                };
                // A record that cannot be read now may be half written: the known one stands.
                let record = if stands { known } else { read().or(known) };
                if let Some(mut record) = record {
                    // CRI-O has such a storage, too, but a pod's container is named by its pod.
                    if matches!(layout, Layout::UserData) && record.pod.is_none() {
                        let mut names = self.names.values();
                        record.name = names.find_map(|of| of.by_id.get(&record.id).cloned());
                    }
                    current.insert(path, record);
                }
            }
        }
        // The present record of Docker or Podman comes before the bundle, which holds the state at the start.
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
            let pod = record.pod.as_ref();
            if let Some(of) = pod.filter(|_| record.author == Author::Root) {
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

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.by_directory.len()
    }

    /// Length of the longest path that is kept.
    #[cfg(test)]
    pub(crate) fn longest_path(&self) -> usize {
        let paths = self.by_directory.values().flat_map(|record| &record.cgroup);
        paths.map(String::len).max().unwrap_or(0)
    }

    /// The record of the container in a cgroup: by the whole path, by the scope's name, or by the ID in its
    /// name. Root's record comes before a user's, which counts only if `users`.
    pub(crate) fn of_cgroup(&self, path: &str, id: Option<&str>, users: bool) -> Option<&Record> {
        let last = path.rsplit('/').next().unwrap_or(path);
        authors(path, users).find_map(|author| {
            let by_cgroup = |name: &str| self.by_cgroup.get(&(author, name.to_owned()));
            let dir = by_cgroup(path)
                .or_else(|| by_cgroup(last))
                .or_else(|| self.by_id.get(&(author, id?.to_owned())))?;
            self.by_directory.get(dir)
        })
    }

    /// True if a runtime recorded that this very cgroup is a container.
    pub(crate) fn is_container(&self, path: &str, users: bool) -> bool {
        authors(path, users).any(|author| self.by_cgroup.contains_key(&(author, path.to_owned())))
    }
}

/// The user below whose slice a path lies.
pub(crate) fn user_of(path: &str) -> Option<u32> {
    let (uid, _) = path
        .strip_prefix("/user.slice/user-")?
        .split_once(".slice/")?;
    uid.parse().ok()
}

/// Authors whose statements about a cgroup count: root, and, if `users`, the user below whose slice it lies.
fn authors(path: &str, users: bool) -> impl Iterator<Item = Author> {
    let user = user_of(path).filter(|_| users).map(Author::User);
    [Some(Author::Root), user].into_iter().flatten()
}

/// Indexes a record. Two runtimes' directories may describe the same container (Podman's storage and crun's
/// state); the one that states a weight wins.
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
