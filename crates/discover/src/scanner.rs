//! Walks the cgroup tree and keeps the list of groups to manage.
//!
//! A scan lists directories and reads one attribute of each managed group, which takes about a microsecond
//! per cgroup. It also reads the weight of services, users' slices and groups above managed ones. It does not
//! look below a container or a virtual machine, because what is inside is its own business; below a pod it
//! finds the pod's containers. With globs, it looks at every place where one might match.
//!
//! A directory is root's if only root, or a user whom the configuration trusts, may write it. The owner of
//! the topmost directory that is not root's owns everything below it. Groups are managed there, too, but the
//! weights stated there divide the entitlement of that topmost directory ([`Weighed`]). The walk below it has
//! a bound, because its owner can make any number of cgroups. The same holds below a container whose directory
//! is root's, because the container's root may write there; only what a runtime recorded as a container of
//! root's is not the container's (crun makes a group `container` below the scope that systemd makes).
//!
//! Something that cannot be read is one [`Problem`], and the walk goes on. Known groups below it stay.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use justitia_cgroup::{xattr, Child, Error, File, Fs, Group, GroupId};
use justitia_policy::knob::Knob;
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;
use justitia_report::status::Problem;

use crate::kind::Named;
use crate::kubernetes::{self, Known};
use crate::oci::{self, Record, Records};
use crate::trusted::Author;
use crate::weight::{Priors, Standing};
use crate::{
    kind, weight, DiscoverConfig, Discovered, Glob, GlobError, Kind, KubernetesConfig, PodNames,
    Pods, RuntimeDirs, Weighed,
};

/// Directories that are looked at below one delegated directory, at most.
const MOST_DIRECTORIES: usize = 2000;
/// Groups that are managed below one delegated directory, at most.
const MOST_GROUPS: usize = 256;
/// Problems that are reported one by one, at most.
const MOST_PROBLEMS: usize = 8;

/// Finds the groups to manage.
pub struct Scanner {
    fs: Fs,
    manage: Vec<Glob>,
    also: Vec<Glob>,
    exclude: Vec<Glob>,
    weights: Vec<(Glob, Weight)>,
    trust: Vec<u32>,
    kubernetes: KubernetesConfig,
    records: Records,
    /// Pods that a runtime reported.
    pods: Arc<Pods>,
    groups: Vec<Discovered>,
    weighed: Vec<Weighed>,
    /// The topmost delegated directories with managed groups below them.
    tops: Vec<String>,
    problems: Vec<Problem>,
    priors: Arc<Priors>,
}

/// A directory to walk.
#[derive(Default)]
struct Place {
    path: String,
    /// Index of the topmost delegated directory at or above it.
    top: Option<usize>,
}

/// A topmost delegated directory or a container of root's, and how much of it was walked.
struct Top {
    path: String,
    directories: usize,
    groups: usize,
    /// A problem below it was already reported.
    told: bool,
}

/// One walk through the tree.
#[derive(Default)]
struct Walk {
    /// Groups of the previous scan that were not met yet.
    known: HashMap<GroupId, Discovered>,
    /// A group came, went, or has another name or weight, another source or record of its weight.
    changed: bool,
    /// Paths below which nothing could be read.
    unread: Vec<String>,
    tops: Vec<Top>,
}

impl Walk {
    /// Records a topmost delegated directory.
    fn add_top(&mut self, path: &str) -> usize {
        self.tops.push(Top {
            path: path.to_owned(),
            directories: 0,
            groups: 0,
            told: false,
        });
        self.tops.len() - 1
    }

    /// True if this path, or one above it, could not be read, so that its groups are unknown.
    fn is_unread(&self, path: &str) -> bool {
        let covers = |unread: &String| path == unread || is_below(path, unread);
        self.unread.iter().any(covers)
    }
}

impl Scanner {
    pub fn new(fs: Fs, config: DiscoverConfig, runtime: RuntimeDirs) -> Result<Scanner, GlobError> {
        Ok(Scanner {
            fs,
            manage: globs(&config.manage)?,
            also: globs(&config.manage_also)?,
            exclude: globs(&config.exclude)?,
            weights: weighted(&config.weights)?,
            trust: config.trust,
            kubernetes: config.kubernetes,
            records: Records::new(runtime),
            pods: Arc::default(),
            groups: Vec::new(),
            weighed: Vec::new(),
            tops: Vec::new(),
            problems: Vec::new(),
            priors: Arc::default(),
        })
    }

    /// The managed groups, sorted by path: parents before children.
    pub fn groups(&self) -> &[Discovered] {
        &self.groups
    }

    /// The groups above managed ones that have a weight of their own.
    pub fn weighed(&self) -> &[Weighed] {
        &self.weighed
    }

    /// True if this path lies below a delegated directory that has managed groups in it.
    pub fn is_delegated(&self, path: &str) -> bool {
        self.tops.iter().any(|top| is_below(path, top))
    }

    /// Files and directories that the last scan could not read or did not follow; a bounded number of
    /// entries.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The group with this path or name. If there is none, the only group whose path ends with it, or the only
    /// container whose ID begins with it. Other names are never completed: `db` is not `db2`. Groups below a
    /// delegated directory, which a tenant names, are found by path or by an ID of at least twelve digits only.
    pub fn find(&self, what: &str) -> Option<&Discovered> {
        let path = format!("/{}", what.trim_matches('/'));
        let by_path = self.groups.iter().find(|group| group.path == path);
        let roots = || self.groups.iter().filter(|group| !group.delegated);
        let starts = |group: &&Discovered| kind::is_id_of(&group.name, what);
        by_path
            .or_else(|| {
                let called = |group: &&Discovered| {
                    group.name == what || group.alias.as_deref() == Some(what)
                };
                only(roots().filter(called))
            })
            .or_else(|| only(roots().filter(|group| group.path.ends_with(&path))))
            .or_else(|| only(roots().filter(starts)))
            .or_else(|| {
                let ids = |group: &&Discovered| kind::is_id(what) && starts(group);
                only(self.groups.iter().filter(ids))
            })
    }

    /// The attribute by which root states the weight of the group at a path.
    pub fn attribute_of(&self, path: &str) -> &'static str {
        let owner = self.fs.owner(path, None);
        let roots = owner.is_ok_and(|owner| owner.is_trusted(&self.trust));
        if roots && !self.is_delegated(path) && !self.is_roots_container(path) {
            xattr::WEIGHT
        } else {
            xattr::WEIGHT_OF_DELEGATED
        }
    }

    /// True for a container whose directory is root's. Where it is writable inside, the container's root can set
    /// its `user.` attributes.
    fn is_roots_container(&self, path: &str) -> bool {
        let named = || kind::of_path(path).is_some_and(|named| named.kind == Kind::Container);
        let owner = || self.fs.owner(path, None);
        (named() || self.records.is_container(path, false))
            && (self.trust.is_empty() || !owner().is_ok_and(|owner| owner.uid != 0))
    }

    /// True if the records of a user's runtime count for the cgroup at a path.
    fn is_users(&self, path: &str, standing: Standing) -> bool {
        let trusted = || oci::user_of(path).filter(|uid| self.trust.contains(uid));
        let owner = || self.fs.owner(path, None);
        let owns = |uid| owner().is_ok_and(|owner| owner.uid == uid);
        standing == Standing::Inside || trusted().is_some_and(owns)
    }

    /// Sets the values that knobs held before an agent wrote them: this agent, one that runs beside it, or
    /// one that crashed.
    pub fn set_priors(&mut self, priors: impl Into<Arc<Priors>>) {
        self.priors = priors.into();
    }

    /// Sets the pods that a runtime reported. They come before recorded ones, and count at the next scan.
    pub fn set_pods(&mut self, pods: Arc<Pods>) {
        self.pods = pods;
    }

    /// Scans the tree again, and returns whether something changed. A group that vanishes meanwhile is left out. An
    /// error concerns the root.
    pub fn rescan(&mut self) -> Result<bool, Error> {
        self.problems.clear();
        self.records.refresh(&mut self.problems);
        let known = self.groups.drain(..).map(|group| (group.id, group));
        let mut walk = Walk {
            known: known.collect(),
            ..Walk::default()
        };
        let result = self.walk(&mut walk);
        for group in std::mem::take(&mut walk.known).into_values() {
            // A place that was not read does not tell which groups are gone.
            if result.is_err() || walk.is_unread(&group.path) {
                self.groups.push(group);
            } else {
                walk.changed = true;
            }
        }
        self.groups.sort_by(|a, b| a.path.cmp(&b.path));
        result?;
        self.weigh_ancestors(&mut walk);
        let more = self.problems.len().saturating_sub(MOST_PROBLEMS);
        if more > 0 {
            self.problems.truncate(MOST_PROBLEMS);
            self.problems.push(Problem {
                group: None,
                cause: format!("{more} more cgroups or records cannot be read"),
                remedy: "fix the errors that are listed first".to_owned(),
            });
        }
        Ok(walk.changed)
    }

    fn walk(&mut self, walk: &mut Walk) -> Result<(), Error> {
        let mut open = vec![Place::default()];
        let mut children: Vec<Child> = Vec::new();
        while let Some(parent) = open.pop() {
            let root = parent.path.is_empty();
            let path = if root { "/" } else { &parent.path };
            let is_top = parent.top.is_none() && self.is_roots_container(&parent.path);
            let inside = parent.top.or_else(|| is_top.then(|| walk.add_top(path)));
            let most = inside.map_or(usize::MAX, |top| {
                // One more shows whether there are more.
                MOST_DIRECTORIES + 1 - walk.tops[top].directories.min(MOST_DIRECTORIES)
            });
            let listed = self.fs.children(path, most, &mut children);
            match listed {
                Err(error) if root => return Err(error),
                Err(error) => self.leave_unread(walk, inside, &parent.path, &error),
                Ok(()) => {}
            }
            for child in children.drain(..) {
                let path = format!("{}/{}", parent.path, child.name);
                let is_roots = is_top && self.records.is_container(&path, false);
                let top = inside.filter(|_| !is_roots);
                let mut place = Place { path, top };
                if self.exclude.iter().any(|glob| glob.matches(&place.path)) {
                    continue;
                }
                if let Some(top) = inside {
                    walk.tops[top].directories += 1;
                    if walk.tops[top].directories > MOST_DIRECTORIES {
                        self.note_bound(walk, top, "cgroups", MOST_DIRECTORIES);
                        break;
                    }
                }
                let standing = match self.standing(&mut place, walk) {
                    Ok(standing) => standing,
                    Err(error) => {
                        self.leave_unread(walk, place.top, &place.path, &error);
                        continue;
                    }
                };
                let known = walk.known.contains_key(&child.id);
                let found = self.classify(&place.path, standing, known);
                let enter = self.is_worth_entering(&place.path, found.as_ref());
                if let Some(named) = found {
                    let old = walk.known.remove(&child.id);
                    self.take(&place, standing, named, old, walk);
                }
                if enter {
                    open.push(place);
                }
            }
        }
        Ok(())
    }

    /// Finds out whose a directory is. Records a topmost delegated one.
    fn standing(&self, place: &mut Place, walk: &mut Walk) -> Result<Standing, Error> {
        if place.top.is_some() {
            return Ok(Standing::Inside);
        }
        if self.fs.owner(&place.path, None)?.is_trusted(&self.trust) {
            return Ok(Standing::Roots);
        }
        place.top = Some(walk.add_top(&place.path));
        Ok(Standing::DelegationRoot)
    }

    /// Records that this path cannot be read. Known groups at and below it stay.
    fn leave_unread(&mut self, walk: &mut Walk, top: Option<usize>, path: &str, error: &Error) {
        if !error.is_gone() {
            walk.unread.push(path.to_owned());
            self.tell(walk, top, Problem::of(path, error));
        }
    }

    /// Reports a problem, but only one for each delegated subtree, whatever its owner makes there.
    fn tell(&mut self, walk: &mut Walk, top: Option<usize>, problem: Problem) {
        let told = top.is_some_and(|top| std::mem::replace(&mut walk.tops[top].told, true));
        if !told {
            self.problems.push(problem);
        }
    }

    fn note_bound(&mut self, walk: &mut Walk, top: usize, what: &str, most: usize) {
        let path = walk.tops[top].path.clone();
        let problem = Problem {
            cause: format!("more than {most} {what} below the delegated cgroup {path}; the others are left alone"),
            remedy: "let its owner remove some, or exclude it in the configuration".to_owned(),
            group: Some(path),
        };
        self.tell(walk, Some(top), problem);
    }

    /// Reads the weights of the groups above managed ones: a topmost delegated directory always has one,
    /// others only if somebody gave them one.
    fn weigh_ancestors(&mut self, walk: &mut Walk) {
        self.tops.retain(|top| walk.is_unread(top));
        let tops = walk.tops.iter().filter(|top| top.groups > 0);
        self.tops.extend(tops.map(|top| top.path.clone()));
        let known = std::mem::take(&mut self.weighed);
        let groups = self.groups.iter();
        let ancestors = groups.flat_map(|group| {
            let slashes = group.path.match_indices('/').skip(1);
            slashes.map(|(end, _)| group.path[..end].to_owned())
        });
        let mut ancestors: BTreeSet<String> = ancestors.collect();
        for group in &self.groups {
            ancestors.remove(&group.path);
        }
        for path in ancestors {
            let top = self.tops.contains(&path);
            let standing = match top {
                true => Standing::DelegationRoot,
                false if self.is_delegated(&path) => Standing::Inside,
                false if self.is_roots_container(&path) => Standing::DelegationRoot,
                false => Standing::Roots,
            };
            let known = known.iter().find(|known| known.path == path);
            let group = match self.fs.open(&path) {
                Ok(group) => group,
                Err(error) => {
                    let stays = known.filter(|_| !error.is_gone());
                    self.weighed.extend(stays.cloned());
                    continue;
                }
            };
            let weighed = self.file_weight(&group, standing).and_then(|file| {
                let record = self.records.of_cgroup(&path, None, false);
                let Known { stated, .. } = self.known(&path, record, standing);
                weight::of_group(&group, standing, &self.weights, stated, file)
            });
            let before = known.map_or((Weight::DEFAULT, WeightSource::Default), |known| {
                (known.weight, known.source)
            });
            let (weight, source) = weighed.unwrap_or(before);
            let given = top || source != WeightSource::Default;
            walk.changed |= before != (weight, source) || known.is_some() != given;
            if given {
                self.weighed.push(Weighed {
                    path,
                    weight,
                    source,
                });
            }
        }
    }

    /// The group at a path, if it is one to manage. `known`: it was managed before.
    fn classify(&self, path: &str, standing: Standing, known: bool) -> Option<Named> {
        let called = |kind| Named {
            kind,
            name: last(path).to_owned(),
        };
        let recorded = || {
            let users = self.is_users(path, standing);
            let container = self.records.is_container(path, users);
            container.then(|| called(Kind::Container))
        };
        let named = kind::of_path(path);
        let mut globs = self.manage.iter().chain(&self.also);
        if globs.any(|glob| glob.matches(path)) {
            return named.or_else(recorded).or(Some(called(Kind::Group)));
        }
        if !self.manage.is_empty() {
            return None;
        }
        named
            .filter(|named| named.kind != Kind::Service)
            .or_else(recorded)
            .or_else(|| {
                kind::managed_by_weight(path).filter(|_| self.states_weight(path, standing, known))
            })
    }

    /// True if root gave a group a weight in the kernel's files. If they cannot be read, the previous answer
    /// stands.
    fn states_weight(&self, path: &str, standing: Standing, known: bool) -> bool {
        if standing == Standing::Inside {
            return false;
        }
        let group = self.fs.open(path);
        let weight = group.and_then(|group| self.file_weight(&group, standing));
        weight.map_or(known, |weight| weight.is_some())
    }

    fn is_worth_entering(&self, path: &str, found: Option<&Named>) -> bool {
        let inside = found.is_some_and(|named| matches!(named.kind, Kind::Container | Kind::Vm));
        let mut globs = self.manage.iter().chain(&self.also);
        self.manage.is_empty() && !inside || globs.any(|glob| glob.may_match_below(path))
    }

    /// Puts a group on the list, known or new. If its weight cannot be read, it keeps the weight it had.
    fn take(
        &mut self,
        place: &Place,
        standing: Standing,
        named: Named,
        old: Option<Discovered>,
        walk: &mut Walk,
    ) {
        let inside = place.top.filter(|_| standing == Standing::Inside);
        let standing = match standing {
            Standing::Roots if self.is_roots_container(&place.path) => Standing::DelegationRoot,
            other => other,
        };
        if let Some(top) = inside {
            walk.tops[top].groups += 1;
            if walk.tops[top].groups > MOST_GROUPS {
                self.note_bound(walk, top, "groups to manage", MOST_GROUPS);
                walk.changed |= old.is_some();
                return;
            }
        }
        let was_known = old.is_some();
        let met = match old {
            Some(old) => Ok(old),
            None => self.meet(&place.path, named),
        };
        let mut entry = match met {
            Ok(entry) => entry,
            Err(error) => {
                if !error.is_gone() {
                    self.tell(walk, place.top, Problem::of(&place.path, &error));
                }
                return;
            }
        };
        let users = self.is_users(&place.path, standing);
        let record = self
            .records
            .of_cgroup(&place.path, Some(&entry.name), users);
        let Known { names, stated } = self.known(&place.path, record, standing);
        // A tenant chooses the names of its groups, and so which of root's records they seem to have.
        let borrows = |record: &&Record| {
            let is_its = record.cgroup.as_ref() == Some(&place.path);
            standing == Standing::Inside && record.author == Author::Root && !is_its
        };
        let alias = record
            .filter(|record| !borrows(record))
            .and_then(|record| record.name.clone())
            .or_else(|| names.as_ref().map(PodNames::alias));
        walk.changed |= was_known && (&entry.alias, &entry.pod) != (&alias, &names);
        (entry.alias, entry.pod) = (alias, names);
        let recorded = record.and_then(|record| record.block_io);
        let before = (entry.weight, entry.source, entry.recorded);
        entry.recorded = recorded;
        let file = match stated.first {
            Some(_) => Ok(None),
            None => self.file_weight(&entry.group, standing),
        };
        let of_group = |file| weight::of_group(&entry.group, standing, &self.weights, stated, file);
        match file.and_then(of_group) {
            Ok((weight, source)) => {
                walk.changed |= (weight, source, recorded) != before;
                entry.weight = weight;
                entry.source = source;
            }
            Err(error) if error.is_gone() => {
                walk.changed |= was_known;
                return;
            }
            Err(error) => {
                self.tell(walk, place.top, Problem::of(&place.path, &error));
                if !was_known {
                    return;
                }
            }
        }
        walk.changed |= !was_known;
        entry.delegated = inside.is_some();
        self.groups.push(entry);
    }

    fn meet(&self, path: &str, named: Named) -> Result<Discovered, Error> {
        let group = self.fs.open(path)?;
        Ok(Discovered {
            id: group.id(),
            group,
            path: path.to_owned(),
            kind: named.kind,
            name: named.name,
            alias: None,
            pod: None,
            weight: Weight::DEFAULT,
            source: WeightSource::Default,
            recorded: None,
            delegated: false,
        })
    }

    /// The names that Kubernetes has for a group, and the weights that Kubernetes and a runtime's record
    /// state.
    fn known(&self, path: &str, record: Option<&Record>, standing: Standing) -> Known {
        let mut known = match standing {
            Standing::Inside => Known::default(),
            Standing::Roots | Standing::DelegationRoot => {
                let sources = [&*self.pods, self.records.pods()];
                kubernetes::known(&self.kubernetes, sources, path)
            }
        };
        known.stated.first = known.stated.first.or_else(|| record?.stated());
        known
    }

    /// The weight in a group's kernel files. Files that a tenant may write do not count outside, even if the
    /// directory is root's.
    fn file_weight(&self, group: &Group, standing: Standing) -> Result<Option<Weight>, Error> {
        let tenants = |file| {
            let owner = self.fs.owner(group.path(), Some(file));
            owner.is_ok_and(|owner| !owner.is_trusted(&self.trust))
        };
        let mut files = Knob::weights().map(File::of_knob);
        if standing != Standing::Inside && files.any(tenants) {
            return Ok(None);
        }
        weight::of_files(group, &self.priors)
    }
}

fn globs(texts: &[String]) -> Result<Vec<Glob>, GlobError> {
    texts.iter().map(|text| Glob::new(text)).collect()
}

/// The configured weights.
pub(crate) fn weighted(weights: &[(String, Weight)]) -> Result<Vec<(Glob, Weight)>, GlobError> {
    let weights = weights.iter();
    weights
        .map(|(text, weight)| Ok((Glob::new(text)?, *weight)))
        .collect()
}

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The only item, if there is exactly one.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}
