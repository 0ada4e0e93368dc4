//! `[kubernetes]`.

use std::collections::BTreeMap;

use justitia_discover::kubernetes::{KubernetesConfig, Nri, EVERY_NAMESPACE};
use justitia_policy::units::Weight;
use serde::{Deserialize, Deserializer};

use super::values::{self, Said};

#[derive(Deserialize)]
#[serde(
    remote = "KubernetesConfig",
    default = "KubernetesConfig::default",
    deny_unknown_fields
)]
pub(super) struct Kubernetes {
    #[serde(deserialize_with = "nri")]
    nri: Nri,
    #[serde(deserialize_with = "values::weight")]
    guaranteed: Weight,
    #[serde(deserialize_with = "values::weight")]
    burstable: Weight,
    #[serde(deserialize_with = "values::weight")]
    best_effort: Weight,
    #[serde(deserialize_with = "caps")]
    caps: BTreeMap<String, Weight>,
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
