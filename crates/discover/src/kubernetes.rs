//! Kubernetes: the names and the weight of a pod. Pure.
//!
//! A pod asks for a weight by the annotation `justitia.io/weight`, and for the weight of one of its
//! containers, within the pod, by `justitia.io/weight.CONTAINER`. Anyone who may create pods writes
//! annotations, so they are the tenant's text. A pod therefore gets at most the cap that the configuration
//! has for its namespace, or, without one, the default of its QoS class. A container's weight divides its
//! pod's entitlement, and needs no cap.
//!
//! The kubelet does not pass a pod's `PriorityClass` to the runtime, so it cannot count here.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use crate::weight::Stated;
use crate::{kind, Kind};

/// The annotation by which a pod asks for a weight. With a dot and a container's name, it is that
/// container's.
pub const ANNOTATION: &str = "justitia.io/weight";

/// The key of the cap for every namespace without one of its own.
pub const EVERY_NAMESPACE: &str = "*";

/// Names of namespaces, pods and containers are at most this long (RFC 1123 subdomain).
const LONGEST_NAME: usize = 253;
/// Containers of one pod whose weights are kept, at most.
const MOST_WEIGHTS: usize = 64;

/// The operator's settings for pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// The runtime that reports pods ([`Scanner::set_pods`](crate::Scanner::set_pods)).
    pub nri: Nri,
    /// The weight of a pod of QoS class `Guaranteed` that asks for none.
    pub guaranteed: Weight,
    /// The weight of a `Burstable` pod that asks for none.
    pub burstable: Weight,
    /// The weight of a `BestEffort` pod that asks for none.
    pub best_effort: Weight,
    /// The highest weight of a pod, by namespace or [`EVERY_NAMESPACE`].
    pub caps: BTreeMap<String, Weight>,
}

/// The socket where a runtime reports pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Nri {
    /// At the usual socket, if somebody listens there.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// At this socket.
    At(PathBuf),
}

impl Default for KubernetesConfig {
    fn default() -> KubernetesConfig {
        let weight = |value| Weight::new(value).expect("in range");
        KubernetesConfig {
            nri: Nri::default(),
            guaranteed: weight(400),
            burstable: weight(200),
            best_effort: weight(50),
            caps: BTreeMap::new(),
        }
    }
}

impl KubernetesConfig {
    fn default_of(&self, class: Qos) -> Weight {
        match class {
            Qos::Guaranteed => self.guaranteed,
            Qos::Burstable => self.burstable,
            Qos::BestEffort => self.best_effort,
        }
    }

    /// The highest weight that a pod may have. A pod whose namespace is not known is capped at its class's
    /// default.
    fn cap(&self, class: Qos, namespace: Option<&str>) -> Weight {
        let own = namespace.and_then(|name| self.caps.get(name).or(self.caps.get(EVERY_NAMESPACE)));
        own.copied().unwrap_or_else(|| self.default_of(class))
    }

    /// The weight that a pod's annotation gives it; `None` if it has none.
    pub(crate) fn asked(&self, class: Qos, pod: Option<&Pod>) -> Option<(Weight, WeightSource)> {
        let pod = pod?;
        let (asked, cap) = (pod.weight?, self.cap(class, Some(&pod.namespace)));
        Some(if asked <= cap {
            (asked, WeightSource::PodAnnotation)
        } else {
            (cap, WeightSource::PodCap)
        })
    }

    /// The weight of a pod for which nobody stated one.
    pub(crate) fn unasked(&self, class: Qos, pod: Option<&Pod>) -> (Weight, WeightSource) {
        let namespace = pod.map(|pod| pod.namespace.as_str());
        let weight = self.default_of(class).min(self.cap(class, namespace));
        (weight, WeightSource::QosClass)
    }
}

/// The quality of service of a pod. The kubelet makes a cgroup for each class but the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// Limits equal requests, for every container.
    Guaranteed,
    /// Some container has a request or a limit.
    Burstable,
    /// No container has a request or a limit.
    BestEffort,
}

impl Qos {
    /// The class of the pod with this cgroup; `None` if the kubelet did not make the cgroup.
    ///
    /// systemd: `…/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`; cgroupfs:
    /// `…/kubepods/burstable/pod<uid>`. Pods of class `Guaranteed` are right below `kubepods`.
    pub fn of_pod(path: &str) -> Option<Qos> {
        let (above, last) = path.rsplit_once('/')?;
        let parent = above.rsplit('/').next().unwrap_or(above);
        let class = match last.strip_suffix(".slice") {
            Some(unit) => {
                let (class, _) = unit.rsplit_once("-pod")?;
                class.rsplit('-').next().unwrap_or(class)
            }
            None => last.strip_prefix("pod").and(Some(parent))?,
        };
        match class {
            "kubepods" => Some(Qos::Guaranteed),
            "burstable" => Some(Qos::Burstable),
            "besteffort" => Some(Qos::BestEffort),
            _ => None,
        }
    }
}

/// Facts about a pod, besides its cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    /// The weight it asks for.
    pub weight: Option<Weight>,
    /// The weights of its containers, by name.
    pub weights: BTreeMap<String, Weight>,
}

impl Pod {
    /// A pod with these names and annotations; `None` if the names are not valid.
    pub fn new<'a>(
        namespace: &str,
        name: &str,
        annotations: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Option<Pod> {
        let mut pod = Pod {
            namespace: checked(namespace)?,
            name: checked(name)?,
            ..Pod::default()
        };
        pod.read(annotations);
        Some(pod)
    }

    fn names(&self, container: Option<&str>) -> PodNames {
        PodNames {
            namespace: self.namespace.clone(),
            pod: self.name.clone(),
            container: container.map(str::to_owned),
        }
    }

    /// Takes the weights from annotations. A text that does not parse is no weight.
    fn read<'a>(&mut self, annotations: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (key, text) in annotations {
            let of = key.strip_prefix(ANNOTATION);
            let Some((of, weight)) = of.zip(crate::weight::parse(text)) else {
                continue;
            };
            match of.strip_prefix('.').and_then(checked) {
                Some(container) if self.weights.len() < MOST_WEIGHTS => {
                    self.weights.insert(container, weight);
                }
                None if of.is_empty() => self.weight = Some(weight),
                _ => {}
            }
        }
    }
}

/// A valid name, or `None`. Names are shown to people and kept.
pub(crate) fn checked(name: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let good = !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(fits);
    good.then(|| name.to_owned())
}

/// The names that Kubernetes has for a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNames {
    pub namespace: String,
    pub pod: String,
    /// The container, if the group is one.
    pub container: Option<String>,
}

impl PodNames {
    /// `namespace/pod` or `namespace/pod/container`.
    pub(crate) fn alias(&self) -> String {
        let mut alias = format!("{}/{}", self.namespace, self.pod);
        if let Some(container) = &self.container {
            alias.push('/');
            alias.push_str(container);
        }
        alias
    }
}

/// Pods by uid, and containers by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pods {
    pods: HashMap<String, Pod>,
    /// The pod's uid and the container's name, by container ID.
    containers: HashMap<String, (String, String)>,
}

impl Pods {
    /// Adds a pod. If it is known already, adds only the weights that it lacks.
    pub fn add_pod(&mut self, uid: &str, pod: Pod) {
        match self.pods.get_mut(uid) {
            None => {
                self.pods.insert(uid.to_owned(), pod);
            }
            Some(known) => {
                known.weight = known.weight.or(pod.weight);
                let more = MOST_WEIGHTS.saturating_sub(known.weights.len());
                for (container, weight) in pod.weights.into_iter().take(more) {
                    known.weights.entry(container).or_insert(weight);
                }
            }
        }
    }

    /// Adds a container of a pod, unless its name is not valid.
    pub fn add_container(&mut self, id: &str, uid: &str, name: &str) {
        if let Some(name) = checked(name) {
            let container = (uid.to_owned(), name);
            self.containers.insert(id.to_owned(), container);
        }
    }

    pub fn pod(&self, uid: &str) -> Option<&Pod> {
        self.pods.get(uid)
    }

    pub fn container(&self, id: &str) -> Option<(&Pod, &str)> {
        let (uid, name) = self.containers.get(id)?;
        Some((self.pods.get(uid)?, name))
    }

    /// Number of pods and of containers.
    pub fn count(&self) -> (usize, usize) {
        (self.pods.len(), self.containers.len())
    }
}

/// Facts about a group from Kubernetes.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) names: Option<PodNames>,
    pub(crate) stated: Stated,
}

/// Facts about a group in the kubelet's tree. The first of `sources` that knows the pod counts.
pub(crate) fn known(config: &KubernetesConfig, sources: [&Pods; 2], path: &str) -> Known {
    let above = path.rsplit_once('/').map_or("", |(above, _)| above);
    match kind::of_path(path) {
        Some(of) if of.kind == Kind::Pod => of_pod(config, sources, path, &of.name),
        Some(of) if of.kind == Kind::Container && Qos::of_pod(above).is_some() => {
            of_container(sources, &of.name)
        }
        _ => Known::default(),
    }
}

fn of_pod(config: &KubernetesConfig, sources: [&Pods; 2], path: &str, uid: &str) -> Known {
    let Some(class) = Qos::of_pod(path) else {
        return Known::default();
    };
    let pod = sources.into_iter().find_map(|pods| pods.pod(uid));
    Known {
        names: pod.map(|pod| pod.names(None)),
        stated: Stated {
            first: config.asked(class, pod),
            last: Some(config.unasked(class, pod)),
        },
    }
}

fn of_container(sources: [&Pods; 2], id: &str) -> Known {
    let found = sources.into_iter().find_map(|pods| pods.container(id));
    let Some((pod, name)) = found else {
        return Known::default();
    };
    let weight = pod.weights.get(name);
    Known {
        names: Some(pod.names(Some(name))),
        stated: Stated {
            first: weight.map(|weight| (*weight, WeightSource::PodAnnotation)),
            last: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLASSES: [Qos; 3] = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort];

    fn weight(value: u32) -> Weight {
        Weight::new(value).unwrap()
    }

    fn any_weight() -> impl Strategy<Value = Weight> {
        (1..=10_000u32).prop_map(weight)
    }

    prop_compose! {
        fn any_config()(
            (guaranteed, burstable, best_effort) in (any_weight(), any_weight(), any_weight()),
            caps in prop::collection::btree_map("[ab*]", any_weight(), 0..4),
        ) -> KubernetesConfig {
            KubernetesConfig { nri: Nri::Auto, guaranteed, burstable, best_effort, caps }
        }
    }

    fn given(config: &KubernetesConfig, class: Qos, pod: Option<&Pod>) -> (Weight, WeightSource) {
        let asked = config.asked(class, pod);
        asked.unwrap_or_else(|| config.unasked(class, pod))
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_the_namespaces_cap_or_without_one_the_classs_default(
            config in any_config(), class in prop::sample::select(&CLASSES[..]),
            namespace in "[abc]", asked in prop::option::of(any_weight()),
        ) {
            let pod = Pod { namespace, weight: asked, ..Pod::default() };
            let cap = config.caps.get(&pod.namespace).or(config.caps.get("*")).copied();
            let most = cap.unwrap_or_else(|| config.default_of(class));
            let (got, source) = given(&config, class, Some(&pod));
            prop_assert_eq!(got, asked.unwrap_or_else(|| config.default_of(class)).min(most));
            prop_assert_eq!(source == WeightSource::PodCap, asked.is_some_and(|asked| asked > most));
        }

        #[test]
        fn asking_for_more_never_gives_less_and_raising_a_cap_takes_from_nobody(
            config in any_config(), class in prop::sample::select(&CLASSES[..]),
            asked in (any_weight(), any_weight()), raised in any_weight(),
        ) {
            let pod = |weight| Pod { namespace: "a".into(), weight: Some(weight), ..Pod::default() };
            let of = |config: &KubernetesConfig, weight| given(config, class, Some(&pod(weight))).0;
            let (less, more) = (asked.0.min(asked.1), asked.0.max(asked.1));
            prop_assert!(of(&config, less) <= of(&config, more));
            let mut roomier = config.clone();
            let cap = config.cap(class, Some("a")).max(raised);
            roomier.caps.insert("a".into(), cap);
            prop_assert!(of(&config, more) <= of(&roomier, more));
        }

        #[test]
        fn no_annotation_is_a_weight_out_of_range_nor_kept_beyond_a_bound(
            annotations in prop::collection::vec(("(justitia.io/weight|x)(\\.[a-z]{0,2})?", "-?[0-9a-z]{0,6}"), 0..200),
        ) {
            let pairs = annotations.iter().map(|(key, text)| (key.as_str(), text.as_str()));
            let pod = Pod::new("shop", "db", pairs).unwrap();
            let last = annotations.iter().rev().find(|(key, text)| {
                key == ANNOTATION && text.parse().is_ok_and(|value: u32| Weight::new(value).is_ok())
            });
            prop_assert_eq!(pod.weight.map(Weight::get), last.map(|(_, text)| text.parse().unwrap()));
            prop_assert!(pod.weights.len() <= MOST_WEIGHTS);
        }

        #[test]
        fn no_path_panics(path in "(/|-|[a-zé_.]|kubepods|burstable|besteffort|pod|\\.slice){0,12}") {
            let _ = Qos::of_pod(&path);
        }
    }

    #[test]
    fn the_qos_class_is_known_by_the_cgroup_that_the_kubelet_makes() {
        for (path, class) in [
            ("/kubepods.slice/kubepods-pod1_2.slice", Some(Qos::Guaranteed)),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice",
                Some(Qos::Burstable),
            ),
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod1.slice",
                Some(Qos::BestEffort),
            ),
            ("/kubepods/pod1-2", Some(Qos::Guaranteed)),
            ("/kubepods/burstable/pod1-2", Some(Qos::Burstable)),
            ("/k/kubepods/besteffort/pod1-2", Some(Qos::BestEffort)),
            ("/machine.slice/machine-libpod_pod_12.slice", None),
            ("/kubepods/burstable", None),
            ("/app/pod1", None),
        ] {
            assert_eq!(Qos::of_pod(path), class, "{path}");
        }
    }

    #[test]
    fn a_pod_whose_name_has_invalid_characters_is_none() {
        for name in ["", "a\u{1b}[2J", "a b", "ä", &"x".repeat(254)] {
            assert_eq!(Pod::new(name, "db", []), None, "{name:?}");
        }
        assert!(Pod::new("kube-system", "coredns-5d78c9869d-abcde", []).is_some());
    }
}
