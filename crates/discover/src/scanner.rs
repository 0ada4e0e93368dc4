//! Walking the tree and keeping the list.
//!
//! A scan lists directories and asks one attribute of each managed group: about a microsecond for
//! each cgroup. Below a container or a virtual machine nothing is looked for: what is inside is
//! its own business; below a pod are its containers. With globs, every place where one might
//! match is looked at.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use justitia_cgroup::{Child, Error, Fs, Group, GroupId};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use crate::oci::Records;
use crate::weight::Priors;
use crate::{kind, weight, Glob, GlobError, Kind, RuntimeDirs};

/// What the operator says about discovery.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiscoverConfig {
    /// Globs of groups to manage; none: containers, pods and virtual machines.
    pub manage: Vec<String>,
    /// Globs of groups never to manage, nor what is below them.
    pub exclude: Vec<String>,
    /// Weights by glob; the first that matches counts.
    pub weights: Vec<(String, Weight)>,
}

/// A group to manage.
#[derive(Debug, Clone)]
pub struct Discovered {
    /// The group itself.
    pub group: Group,
    /// Its path.
    pub path: String,
    /// Its id.
    pub id: GroupId,
    /// What it is.
    pub kind: Kind,
    /// What to call it.
    pub name: String,
    /// Its weight.
    pub weight: Weight,
    /// Where the weight came from.
    pub source: WeightSource,
}

/// What a scan found to be different.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Groups that are new.
    pub added: Vec<GroupId>,
    /// Groups that are gone, or no longer to be managed.
    pub removed: Vec<GroupId>,
    /// Groups whose weight or its source changed.
    pub reweighted: Vec<GroupId>,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.reweighted.is_empty()
    }
}

/// Finds the groups to manage.
pub struct Scanner {
    fs: Fs,
    manage: Vec<Glob>,
    exclude: Vec<Glob>,
    weights: Vec<(Glob, Weight)>,
    records: Records,
    groups: Vec<Discovered>,
    /// What the kernel's files said when a group was found.
    files: HashMap<GroupId, Option<Weight>>,
    priors: Priors,
}

/// What a path turned out to be in a walk.
enum Found {
    Managed(Kind, String),
    Nothing,
}

impl Scanner {
    /// A scanner that has not scanned yet.
    pub fn new(fs: Fs, config: DiscoverConfig, runtime: RuntimeDirs) -> Result<Scanner, GlobError> {
        let DiscoverConfig {
            manage,
            exclude,
            weights,
        } = config;
        Ok(Scanner {
            fs,
            manage: globs(&manage)?,
            exclude: globs(&exclude)?,
            weights: weighted(&weights)?,
            records: Records::new(runtime),
            groups: Vec::new(),
            files: HashMap::new(),
            priors: Priors::new(),
        })
    }

    /// The managed groups, sorted by path: parents before children.
    pub fn groups(&self) -> &[Discovered] {
        &self.groups
    }

    /// The group with this path or name; or the only one whose path ends so, or whose name begins
    /// so (as container ids are shortened).
    pub fn find(&self, what: &str) -> Option<&Discovered> {
        let path = format!("/{}", what.trim_matches('/'));
        let by_path = self.groups.iter().find(|group| group.path == path);
        by_path
            .or_else(|| only(self.groups.iter().filter(|group| group.name == what)))
            .or_else(|| only(self.groups.iter().filter(|g| g.path.ends_with(&path))))
            .or_else(|| {
                let starts = |group: &&Discovered| !what.is_empty() && group.name.starts_with(what);
                only(self.groups.iter().filter(starts))
            })
    }

    /// Corrects what the kernel's files are taken to have said before anybody here wrote to them:
    /// the prior value from a journal, or what a foreign writer set since. Counts at the next
    /// scan.
    pub fn set_file_weight(&mut self, group: GroupId, weight: Option<Weight>) {
        let weight = weight.filter(|weight| *weight != Weight::DEFAULT);
        self.files.insert(group, weight);
    }

    /// For who looks beside an agent that runs, or behind one that crashed: what the knobs that it
    /// wrote held before. Counts for groups that are not found yet.
    pub fn set_priors(&mut self, priors: Priors) {
        self.priors = priors;
    }

    /// Takes over what another scanner knows of the kernel's files, which nobody can read there any
    /// more once weights were written.
    pub fn inherit_file_weights(&mut self, other: &mut Scanner) {
        self.files = std::mem::take(&mut other.files);
    }

    /// Changes the configured weights; they count at the next scan.
    pub fn set_weights(&mut self, weights: &[(String, Weight)]) -> Result<(), GlobError> {
        self.weights = weighted(weights)?;
        Ok(())
    }

    /// Looks at the tree again. A group that vanishes meanwhile is left out; an error is about
    /// the root, or a group that is there and cannot be read.
    pub fn rescan(&mut self) -> Result<Changes, Error> {
        self.records.refresh();
        let mut changes = Changes::default();
        let mut known: HashMap<GroupId, Discovered> = self
            .groups
            .drain(..)
            .map(|group| (group.id, group))
            .collect();
        let result = self.walk(&mut known, &mut changes);
        if result.is_err() {
            // Half a walk says nothing about what is gone.
            self.groups.extend(known.into_values());
        } else {
            changes.removed.extend(known.keys());
            changes.removed.sort_unstable();
            let here: HashSet<GroupId> = self.groups.iter().map(|group| group.id).collect();
            self.files.retain(|id, _| here.contains(id));
        }
        self.groups.sort_by(|a, b| a.path.cmp(&b.path));
        result.map(|()| changes)
    }

    fn walk(
        &mut self,
        known: &mut HashMap<GroupId, Discovered>,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        let mut open = vec![String::new()];
        let mut children: Vec<Child> = Vec::new();
        while let Some(parent) = open.pop() {
            let root = parent.is_empty();
            let listed = self
                .fs
                .children(if root { "/" } else { &parent }, &mut children);
            match listed {
                Err(error) if root || !error.is_gone() => return Err(error),
                _ => {}
            }
            for child in children.drain(..) {
                let path = format!("{parent}/{}", child.name);
                if self.exclude.iter().any(|glob| glob.matches(&path)) {
                    continue;
                }
                let found = self.classify(&path);
                if self.is_worth_entering(&path, &found) {
                    open.push(path.clone());
                }
                if let Found::Managed(kind, name) = found {
                    let old = known.remove(&child.id);
                    match self.take(&path, kind, name, old, changes) {
                        Err(error) if !error.is_gone() => return Err(error),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn classify(&self, path: &str) -> Found {
        let named = kind::of_path(path);
        if self.manage.is_empty() {
            match named {
                Some(named) if named.kind != Kind::Service => {
                    Found::Managed(named.kind, named.name)
                }
                _ if self.records.is_container(path) => {
                    Found::Managed(Kind::Container, last(path).to_owned())
                }
                _ => Found::Nothing,
            }
        } else if self.manage.iter().any(|glob| glob.matches(path)) {
            match named {
                Some(named) => Found::Managed(named.kind, named.name),
                None if self.records.is_container(path) => {
                    Found::Managed(Kind::Container, last(path).to_owned())
                }
                None => Found::Managed(Kind::Group, last(path).to_owned()),
            }
        } else {
            Found::Nothing
        }
    }

    fn is_worth_entering(&self, path: &str, found: &Found) -> bool {
        if self.manage.is_empty() {
            !matches!(found, Found::Managed(Kind::Container | Kind::Vm, _))
        } else {
            self.manage.iter().any(|glob| glob.may_match_below(path))
        }
    }

    /// Puts a group on the list, as it was or new.
    fn take(
        &mut self,
        path: &str,
        kind: Kind,
        name: String,
        old: Option<Discovered>,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        let is_new = old.is_none();
        let mut entry = match old {
            Some(old) => old,
            None => self.meet(path, kind, name)?,
        };
        let record = self.records.of_cgroup(path, Some(&entry.name));
        let file = self.files.get(&entry.id).copied().flatten();
        let (weight, source) = weight::of_group(&entry.group, &self.weights, record, file)?;
        if is_new {
            changes.added.push(entry.id);
        } else if (weight, source) != (entry.weight, entry.source) {
            changes.reweighted.push(entry.id);
        }
        entry.weight = weight;
        entry.source = source;
        self.groups.push(entry);
        Ok(())
    }

    fn meet(&mut self, path: &str, kind: Kind, name: String) -> Result<Discovered, Error> {
        let group = self.fs.open(path)?;
        let id = group.id();
        if let Entry::Vacant(unread) = self.files.entry(id) {
            unread.insert(weight::of_files(&group, &self.priors)?);
        }
        Ok(Discovered {
            group,
            path: path.to_owned(),
            id,
            kind,
            name,
            weight: Weight::DEFAULT,
            source: WeightSource::Default,
        })
    }
}

fn globs(texts: &[String]) -> Result<Vec<Glob>, GlobError> {
    texts.iter().map(|text| Glob::new(text)).collect()
}

fn weighted(weights: &[(String, Weight)]) -> Result<Vec<(Glob, Weight)>, GlobError> {
    weights
        .iter()
        .map(|(text, weight)| Ok((Glob::new(text)?, *weight)))
        .collect()
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The only item, if there is just one.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next();
    if items.next().is_some() {
        return None;
    }
    first
}
