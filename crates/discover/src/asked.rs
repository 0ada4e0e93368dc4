//! Answers what one cgroup is, and what weight its owner stated for it outside the kernel's files: in
//! configuration, xattr, pod annotation, OCI annotation or OCI blockIO.
//!
//! It is for those who look at every cgroup of a host once, as the doctor does. [`crate::Scanner`] keeps the
//! agent's list of managed groups, with the same order of preference.

use justitia_cgroup::{xattr, Owner};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use crate::oci::Records;
use crate::scanner::weighted;
use crate::{
    kind, kubernetes, weight, DiscoverConfig, Glob, GlobError, Kind, KubernetesConfig, Pods,
    RuntimeDirs,
};

/// The weights that owners stated.
#[derive(Debug)]
pub struct Owners {
    manage: Vec<Glob>,
    weights: Vec<(Glob, Weight)>,
    trust: Vec<u32>,
    kubernetes: KubernetesConfig,
    records: Records,
}

impl Owners {
    /// Reads the runtimes' records.
    pub fn new(config: &DiscoverConfig, runtime: RuntimeDirs) -> Result<Owners, GlobError> {
        let manage = config.manage.iter().chain(&config.manage_also);
        let manage = manage.map(|glob| Glob::new(glob));
        let mut records = Records::new(runtime);
        records.refresh(&mut Vec::new());
        Ok(Owners {
            manage: manage.collect::<Result<_, _>>()?,
            weights: weighted(&config.weights)?,
            trust: config.trust.clone(),
            kubernetes: config.kubernetes.clone(),
            records,
        })
    }

    /// The kind of workload that a group holds: a container, a pod, a virtual machine, or a group that the
    /// configuration manages. `None` if nothing shows that it holds one.
    pub fn workload(&self, path: &str) -> Option<Kind> {
        let named = kind::of_path(path).map(|named| named.kind);
        if self.manage.iter().any(|glob| glob.matches(path)) {
            return Some(named.unwrap_or(Kind::Group));
        }
        let recorded = || {
            let container = self.records.is_container(path, true);
            container.then_some(Kind::Container)
        };
        named
            .filter(|kind| *kind != Kind::Service)
            .or_else(recorded)
    }

    /// The attributes that may state a group's weight, the one that comes first before the other. `owner` is its
    /// directory's; `inside`: it lies below a container, or below a directory that root delegated.
    pub fn attributes(
        &self,
        path: &str,
        owner: Option<Owner>,
        inside: bool,
    ) -> &'static [&'static str] {
        let named = kind::of_path(path).is_some_and(|named| named.kind == Kind::Container);
        let recorded = self.records.is_container(path, false);
        match owner.filter(|owner| owner.is_trusted(&self.trust)) {
            _ if inside && !recorded => &[xattr::WEIGHT_OF_DELEGATED, xattr::WEIGHT],
            Some(owner) if owner.uid != 0 || !(named || recorded) => &[xattr::WEIGHT],
            _ => &[xattr::WEIGHT_OF_DELEGATED],
        }
    }

    /// The weight stated for a group; `xattr` is the text of its attribute.
    pub fn weight(&self, path: &str, xattr: Option<&str>) -> Option<(Weight, WeightSource)> {
        if let Some((_, weight)) = self.weights.iter().find(|(glob, _)| glob.matches(path)) {
            return Some((*weight, WeightSource::Config));
        }
        if let Some(weight) = xattr.and_then(weight::parse) {
            return Some((weight, WeightSource::Xattr));
        }
        let name = kind::of_path(path).map(|named| named.name);
        let sources = [&Pods::default(), self.records.pods()];
        let of_pod = kubernetes::known(&self.kubernetes, sources, path).stated;
        let record = self.records.of_cgroup(path, name.as_deref(), true);
        of_pod.first.or_else(|| record?.stated())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners() -> Owners {
        let config = DiscoverConfig {
            manage: vec!["/app/*".into()],
            weights: vec![("/app/db".into(), Weight::new(800).unwrap())],
            ..DiscoverConfig::default()
        };
        Owners::new(&config, RuntimeDirs::none()).unwrap()
    }

    #[test]
    fn a_service_is_a_workload_only_when_the_configuration_has_it_managed() {
        let owners = owners();
        assert_eq!(owners.workload("/app/db"), Some(Kind::Group));
        assert_eq!(owners.workload("/app/x.service"), Some(Kind::Service));
        assert_eq!(owners.workload("/system.slice/cron.service"), None);
        let container = "/system.slice/docker-0123456789ab.scope";
        assert_eq!(owners.workload(container), Some(Kind::Container));
    }

    #[test]
    fn a_container_of_a_trusted_user_states_its_weight_as_that_user_and_one_of_roots_does_not() {
        let mut owners = owners();
        owners.trust = vec![1000];
        let container = "/system.slice/docker-0123456789ab.scope";
        let attributes = |uid, path| {
            let owner = Some(Owner {
                uid,
                ..Owner::default()
            });
            owners.attributes(path, owner, false)
        };
        assert_eq!(attributes(1000, container), [xattr::WEIGHT]);
        assert_eq!(attributes(0, container), [xattr::WEIGHT_OF_DELEGATED]);
        assert_eq!(attributes(0, "/app/db"), [xattr::WEIGHT]);
        assert_eq!(attributes(1001, "/app/db"), [xattr::WEIGHT_OF_DELEGATED]);
    }

    #[test]
    fn the_configuration_wins_over_the_attribute_and_nonsense_is_no_weight() {
        let owners = owners();
        let weight = |path, xattr| owners.weight(path, xattr).map(|(weight, _)| weight.get());
        assert_eq!(weight("/app/db", Some("300")), Some(800));
        assert_eq!(weight("/app/web", Some("300")), Some(300));
        assert_eq!(weight("/app/web", Some("heavy")), None);
        assert_eq!(weight("/app/web", None), None);
    }
}
