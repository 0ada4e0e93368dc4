//! What is recorded: sessions and ticks.
//!
//! Units: names end in them; times of day are since 1970. A tick is also what the agent streams
//! on its socket, as JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use justitia_policy::{Config, Plan, Snapshot, State, STATE_VERSION};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Where ticks come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An agent that was running.
    Agent,
    /// The recorder's own eyes; nothing was written to the host.
    #[default]
    Own,
}

/// A stretch of ticks recorded in one go.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// The version of justitia that wrote it.
    pub written_by: String,
    /// The version of the agent whose ticks these are, if it told.
    pub agent: Option<String>,
    /// Which boot of the host.
    pub boot_id: String,
    /// The kernel's release.
    pub kernel: String,
    /// When it began, milliseconds.
    pub started_unix_ms: u64,
    /// Time between two steps, seconds.
    pub interval_s: f64,
    /// Where ticks come from.
    pub source: Source,
}

/// One step of the policy: what it was given and what it made of that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Steps since the agent began, this one included.
    pub count: u64,
    /// Steps since the tick before this one that were not recorded.
    #[serde(default)]
    pub missed: u64,
    /// When it was, milliseconds.
    #[serde(default)]
    pub at_unix_ms: u64,
    /// Time since the step before, as the policy was told, nanoseconds.
    #[serde(default)]
    pub elapsed_ns: u64,
    /// What the operator had decided.
    #[serde(default, deserialize_with = "known_keys")]
    pub config: Config,
    /// What was seen.
    pub snapshot: Snapshot,
    /// What was decided.
    pub plan: Plan,
    /// What the policy remembered before this step. Not in every tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Remembered>,
}

/// A state of the policy with the number of what it means.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    /// [`STATE_VERSION`] of who wrote it.
    pub version: u32,
    /// The state. Not typed, so that another version's does not make the tick unreadable.
    pub state: Value,
}

impl Tick {
    /// Time since the step before.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns)
    }
}

impl Remembered {
    /// For a record.
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

/// A time of day as records keep it; before 1970 is 1970.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Tick {
    /// A time of day for [`Tick::at_unix_ms`] and [`Session::started_unix_ms`].
    pub fn unix_ms(time: SystemTime) -> u64 {
        unix_ms(time)
    }
}

/// A configuration file with a key that nobody knows is wrong; a record with one is of a later
/// version.
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
