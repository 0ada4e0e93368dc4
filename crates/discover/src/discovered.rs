//! The input and the results of a scan.

use justitia_cgroup::{Group, GroupId};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use crate::{Kind, KubernetesConfig, PodNames};

/// The operator's settings for discovery.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiscoverConfig {
    /// Globs of groups to manage. Without any: containers, pods and virtual machines.
    pub manage: Vec<String>,
    /// Globs of groups to manage in addition.
    pub manage_also: Vec<String>,
    /// Globs of groups that are never managed, nor anything below them.
    pub exclude: Vec<String>,
    /// Weights by glob; the first that matches counts.
    pub weights: Vec<(String, Weight)>,
    /// Users whose cgroup directories count as root's.
    pub trust: Vec<u32>,
    /// Weights of pods.
    pub kubernetes: KubernetesConfig,
}

impl DiscoverConfig {
    /// The defaults, with these globs of groups to manage.
    pub fn managing(globs: &[&str]) -> DiscoverConfig {
        DiscoverConfig {
            manage: globs.iter().map(ToString::to_string).collect(),
            ..DiscoverConfig::default()
        }
    }
}

/// A group that is not managed, but has managed groups below it that divide its entitlement: one that was
/// given a weight, or the topmost directory of a subtree that root delegated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weighed {
    pub path: String,
    /// Its weight; for a delegated subtree it is root's word, or the default.
    pub weight: Weight,
    /// Source of the weight.
    pub source: WeightSource,
}

/// A group to manage.
#[derive(Debug, Clone)]
pub struct Discovered {
    pub group: Group,
    pub path: String,
    pub id: GroupId,
    pub kind: Kind,
    /// The name to show.
    pub name: String,
    /// Its owner's name for it, if that differs; `namespace/pod` for a pod.
    pub alias: Option<String>,
    /// Its names in Kubernetes.
    pub pod: Option<PodNames>,
    pub weight: Weight,
    /// Source of the weight.
    pub source: WeightSource,
    /// The `blockIO.weight` of its runtime's record, which the runtime writes to the kernel's files.
    pub recorded: Option<Weight>,
    /// It lies below a directory that root delegated.
    pub delegated: bool,
}
