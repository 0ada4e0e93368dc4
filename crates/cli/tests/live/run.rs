//! One boot of the guest with the output of every command there. All tests use the same run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;

use crate::common::{host, on_its_own_clock, programs, report_of};

const SCRIPT: &str = include_str!("guest.sh");

/// Time limit of the whole run, from power-on to power-off, on a busy host.
const LIMIT: Duration = Duration::from_secs(1200);

/// The guest's files by name.
pub(crate) struct Run(BTreeMap<String, Vec<u8>>);

/// An HTTP answer.
pub(crate) struct Answer<'a> {
    pub(crate) status: &'a str,
    head: &'a str,
    pub(crate) body: &'a str,
}

/// The run. The first caller boots the guest.
///
/// With `JUSTITIA_TEST_KEEP=DIR` all output is written there for inspection, and the guest watches the agent
/// for a minute before its other commands.
pub(crate) fn run() -> &'static Run {
    // If the run fails, all tests fail at once without another boot.
    static RUN: LazyLock<Run> = LazyLock::new(|| {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = host(SCRIPT, dir.path());
        spec.memory_bytes = 448 << 20;
        on_its_own_clock(&mut spec, 512);
        spec.timeout = LIMIT;
        let justitia = env!("CARGO_BIN_EXE_justitia");
        spec.binaries.extend(programs(justitia, &["justitia-web"]));
        let keep = std::env::var_os("JUSTITIA_TEST_KEEP").map(PathBuf::from);
        // Seconds of `top` for the recording in the documentation.
        let job = keep.as_ref().map_or("", |_| "60");
        let (output, _) = report_of(&spec, job);
        let run = Run(files(&output.report));
        println!("{}\n{}", output.kernel_release, run.text("top-120"));
        if let Some(keep) = keep {
            std::fs::create_dir_all(&keep).unwrap();
            for (name, bytes) in &run.0 {
                std::fs::write(keep.join(name), bytes).unwrap();
            }
            std::fs::copy(&output.console_log, keep.join("console.log")).unwrap();
        }
        run
    });
    &RUN
}

/// Splits a report into its files: each follows a line `@@ NAME LENGTH` and ends with a line break.
fn files(mut report: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    while !report.is_empty() {
        let end = report.iter().position(|&b| b == b'\n').expect("a line");
        let line = std::str::from_utf8(&report[..end]).expect("a name");
        let words: Vec<&str> = line.split(' ').collect();
        let ["@@", name, length] = words[..] else {
            panic!("no file begins with {line:?}")
        };
        let length: usize = length.parse().expect("a length");
        let (bytes, rest) = report[end + 1..].split_at(length);
        files.insert(name.to_owned(), bytes.to_vec());
        report = rest.strip_prefix(b"\n").expect("a whole file");
    }
    files
}

impl Run {
    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        let found = self.0.get(name);
        found.unwrap_or_else(|| panic!("no {name} among {:?}", self.0.keys()))
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        std::str::from_utf8(self.bytes(name)).expect("text")
    }

    /// The exit status of a command.
    pub(crate) fn status(&self, name: &str) -> i32 {
        let text = self.text(&format!("{name}.status"));
        text.trim().parse().expect("an exit status")
    }

    /// The output of a command that succeeded without messages on stderr.
    pub(crate) fn said(&self, name: &str) -> &str {
        let (said, complaint) = (self.text(name), self.text(&format!("{name}.err")));
        assert_eq!(self.status(name), 0, "{name}: {complaint}\n{said}");
        assert_eq!(complaint, "", "{name} complains:\n{said}");
        said
    }

    /// [`Run::said`] as JSON.
    pub(crate) fn json(&self, name: &str) -> Value {
        let said = self.said(name);
        serde_json::from_str(said).unwrap_or_else(|error| panic!("{name}: {error}\n{said}"))
    }

    /// Exit status, and cause and remedy, of a command that refused.
    pub(crate) fn refusal(&self, name: &str) -> (i32, Vec<&str>) {
        assert_eq!(self.text(name), "", "{name} prints nothing");
        let lines = self.text(&format!("{name}.err")).lines().collect();
        (self.status(name), lines)
    }

    pub(crate) fn answer(&self, name: &str) -> Answer<'_> {
        let said = self.said(name);
        let (head, body) = said.split_once("\r\n\r\n").expect("a head and a body");
        let (first, head) = head.split_once("\r\n").expect("a status line");
        let status = first.strip_prefix("HTTP/1.1 ").expect("HTTP");
        Answer { status, head, body }
    }
}

impl Answer<'_> {
    /// The value of a header, named in lower case; empty without the header.
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(header, _)| header.to_ascii_lowercase() == name);
        found.map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, "200 OK");
        assert_eq!(self.header("content-type"), "application/json");
        serde_json::from_str(self.body).expect("JSON")
    }
}

pub(crate) fn list(value: &Value) -> &[Value] {
    let items = value.as_array();
    items.unwrap_or_else(|| panic!("a list: {value}"))
}

/// The group of this path in a report.
pub(crate) fn group<'a>(report: &'a Value, path: &str) -> &'a Value {
    let mut groups = list(&report["groups"]).iter();
    let found = groups.find(|group| group["path"] == path);
    found.unwrap_or_else(|| panic!("no {path} in {report}"))
}
