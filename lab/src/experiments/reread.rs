//! Reread: whose pages survive a polluter (the paper's figures 5, 9 and 11b).
//!
//! Each container writes its own file, which caches it. The host then writes a file of its own, which evicts
//! pages. Then every container reads its file once more. Bandwidth is the file size over the time of that one
//! read, so it depends on what stayed resident. The paper's 16 GB of memory, 3 GB files and 4 GB polluter are
//! scaled down by 16, in the same ratio. Sizes in bytes.

use serde::{Deserialize, Serialize};

use super::{mib, At, Description, Measure, Setup, Workload};
use crate::args::LoadArgs;
use crate::choices::size_in_range;
use crate::load::reread::Reread;
use crate::load::Load;
use crate::policy::Policy::{Conventional, Direct, Justitia, Memcg, Proportional};
use justitia_machine::error::Result;

pub const DESCRIPTION: Description = Description {
    name: "reread",
    claim: "reclaim takes pages in the ratio of the weights, so cached files survive by weight",
    method: "Every container caches one file, the host writes a polluter that forces reclaim, \
             then all containers read their files again at once. A container's bandwidth is its \
             file over the time that one read took.",
    expected: "On the conventional kernel all containers lose the same. Under Justitia what stays \
               resident grows with the weight, up to the size of the file, and bandwidth follows.",
    question: "cached files survive memory pressure in the ratio of the weights",
    measure: Measure::Completion,
    weights: &[100, 200, 400, 800],
    policies: &[Conventional, Memcg, Direct, Justitia, Proportional],
    seconds: 180,
    memory_bytes: 1 << 30,
    disk_mb_per_s: 20,
    options: &["file-size polluter"],
    workload: |args, _| Ok(Workload::Reread(Parameters::from_args(args)?)),
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    pub file_bytes: u64,
    /// Bytes that the host writes in between.
    pub polluter_bytes: u64,
}

impl Parameters {
    fn from_args(args: &LoadArgs) -> Result<Self> {
        let parameters = Self {
            file_bytes: args.file_size.unwrap_or(192 << 20),
            polluter_bytes: args.polluter.unwrap_or(256 << 20),
        };
        size_in_range("--file-size", parameters.file_bytes, 1 << 20, 64 << 30)?;
        size_in_range("--polluter", parameters.polluter_bytes, 0, 64 << 30)?;
        Ok(parameters)
    }
}

impl Setup for Parameters {
    fn load(&self, at: &At) -> Load {
        Load::Reread(Reread {
            file_bytes: self.file_bytes,
            direct: at.policy == Direct,
        })
    }

    fn bytes(&self, containers: u64) -> u64 {
        containers * self.file_bytes + self.polluter_bytes
    }

    fn polluter_bytes(&self) -> Option<u64> {
        Some(self.polluter_bytes)
    }

    fn table(&self) -> Vec<(&'static str, String)> {
        vec![
            ("file size", mib(self.file_bytes)),
            ("polluter", mib(self.polluter_bytes)),
        ]
    }

    fn has_direct(&self) -> bool {
        true
    }
}
