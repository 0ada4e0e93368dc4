//! `[kubernetes]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use justitia_discover::kubernetes::{KubernetesConfig, EVERY_NAMESPACE};
use justitia_policy::units::Weight;
use serde::{Deserialize, Deserializer};

use super::values::{self, Said};

/// The operator's settings of Kubernetes pods.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesSettings {
    /// The runtime that reports pods.
    #[serde(deserialize_with = "nri")]
    pub nri: Nri,
    /// The weight of a pod of this QoS class that asks for none.
    #[serde(deserialize_with = "values::weight")]
    pub guaranteed: Weight,
    /// The same for this class.
    #[serde(deserialize_with = "values::weight")]
    pub burstable: Weight,
    /// The same for this class.
    #[serde(deserialize_with = "values::weight")]
    pub best_effort: Weight,
    /// The highest weight of a pod by namespace, `*` for the others.
    #[serde(deserialize_with = "caps")]
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

impl Nri {
    /// The socket, and whether a missing listener is a problem.
    pub fn socket(&self) -> Option<(&Path, bool)> {
        match self {
            Nri::Auto => Some((Path::new(justitia_nri::SOCKET), false)),
            Nri::Off => None,
            Nri::At(socket) => Some((socket, true)),
        }
    }
}

impl Default for KubernetesSettings {
    fn default() -> KubernetesSettings {
        let KubernetesConfig {
            guaranteed,
            burstable,
            best_effort,
            caps,
        } = KubernetesConfig::default();
        KubernetesSettings {
            nri: Nri::default(),
            guaranteed,
            burstable,
            best_effort,
            caps,
        }
    }
}

impl KubernetesSettings {
    /// The part that discovery uses.
    pub fn discover(&self) -> KubernetesConfig {
        KubernetesConfig {
            guaranteed: self.guaranteed,
            burstable: self.burstable,
            best_effort: self.best_effort,
            caps: self.caps.clone(),
        }
    }
}

fn nri<'de, D: Deserializer<'de>>(from: D) -> Result<Nri, D::Error> {
    values::text(from, |text| match text {
        "auto" => Ok(Nri::Auto),
        "off" => Ok(Nri::Off),
        path if path.starts_with('/') => Ok(Nri::At(path.into())),
        _ => Err((
            format!("nri {text} is not auto, off or the path of a socket"),
            format!("use for example \"{}\"", justitia_nri::SOCKET),
        )),
    })
}

fn caps<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Weight>, D::Error> {
    #[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Namespace(#[serde(deserialize_with = "namespace")] String);
    #[derive(Deserialize)]
    struct Cap(#[serde(deserialize_with = "values::weight")] Weight);
    let caps = BTreeMap::<Namespace, Cap>::deserialize(from)?.into_iter();
    Ok(caps
        .map(|(Namespace(name), Cap(cap))| (name, cap))
        .collect())
}

fn namespace<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let checked = |text: &str| -> Said<String> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let good = text == EVERY_NAMESPACE || !text.is_empty() && text.bytes().all(fits);
        good.then(|| text.to_owned()).ok_or_else(|| {
            (
                format!("{text:?} is not the name of a namespace"),
                "use a namespace's name, or \"*\" for those that are not listed".into(),
            )
        })
    };
    values::text(from, checked)
}
