//! One boot of the guest, and what every command in it said. All tests look at the same run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use justitia_machine::kernels::Series;
use serde_json::Value;

use crate::common::{machine, on_its_own_clock, programs, report_of, PROLOGUE};

const SCRIPT: &str = include_str!("guest.sh");

/// The whole run, from power-on to power-off, on a host that has much else to do.
const LIMIT: Duration = Duration::from_secs(1200);

/// What came out of the guest, by name.
pub(crate) struct Run(BTreeMap<String, Vec<u8>>);

/// An answer over HTTP.
pub(crate) struct Answer<'a> {
    pub(crate) status: &'a str,
    head: &'a str,
    pub(crate) body: &'a str,
}

/// The run. The first test that asks boots the guest.
///
/// With `JUSTITIA_TEST_KEEP=DIR` everything it said is written there, for people to look at, and the agent is
/// watched for a minute before it is asked anything else.
pub(crate) fn run() -> &'static Run {
    // A run that failed fails all tests at once: nobody boots again.
    static RUN: LazyLock<Run> = LazyLock::new(|| {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = machine(Series::V6_12, &format!("{PROLOGUE}{SCRIPT}"), dir.path());
        spec.memory_bytes = 448 << 20;
        on_its_own_clock(&mut spec, 512);
        spec.timeout = LIMIT;
        let justitia = env!("CARGO_BIN_EXE_justitia");
        spec.binaries.extend(programs(justitia, &["justitia-web"]));
        let keep = std::env::var_os("JUSTITIA_TEST_KEEP").map(PathBuf::from);
        // Seconds of `top` for the recording in docs.
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

/// The files of a report: a line `@@ NAME LENGTH` before each, a line break behind it.
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

    /// How a command ended.
    pub(crate) fn status(&self, name: &str) -> i32 {
        let text = self.text(&format!("{name}.status"));
        text.trim().parse().expect("an exit status")
    }

    /// What a command printed that had nothing to complain about.
    pub(crate) fn said(&self, name: &str) -> &str {
        let (said, complaint) = (self.text(name), self.text(&format!("{name}.err")));
        assert_eq!(self.status(name), 0, "{name}: {complaint}\n{said}");
        assert_eq!(complaint, "", "{name} complains:\n{said}");
        said
    }

    /// The same as JSON.
    pub(crate) fn json(&self, name: &str) -> Value {
        let said = self.said(name);
        serde_json::from_str(said).unwrap_or_else(|error| panic!("{name}: {error}\n{said}"))
    }

    /// Cause and remedy of a command that refused, and its exit status.
    pub(crate) fn refusal(&self, name: &str) -> (i32, Vec<&str>) {
        assert_eq!(self.text(name), "", "{name} prints nothing");
        let lines = self.text(&format!("{name}.err")).lines().collect();
        (self.status(name), lines)
    }

    /// What was answered over HTTP.
    pub(crate) fn answer(&self, name: &str) -> Answer<'_> {
        let said = self.said(name);
        let (head, body) = said.split_once("\r\n\r\n").expect("a head and a body");
        let (first, head) = head.split_once("\r\n").expect("a status line");
        let status = first.strip_prefix("HTTP/1.1 ").expect("HTTP");
        Answer { status, head, body }
    }
}

impl Answer<'_> {
    /// A header, by its name in lower case.
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

/// The items of a list.
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
