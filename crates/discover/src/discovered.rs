//! What a scan is told, and what it finds.

use justitia_cgroup::{Error, Group, GroupId};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use crate::{Kind, KubernetesConfig, PodNames};

/// What the operator says about discovery.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiscoverConfig {
    /// Globs of groups to manage; none: containers, pods and virtual machines.
    pub manage: Vec<String>,
    /// Globs of groups to manage beside these.
    pub manage_also: Vec<String>,
    /// Globs of groups never to manage, nor what is below them.
    pub exclude: Vec<String>,
    /// Weights by glob; the first that matches counts.
    pub weights: Vec<(String, Weight)>,
    /// Users whose cgroup directories count as root's.
    pub trust: Vec<u32>,
    /// Weights of pods.
    pub kubernetes: KubernetesConfig,
}

/// Something that a scan could not read or would not follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The cgroup, if it is about one.
    pub group: Option<String>,
    /// What is wrong, one line.
    pub cause: String,
    /// What to do about it, one line.
    pub remedy: &'static str,
}

impl Trouble {
    pub(crate) fn of(path: &str, error: &Error) -> Trouble {
        Trouble {
            group: Some(path.to_owned()),
            cause: error.to_string(),
            remedy: error.remedy(),
        }
    }
}

/// A group that is not managed and has managed groups below it, which divide what its weight is entitled to:
/// one that was given a weight, or the topmost directory of a subtree that root delegated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weighed {
    /// Its path.
    pub path: String,
    /// Its weight; of a delegated subtree by root's word, or the default.
    pub weight: Weight,
    /// Where the weight came from.
    pub source: WeightSource,
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
    /// What its owner calls it, if that is something else; of a pod `namespace/pod`.
    pub alias: Option<String>,
    /// What Kubernetes calls it.
    pub pod: Option<PodNames>,
    /// Its weight.
    pub weight: Weight,
    /// Where the weight came from.
    pub source: WeightSource,
    /// The `blockIO.weight` of its runtime's record, which the runtime writes to the kernel's files.
    pub recorded: Option<Weight>,
    /// It lies below a directory that root delegated.
    pub delegated: bool,
}

/// What a scan found to be different.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Groups that are new.
    pub added: Vec<GroupId>,
    /// Groups that are gone, or no longer to be managed.
    pub removed: Vec<GroupId>,
    /// Groups whose weight or its source changed, or their runtime's record of it.
    pub reweighted: Vec<GroupId>,
    /// Groups that are called otherwise.
    pub renamed: Vec<GroupId>,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        [&self.added, &self.removed, &self.reweighted, &self.renamed]
            .iter()
            .all(|groups| groups.is_empty())
    }
}
