//! result.json: the whole experiment, its environment, its figures and its record. The layout is the same for
//! all experiments that compare policies; their settings and the figures of a policy differ.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::hostile::HostileFigures;
use crate::policy::Policy;
use crate::protocol::Facts;

/// Version of the layout; a reader refuses a newer one.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document<S, R> {
    pub schema: u32,
    pub experiment: String,
    /// `uname -r` of the guest.
    pub kernel: String,
    pub environment: Environment<S>,
    pub policies: BTreeMap<Policy, R>,
    /// Effects of a hostile tenant on the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostile: Option<HostileFigures>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment<S> {
    pub command: String,
    pub justitia_version: String,
    /// End of the experiment, seconds since 1970.
    pub recorded_at_s: u64,
    /// Facts that the guest read back.
    pub guest: Facts,
    pub machine: Facts,
    /// Every choice, with its default resolved.
    #[serde(flatten)]
    pub settings: S,
}

impl<S, R> Document<S, R>
where
    Self: DeserializeOwned,
{
    /// Parses result.json.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if document.schema > SCHEMA {
            return Err(format!(
                "its schema is {}, newer than {SCHEMA}",
                document.schema
            ));
        }
        Ok(document)
    }
}

/// The environment of an experiment that has not started.
pub fn environment<S>(settings: S, command: String) -> Environment<S> {
    Environment {
        command,
        justitia_version: env!("CARGO_PKG_VERSION").to_owned(),
        recorded_at_s: 0,
        guest: Facts::new(),
        machine: Facts::new(),
        settings,
    }
}
