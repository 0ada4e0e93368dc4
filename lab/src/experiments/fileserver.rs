//! Fileserver: writers of different weights over one page cache (the paper's figures 4, 8a, 12a).
//!
//! Filebench's fileserver personality: create and write a new file, append to a file, read a whole file,
//! delete one, stat one. The page cache absorbs nearly everything, so the block layer's weights have no
//! effect on it. Sizes in bytes.

use super::{At, Description, Measure, Setup, Workload};
use crate::args::LoadArgs;
use crate::choices::in_range;
use crate::load::fileserver::Fileserver;
pub use crate::load::fileserver::Mix as Parameters;
use crate::load::Load;
use crate::policy::Policy::{self, Conventional, Justitia, Memcg, Proportional};
use justitia_machine::error::Result;

pub const DESCRIPTION: Description = Description {
    name: "fileserver",
    claim: "buffered writers of weight 100 to 800 get bandwidth in the ratio of their weights",
    method: "Every container creates, appends to, reads, deletes and stats files in its own \
             directory (filebench's fileserver personality), all at once, on one throttled disk. \
             The file set is prepopulated, so that slow containers have something to read.",
    expected: "The conventional kernel gives everybody nearly the same, whatever the weight. \
               Under proportional the bars meet the ideal line and the total stays the same.",
    question: "buffered writers get bandwidth in the ratio of their weights",
    measure: Measure::Window,
    weights: &[100, 200, 300, 400, 500, 600, 700, 800],
    policies: &[Conventional, Memcg, Justitia, Proportional],
    seconds: 120,
    memory_bytes: 768 << 20,
    disk_mb_per_s: 40,
    options: &[OPTIONS, "idle anon-growth lie"],
    workload: |args, _| Ok(Workload::Fileserver(Parameters::from_args(args)?)),
};

/// The options of the load itself.
pub const OPTIONS: &str = "threads files reads-per-write appends-per-write";

impl Parameters {
    pub(super) fn from_args(args: &LoadArgs) -> Result<Self> {
        let default = Self::default();
        let parameters = Self {
            threads: args.threads.unwrap_or(default.threads),
            files: args.files.unwrap_or(default.files),
            reads_per_write: args.reads_per_write.unwrap_or(default.reads_per_write),
            appends_per_write: args.appends_per_write.unwrap_or(default.appends_per_write),
            ..default
        };
        in_range("--threads", parameters.threads, 1, 256)?;
        in_range("--files", parameters.files, 1, 1_000_000)?;
        in_range("--reads-per-write", parameters.reads_per_write, 0, 1000)?;
        in_range("--appends-per-write", parameters.appends_per_write, 0, 1000)?;
        Ok(parameters)
    }
}

impl Setup for Parameters {
    fn load(&self, at: &At) -> Load {
        Load::Fileserver(Fileserver {
            mix: self.clone(),
            direct: at.policy == Policy::Direct,
            duty_s: at.container.duty_s,
            anon_growth_bytes_per_s: at.container.anon_growth_bytes_per_s,
            anon_most_bytes: at.memory_bytes / 4,
        })
    }

    fn bytes(&self, containers: u64) -> u64 {
        containers * u64::from(self.files) * (self.mean_file_bytes + self.append_bytes)
    }

    fn table(&self) -> Vec<(&'static str, String)> {
        vec![
            ("threads per container", self.threads.to_string()),
            ("files per container", self.files.to_string()),
            (
                "mean file size",
                format!("{} KiB", self.mean_file_bytes >> 10),
            ),
            ("mean append", format!("{} KiB", self.append_bytes >> 10)),
            ("prepopulated", format!("{} %", self.prealloc_percent)),
            ("reads per new file", self.reads_per_write.to_string()),
            ("appends per new file", self.appends_per_write.to_string()),
        ]
    }

    fn has_direct(&self) -> bool {
        true
    }
}
