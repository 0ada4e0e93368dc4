//! The configuration file: TOML, every key checked.
//!
//! ```toml
//! mode = "proportional"        # one of Mode::NAMES
//! objective = "fair"           # one of Objective::NAMES
//! interval = "1s"
//! manage = ["/app/*"]          # none: the containers, pods and VMs that are found
//! manage_also = ["/system.slice/db.service"]  # beside these
//! exclude = ["/app/backup"]
//! observer = "auto"            # auto, bpf, proc: the counter of the traffic
//! listen = "127.0.0.1:9619"    # address of the live page and the metrics; "off" for none
//! tls = { certificate = "/etc/justitia/page.pem", key = "/etc/justitia/page.key" }  # by TLS
//! max_loss = "3%"              # withdraw a kind of decision that costs all groups together more; or "off"
//! color_ttl = "5s"             # a declared color that does not change for longer is stale
//! color_period = "1s"          # how often memory is taken from a satisfied group
//! color_percent = 2.0          # how much is taken each time, percent of what the group holds
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
//! [disk]                       # disks, except rotational ones with BFQ
//! iocost = true                # served by io.cost while groups contend; false, or "all": below any volume
//! models = { nvme0n1 = "rbps=... rseqiops=... rrandiops=... wbps=... wseqiops=... wrandiops=..." }
//! [kubernetes]                 # weights of pods
//! nri = "auto"                 # auto, off, or the socket of the runtime that tells of them
//! guaranteed = 400             # of a pod without the annotation justitia.io/weight, by its QoS class
//! burstable = 200
//! best_effort = 50
//! caps = { shop = 800 }        # the highest weight of a pod by namespace; "*" for the others
//! [doctor]                     # findings of justitia doctor that are accepted
//! silence = [{ check = "swap-none", reason = "no swap by decision" }]
//! ```
//!
//! An unknown key is refused, with its line and the nearest known key: a misspelled key that is ignored looks
//! like a feature that does not work.

mod doctor;
mod kubernetes;
mod values;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use justitia_discover::{DiscoverConfig, KubernetesConfig};
use justitia_doctor::Silence;
use justitia_policy::config::{
    ColorConfig, FeedbackConfig, GuardConfig, MemoplightConfig, Mode, Objective,
};
use justitia_policy::units::Weight;
use serde::de::value::{Error as NameError, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde::Deserialize;

pub use values::{
    parse_color, parse_interval, parse_size, parse_time, parse_weight, DiskSettings, GateSettings,
    IoCost, TlsFiles, GLOB_REMEDY, SIZE_REMEDY, WEIGHT_REMEDY,
};

use justitia_report::feed::{self, Listen, DEFAULT_LISTEN};

use crate::error::{Error, Result};

/// Directory of the agent's journal, lock and socket unless the configuration names another one.
pub const STATE_DIR: &str = "/run/justitia";

/// The configuration file that is read if it exists and no other is named.
pub const CONFIG_FILE: &str = "/etc/justitia.toml";

/// The source of the traffic counts.
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

/// Everything an operator decides, key by key as the file has it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The mode: which decisions act on the host.
    pub mode: Mode,
    /// The goal of the feedback.
    pub objective: Objective,
    /// Time between two steps.
    #[serde(deserialize_with = "values::interval")]
    pub interval: Duration,
    /// Globs of the cgroups to manage; empty: what is discovered.
    #[serde(deserialize_with = "values::globs")]
    pub manage: Vec<String>,
    /// Globs of cgroups to manage beside these.
    #[serde(deserialize_with = "values::globs")]
    pub manage_also: Vec<String>,
    /// Globs of cgroups to leave alone.
    #[serde(deserialize_with = "values::globs")]
    pub exclude: Vec<String>,
    /// Users, by number, whose cgroup directories count as root's.
    pub trust: Vec<u32>,
    /// The source of the traffic counts.
    pub observer: Observing,
    /// Path or glob and the weight for it. The first that matches wins; from a file they come in
    /// the order exact paths, then globs, longest first.
    #[serde(deserialize_with = "values::weights")]
    pub weights: Vec<(String, Weight)>,
    /// The control law.
    #[serde(with = "values::Feedback")]
    pub feedback: FeedbackConfig,
    /// The mode of this name.
    pub memoplight: MemoplightConfig,
    /// Free memory before it is needed.
    #[serde(with = "values::Guard")]
    pub guard: GuardConfig,
    /// The kernel module's gate.
    pub gate: GateSettings,
    /// Disks that BFQ does not schedule.
    pub disk: DiskSettings,
    /// Kubernetes pods.
    #[serde(with = "kubernetes::Kubernetes")]
    pub kubernetes: KubernetesConfig,
    /// Percent of all traffic that a kind of decision may cost; 0: not watched.
    #[serde(deserialize_with = "values::max_loss")]
    pub max_loss: f64,
    /// Lifetime of a declared color that does not change.
    #[serde(deserialize_with = "values::color_ttl")]
    pub color_ttl: Duration,
    /// How often memory is taken from a satisfied group.
    #[serde(deserialize_with = "values::color_period")]
    pub color_period: Duration,
    /// How much is taken each time, percent of what the group holds.
    #[serde(deserialize_with = "values::color_percent")]
    pub color_percent: f64,
    /// Yellow groups give too.
    pub color_yellow: bool,
    /// Journal, lock and socket.
    #[serde(deserialize_with = "values::state_dir")]
    pub state_dir: PathBuf,
    /// The socket, if not in the state directory.
    #[serde(deserialize_with = "values::socket")]
    pub socket: Option<PathBuf>,
    /// Address of the live page and the metrics; `None`: there are none.
    #[serde(deserialize_with = "values::listen")]
    pub listen: Option<Listen>,
    /// Their TLS; `None`: without.
    #[serde(deserialize_with = "values::tls")]
    pub tls: Option<TlsFiles>,
    /// Findings of the doctor that are accepted.
    #[serde(rename = "doctor", deserialize_with = "doctor::silences")]
    pub silences: Vec<Silence>,
    /// When it is told to stop, it leaves knobs and state to the next agent.
    #[serde(skip)]
    pub hand_over: bool,
    /// It waits for the agent that runs, and leaves knobs and state only to an agent that waits.
    #[serde(skip)]
    pub in_turn: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let policy = justitia_policy::Config::default();
        Settings {
            mode: policy.mode,
            objective: policy.objective,
            interval: Duration::from_secs(1),
            manage: Vec::new(),
            manage_also: Vec::new(),
            exclude: Vec::new(),
            trust: Vec::new(),
            observer: Observing::default(),
            weights: Vec::new(),
            feedback: policy.feedback,
            memoplight: policy.memoplight,
            guard: policy.guard,
            gate: GateSettings::default(),
            disk: DiskSettings::default(),
            kubernetes: KubernetesConfig::default(),
            max_loss: policy.max_loss,
            color_ttl: crate::colors::TIME_TO_LIVE,
            color_period: Duration::from_secs_f64(policy.colors.period_s),
            color_percent: policy.colors.percent,
            color_yellow: policy.colors.yellow,
            state_dir: PathBuf::from(STATE_DIR),
            socket: None,
            listen: Some(Listen::Tcp(DEFAULT_LISTEN)),
            tls: None,
            silences: Vec::new(),
            hand_over: false,
            in_turn: false,
        }
    }
}

impl Settings {
    pub fn load(path: &Path) -> Result<Settings> {
        let bytes =
            fs::read(path).map_err(|error| Error::io("read the configuration", path, &error))?;
        let text = String::from_utf8(bytes).map_err(|_| {
            let cause = format!("the configuration {} is not UTF-8 text", path.display());
            Error::usage(cause, "name a TOML file with --config")
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
        toml::from_str(text).map_err(|error| refusal(text, path, &error))
    }

    /// Path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.socket
            .clone()
            .unwrap_or_else(|| self.state_dir.join("agent.sock"))
    }

    /// Path of the socket that the web process reads.
    pub fn status_socket(&self) -> PathBuf {
        self.state_dir.join(feed::SOCKET)
    }

    /// The part that the policy uses.
    pub fn policy(&self) -> justitia_policy::Config {
        justitia_policy::Config {
            mode: self.mode,
            objective: self.objective,
            feedback: self.feedback,
            colors: ColorConfig {
                period_s: self.color_period.as_secs_f64(),
                percent: self.color_percent,
                yellow: self.color_yellow,
            },
            memoplight: self.memoplight,
            guard: self.guard,
            max_loss: self.max_loss,
        }
    }

    /// The part that discovery uses.
    pub fn discover(&self) -> DiscoverConfig {
        DiscoverConfig {
            manage: self.manage.clone(),
            manage_also: self.manage_also.clone(),
            exclude: self.exclude.clone(),
            weights: self.weights.clone(),
            trust: self.trust.clone(),
            kubernetes: self.kubernetes.clone(),
        }
    }
}

/// An error of TOML or serde as one line of cause and one of remedy.
fn refusal(text: &str, path: &Path, error: &toml::de::Error) -> Error {
    let span = error.span().unwrap_or(0..0);
    let before = &text[..span.start.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let (cause, remedy) = said(error.message(), &key_at(text, &span));
    Error::usage(format!("{}:{line}: {cause}", path.display()), remedy)
}

/// The key whose value begins there; empty: it is not on that line.
fn key_at(text: &str, span: &Range<usize>) -> String {
    let before = text.get(..span.start).unwrap_or_default();
    let entry = before.rsplit(['\n', '{', ',']).next().unwrap_or_default();
    let key = entry.split_once('=').map_or("", |(key, _)| key);
    key.trim().trim_matches(['"', '\'']).to_owned()
}

/// Cause and remedy of an error: those of [`values`] are ready, serde's are put into words.
fn said(message: &str, key: &str) -> (String, String) {
    if let Some((cause, remedy)) = message.split_once('\n') {
        return (cause.replace(values::KEY, key), remedy.replace('\n', " "));
    }
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (word, known) = quoted.split_first().unwrap_or((&"", &[]));
    if message.starts_with("unknown field") {
        return (format!("unknown key {word}"), did_you_mean(word, known));
    }
    if message.starts_with("unknown variant") {
        return (format!("unknown {key} {word}"), did_you_mean(word, known));
    }
    if message.starts_with("missing field") {
        return (
            format!("an entry has no {word}"),
            doctor::EXAMPLE.to_owned(),
        );
    }
    // The error of an enum's value.
    let message = match message {
        "wanted string or table" => "invalid type: other, expected a string",
        message => message,
    };
    let expected = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "));
    match expected.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((_, wanted)) if !key.is_empty() => {
            let wanted = match wanted {
                "a boolean" => "true or false",
                "a string" => "a text in quotes",
                "a map" => "a table",
                other if other.starts_with("struct ") => "a table",
                "a sequence" => "a list",
                "f64" => "a number",
                "u32" => "a whole number from 0",
                other => other,
            };
            let example = example(key).unwrap_or(wanted);
            (
                format!("{key} is not {wanted}"),
                format!("write {key} = {example}"),
            )
        }
        _ => (
            message.to_owned(),
            "correct that line; the format is TOML".to_owned(),
        ),
    }
}

/// Values whose form is not obvious.
const EXAMPLES: [(&str, &str); 17] = [
    ("interval", "\"1s\""),
    ("manage", "[\"/app/*\"]"),
    ("manage_also", "[\"/system.slice/db.service\"]"),
    ("exclude", "[\"/app/backup\"]"),
    ("trust", "[1000]"),
    ("listen", "\"127.0.0.1:9619\""),
    ("tls", values::TLS_EXAMPLE),
    ("state_dir", "\"/run/justitia\""),
    ("socket", "\"/run/justitia/agent.sock\""),
    ("max_loss", values::MAX_LOSS),
    ("color_ttl", "\"5s\""),
    ("color_period", "\"1s\""),
    ("reserve", "\"2%\""),
    ("nri", "\"auto\""),
    ("root_share", "\"10%\""),
    ("mode", "\"proportional\""),
    ("silence", doctor::SILENCE),
];

/// An example of the value of this key.
fn example(key: &str) -> Option<&'static str> {
    let found = EXAMPLES.iter().find(|(of, _)| *of == key);
    found.map(|(_, example)| *example)
}

pub const OBSERVERS: &[&str] = &["auto", "bpf", "proc"];

pub fn parse_mode(word: &str) -> Result<Mode> {
    by_name("mode", word)
}

pub fn parse_objective(word: &str) -> Result<Objective> {
    by_name("objective", word)
}

pub fn parse_observer(word: &str) -> Result<Observing> {
    by_name("observer", word)
}

fn by_name<T: DeserializeOwned>(key: &str, word: &str) -> Result<T> {
    let name: StrDeserializer<'_, NameError> = word.into_deserializer();
    T::deserialize(name).map_err(|error| {
        let (cause, remedy) = said(&error.to_string(), key);
        Error::usage(cause, remedy)
    })
}

fn did_you_mean(name: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|&word| (strsim::jaro_winkler(name, word), word))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(similarity, _)| *similarity > 0.7);
    match nearest {
        Some((_, word)) => format!("did you mean {word}? use one of: {}", known.join(", ")),
        None => format!("use one of: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests;
