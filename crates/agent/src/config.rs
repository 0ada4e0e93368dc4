//! The configuration file: TOML, every key checked.
//!
//! ```toml
//! mode = "proportional"        # observe, justitia, proportional, memoplight
//! objective = "fair"           # fair, strict
//! interval = "1s"
//! manage = ["/app/*"]          # none: the containers, pods and VMs that are found
//! exclude = ["/app/backup"]
//! observer = "auto"            # auto, bpf, proc: what counts the traffic
//! listen = "127.0.0.1:9619"    # where justitia-web has the live page and metrics; "off" for none
//! color_ttl = "5s"             # a declared color that does not change for longer is stale
//! color_period = "1s"          # how often memory is taken from a group that is well ...
//! color_percent = 2.0          # ... and how much of what it holds
//! color_yellow = true          # yellow groups give too
//! [weights]
//! "/app/db" = 800              # path or glob; an exact path wins, then the longest glob
//! [feedback]                   # see justitia_policy::config::FeedbackConfig; the defaults:
//! smoothing_s = 5.0
//! integral_per_s = 0.2
//! proportional = 0.2
//! gain_limit = 8.0
//! dead_band = 0.02
//! stall_share = 0.05
//! [memoplight]                 # the mode of this name
//! working_set = false          # nothing is taken below the learned working set
//! [guard]                      # free memory before somebody needs it
//! enabled = false
//! reserve = "2%"               # kept free above the watermarks; a part of memory, or "512M"
//! root_share = "10%"           # page cache of the root cgroup and of what nobody manages
//! [gate]                       # the optional kernel module; modes justitia and proportional
//! enabled = false
//! order = "stride"             # stride, aging (the paper's), fifo
//! aging = 100                  # with order aging: what a waiter gains when it is passed over
//! [doctor]                     # findings of justitia doctor that are accepted
//! silence = [{ check = "swap-none", reason = "no swap by decision" }]
//! ```
//!
//! A key nobody knows is refused, with its line and the nearest key there is: a misspelt key that
//! is ignored looks like a feature that does not work.

mod colors;
mod doctor;
mod gate;
mod guard;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use justitia_discover::{DiscoverConfig, Glob};
use justitia_doctor::Silence;
use justitia_policy::config::{FeedbackConfig, Mode, Objective};
use justitia_policy::units::Weight;
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde::Deserialize;
use toml::Spanned;

pub use colors::{parse_color, parse_time, COLORS};
pub use gate::GateSettings;
pub use guard::parse_size;

use justitia_report::feed::{self, parse_listen, DEFAULT_LISTEN};

use crate::error::{plain, Error, Exit, Result};

/// Where the agent keeps its journal, lock and socket unless told otherwise.
pub const STATE_DIR: &str = "/run/justitia";

/// The configuration file that is read if it exists and no other is named.
pub const CONFIG_FILE: &str = "/etc/justitia.toml";

/// What counts the traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observing {
    /// BPF programs where they can run, `/proc` elsewhere.
    #[default]
    Auto,
    /// BPF programs, or nothing.
    Bpf,
    /// `/proc` and cgroup files.
    Proc,
}

/// Everything an operator decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Mode, objective and feedback.
    pub policy: justitia_policy::Config,
    /// Time between two steps.
    pub interval: Duration,
    /// Globs of the cgroups to manage; empty: what is discovered.
    pub manage: Vec<String>,
    /// Globs of cgroups to leave alone.
    pub exclude: Vec<String>,
    /// What counts the traffic.
    pub observer: Observing,
    /// How long a declared color counts that does not change.
    pub color_ttl: Duration,
    /// Path or glob and the weight for it. The first that matches wins; from a file they come in
    /// the order exact paths, then globs, longest first.
    pub weights: Vec<(String, Weight)>,
    /// Users, by number, whose cgroup directories count as root's.
    pub trust: Vec<u32>,
    /// Journal, lock and socket.
    pub state_dir: PathBuf,
    /// The socket, if not in the state directory.
    pub socket: Option<PathBuf>,
    /// Where the live page and the metrics are; `None`: nowhere.
    pub listen: Option<SocketAddr>,
    /// The kernel module's gate.
    pub gate: GateSettings,
    /// Findings of the doctor that are accepted.
    pub silences: Vec<Silence>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            policy: justitia_policy::Config::default(),
            interval: Duration::from_secs(1),
            manage: Vec::new(),
            exclude: Vec::new(),
            observer: Observing::default(),
            color_ttl: crate::colors::TIME_TO_LIVE,
            weights: Vec::new(),
            trust: Vec::new(),
            state_dir: PathBuf::from(STATE_DIR),
            socket: None,
            listen: Some(DEFAULT_LISTEN),
            gate: GateSettings::default(),
            silences: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Settings> {
        let text = fs::read_to_string(path).map_err(|error| Error {
            cause: format!(
                "cannot read the configuration {}: {}",
                path.display(),
                plain(&error)
            ),
            remedy: "name a readable file with --config, or leave it out for the defaults".into(),
            exit: Exit::Usage,
        })?;
        Settings::parse(&text, path)
    }

    /// Those of [`CONFIG_FILE`], or the defaults where there is none.
    pub fn of_host() -> Result<Settings> {
        let standard = Path::new(CONFIG_FILE);
        if standard.exists() {
            Settings::load(standard)
        } else {
            Ok(Settings::default())
        }
    }

    /// Reads the text of a file; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Settings> {
        let source = Source { text, path };
        let top: Section = source.toml()?;
        let sections: Sections = source.toml()?;
        let mut settings = Settings::default();
        for (key, value) in &top {
            source.set(&mut settings, key, value)?;
        }
        for (key, value) in &sections.weights {
            let weight = source.weight(key, value)?;
            source.globs(key, std::slice::from_ref(key.get_ref()))?;
            settings.weights.push((key.get_ref().clone(), weight));
        }
        // Specific before general: an exact path, then the longest glob, wherever they stand.
        settings.weights.sort_by_key(|(glob, _)| {
            (
                glob.contains(['*', '?', '[']),
                std::cmp::Reverse(glob.len()),
            )
        });
        settings.policy.feedback = source.feedback(&sections.feedback)?;
        settings.policy.memoplight = source.memoplight(&sections.memoplight)?;
        settings.policy.guard = source.guard(&sections.guard)?;
        settings.gate = source.gate(&sections.gate)?;
        settings.silences = source.silences()?;
        Ok(settings)
    }

    /// Where the socket is.
    pub fn socket(&self) -> PathBuf {
        self.socket
            .clone()
            .unwrap_or_else(|| self.state_dir.join("agent.sock"))
    }

    /// Where the web process reads.
    pub fn status_socket(&self) -> PathBuf {
        self.state_dir.join(feed::SOCKET)
    }

    /// What discovery needs to know.
    pub fn discover(&self) -> DiscoverConfig {
        DiscoverConfig {
            manage: self.manage.clone(),
            exclude: self.exclude.clone(),
            weights: self.weights.clone(),
            trust: self.trust.clone(),
        }
    }
}

type Section = BTreeMap<Spanned<String>, Spanned<toml::Value>>;

#[derive(Deserialize)]
struct Sections {
    #[serde(default)]
    weights: Section,
    #[serde(default)]
    feedback: Section,
    #[serde(default)]
    memoplight: Section,
    #[serde(default)]
    guard: Section,
    #[serde(default)]
    gate: Section,
}

const KEYS: [&str; 20] = [
    "mode",
    "objective",
    "interval",
    "manage",
    "exclude",
    "trust",
    "observer",
    "weights",
    "feedback",
    "memoplight",
    "guard",
    "gate",
    "color_ttl",
    "color_period",
    "color_percent",
    "color_yellow",
    "state_dir",
    "socket",
    "listen",
    "doctor",
];

/// The text, for lines in messages.
struct Source<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Source<'_> {
    fn toml<T: DeserializeOwned>(&self) -> Result<T> {
        toml::from_str(self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            self.error(
                &span,
                error.message(),
                "correct that line; the format is TOML",
            )
        })
    }

    fn set(
        &self,
        settings: &mut Settings,
        key: &Spanned<String>,
        value: &Spanned<toml::Value>,
    ) -> Result<()> {
        let span = value.span();
        match key.get_ref().as_str() {
            "mode" => settings.policy.mode = self.word(key, value, MODES)?,
            "objective" => settings.policy.objective = self.word(key, value, OBJECTIVES)?,
            "interval" => {
                let text: String = self.typed(key, value, "a text such as \"1s\"")?;
                settings.interval = parse_interval(&text)
                    .map_err(|(cause, remedy)| self.error(&span, &cause, &remedy))?;
            }
            "manage" => settings.manage = self.glob_list(key, value)?,
            "exclude" => settings.exclude = self.glob_list(key, value)?,
            "trust" => {
                settings.trust = self.typed(key, value, "a list of user numbers such as [1000]")?;
            }
            "observer" => settings.observer = self.word(key, value, OBSERVERS)?,
            "state_dir" => settings.state_dir = self.typed(key, value, "a path")?,
            "socket" => settings.socket = Some(self.typed(key, value, "a path")?),
            "listen" => {
                let text: String = self.typed(key, value, "a text such as \"127.0.0.1:9619\"")?;
                settings.listen = parse_listen(&text)
                    .map_err(|(cause, remedy)| self.error(&span, &cause, &remedy))?;
            }
            "color_ttl" | "color_period" | "color_percent" | "color_yellow" => {
                self.set_color(settings, key, value)?;
            }
            // Read as sections.
            "weights" | "feedback" | "memoplight" | "guard" | "gate" | "doctor" => {}
            unknown => return Err(self.unknown_key(key, unknown, &KEYS)),
        }
        Ok(())
    }

    fn typed<T: DeserializeOwned>(
        &self,
        key: &Spanned<String>,
        value: &Spanned<toml::Value>,
        wanted: &str,
    ) -> Result<T> {
        T::deserialize(value.get_ref().clone().into_deserializer()).map_err(|_: toml::de::Error| {
            self.error(
                &value.span(),
                &format!("{} is not {wanted}", key.get_ref()),
                &format!("write {} = {}", key.get_ref(), wanted),
            )
        })
    }

    fn word<T: DeserializeOwned>(
        &self,
        key: &Spanned<String>,
        value: &Spanned<toml::Value>,
        words: &[&str],
    ) -> Result<T> {
        let word: String = self.typed(key, value, "a word in quotes")?;
        let (cause, remedy) = unknown_word(key.get_ref(), &word, words);
        T::deserialize(toml::Value::String(word).into_deserializer())
            .map_err(|_: toml::de::Error| self.error(&value.span(), &cause, &remedy))
    }

    fn glob_list(
        &self,
        key: &Spanned<String>,
        value: &Spanned<toml::Value>,
    ) -> Result<Vec<String>> {
        let globs: Vec<String> = self.typed(key, value, "a list such as [\"/app/*\"]")?;
        self.globs(key, &globs)?;
        Ok(globs)
    }

    fn globs(&self, key: &Spanned<String>, globs: &[String]) -> Result<()> {
        for glob in globs {
            Glob::new(glob)
                .map_err(|error| self.error(&key.span(), &error.to_string(), GLOB_REMEDY))?;
        }
        Ok(())
    }

    fn weight(&self, key: &Spanned<String>, value: &Spanned<toml::Value>) -> Result<Weight> {
        let number = value.get_ref().as_integer();
        number
            .and_then(|number| u32::try_from(number).ok())
            .and_then(|number| Weight::new(number).ok())
            .ok_or_else(|| {
                self.error(
                    &value.span(),
                    &format!(
                        "weight {} of {} is not a number from 1 to 10000",
                        value.get_ref(),
                        key.get_ref()
                    ),
                    WEIGHT_REMEDY,
                )
            })
    }

    fn feedback(&self, section: &Section) -> Result<FeedbackConfig> {
        let defaults = toml::Table::try_from(FeedbackConfig::default());
        let mut table = defaults.expect("numbers under plain names");
        for (key, value) in section {
            let name = key.get_ref();
            if !table.contains_key(name) {
                let known: Vec<&str> = table.keys().map(String::as_str).collect();
                return Err(self.unknown_key(key, name, &known));
            }
            let number: f64 = self.typed(key, value, "a number")?;
            if !number.is_finite() || number < 0.0 {
                return Err(self.error(
                    &value.span(),
                    &format!("{name} is {number}"),
                    "use a number that is not negative",
                ));
            }
            table.insert(name.clone(), toml::Value::Float(number));
        }
        table.try_into().map_err(|error: toml::de::Error| {
            self.error(&(0..0), error.message(), "correct the section [feedback]")
        })
    }

    fn unknown_key(&self, key: &Spanned<String>, name: &str, known: &[&str]) -> Error {
        self.error(
            &key.span(),
            &format!("unknown key {name}"),
            &did_you_mean(name, known),
        )
    }

    fn error(&self, span: &Range<usize>, cause: &str, remedy: &str) -> Error {
        let line = self.text[..span.start.min(self.text.len())]
            .matches('\n')
            .count()
            + 1;
        Error::usage(format!("{}:{line}: {cause}", self.path.display()), remedy)
    }
}

/// The modes' names.
pub const MODES: &[&str] = &["observe", "justitia", "proportional", "memoplight"];
/// The objectives' names.
pub const OBJECTIVES: &[&str] = &["fair", "strict"];
/// The observers' names.
pub const OBSERVERS: &[&str] = &["auto", "bpf", "proc"];
/// What to do about a weight out of range.
pub const WEIGHT_REMEDY: &str = "use a whole number from 1 to 10000; 100 is the default";
/// What to do about a malformed glob.
pub const GLOB_REMEDY: &str = "write a path below the cgroup2 mount, for example /app/*";

/// Cause and remedy of a word that is none of those there are.
pub fn unknown_word(key: &str, word: &str, words: &[&str]) -> (String, String) {
    (format!("unknown {key} {word}"), did_you_mean(word, words))
}

/// A mode by its name.
pub fn parse_mode(word: &str) -> Result<Mode> {
    by_name("mode", word, MODES)
}

/// An objective by its name.
pub fn parse_objective(word: &str) -> Result<Objective> {
    by_name("objective", word, OBJECTIVES)
}

/// An observer by its name.
pub fn parse_observer(word: &str) -> Result<Observing> {
    by_name("observer", word, OBSERVERS)
}

fn by_name<T: DeserializeOwned>(key: &str, word: &str, words: &[&str]) -> Result<T> {
    T::deserialize(toml::Value::String(word.to_owned()).into_deserializer()).map_err(
        |_: toml::de::Error| {
            let (cause, remedy) = unknown_word(key, word, words);
            Error::usage(cause, remedy)
        },
    )
}

/// A time such as `1s`, `500ms` or `2`; between 100 ms and a minute. Errors as cause and remedy.
pub fn parse_interval(text: &str) -> std::result::Result<Duration, (String, String)> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number
        .trim()
        .parse::<f64>()
        .ok()
        .map(|number| number * unit);
    match seconds {
        Some(seconds) if (0.1..=60.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err((
            format!("interval {text} is not a time from 100ms to 60s"),
            "use for example 1s or 500ms".into(),
        )),
    }
}

fn did_you_mean(name: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|&word| (strsim::jaro_winkler(name, word), word))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(similarity, _)| *similarity > 0.7);
    match nearest {
        Some((_, word)) => format!("did you mean {word}? there are: {}", known.join(", ")),
        None => format!("there are: {}", known.join(", ")),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
