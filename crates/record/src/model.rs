//! The contents of a record: sessions and ticks.
//!
//! Units are in the names; times of day are since 1970. The agent also streams ticks on its socket, as JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use justitia_policy::{Config, Plan, Snapshot, State, STATE_VERSION};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The source of ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A running agent.
    Agent,
    /// The recorder itself, which wrote nothing to the host.
    #[default]
    Own,
}

/// A series of ticks recorded in one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// The version of justitia that wrote it.
    pub written_by: String,
    /// The version of the agent whose ticks these are, if it is known.
    pub agent: Option<String>,
    /// The host's boot.
    pub boot_id: String,
    /// The kernel's release.
    pub kernel: String,
    /// Start of the session, milliseconds.
    pub started_unix_ms: u64,
    /// Time between two steps, seconds.
    pub interval_s: f64,
    pub source: Source,
}

/// One step of the policy: its input and its decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Number of steps since the agent began, including this one.
    pub count: u64,
    /// Number of steps between the previous tick and this one that were not recorded.
    #[serde(default)]
    pub missed: u64,
    /// Time of the step, milliseconds.
    #[serde(default)]
    pub at_unix_ms: u64,
    /// Time since the previous step, as the policy was told, nanoseconds.
    #[serde(default)]
    pub elapsed_ns: u64,
    /// The operator's decisions then.
    #[serde(default, deserialize_with = "known_keys")]
    pub config: Config,
    /// The policy's input.
    pub snapshot: Snapshot,
    /// The policy's decisions.
    pub plan: Plan,
    /// The policy's state before this step. Not in every tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Remembered>,
}

/// A state of the policy, with the version of its meaning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    /// The [`STATE_VERSION`] of the writer.
    pub version: u32,
    /// The state. It is not typed, so that the state of another version does not make the tick unreadable.
    pub state: Value,
}

impl Tick {
    /// Time since the previous step.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns)
    }

    /// A time of day for [`Tick::at_unix_ms`] and [`Session::started_unix_ms`]; times before 1970 become 1970.
    pub fn unix_ms(time: SystemTime) -> u64 {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Remembered {
    /// Wraps a state for a record.
    pub fn new(state: &State) -> Option<Remembered> {
        Some(Remembered {
            version: STATE_VERSION,
            state: serde_json::to_value(state).ok()?,
        })
    }

    /// The state, if this version understands it.
    pub fn state(&self) -> Option<State> {
        if self.version != STATE_VERSION {
            return None;
        }
        State::deserialize(&self.state).ok()
    }
}

/// Drops unknown keys. An unknown key in a configuration file is an error, but in a record it is a key of a
/// later version.
fn known_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Config, D::Error> {
    use serde::de::Error as _;
    let mut config = Value::deserialize(deserializer)?;
    let known = serde_json::to_value(Config::default()).map_err(D::Error::custom)?;
    retain_known(&mut config, &known);
    Config::deserialize(&config).map_err(D::Error::custom)
}

fn retain_known(value: &mut Value, known: &Value) {
    let (Value::Object(fields), Value::Object(known)) = (value, known) else {
        return;
    };
    fields.retain(|name, _| known.contains_key(name));
    for (name, field) in fields {
        retain_known(field, &known[name.as_str()]);
    }
}
