//! Readmix: readers whose hot sets do not fit together, where leveling down is easy and wrong.
//!
//! Not in the paper. Each container reads its own file, larger than its share of memory, at random with a
//! Zipf skew, and writes a few of the blocks. Bandwidth from hits cannot be moved from one container to
//! another, so a policy that takes hot pages to correct the ratios makes every container slower. Sizes in
//! bytes.

use super::{At, Description, Measure, Setup, Workload};
use crate::args::LoadArgs;
use crate::choices::{in_range, size_in_range};
pub use crate::load::readmix::Readmix as Parameters;
use crate::load::Load;
use crate::policy::Policy::{Conventional, Memcg, Proportional, Strict};
use justitia_machine::error::{LabError, Result};

pub const DESCRIPTION: Description = Description {
    name: "readmix",
    claim: "cached readers are never leveled down to make a ratio right",
    method: "Every container reads blocks of its own file at random, skewed so that some blocks \
             are hot, and writes a few of them. The files together are larger than memory, all \
             run at once on one throttled disk.",
    expected: "Proportional keeps the total of conventional and its utility, and nobody gets \
               less than on a static weighted partition (memcg). Strict lowers PV and shows what \
               that costs.",
    question: "cached readers keep what they have while weights are enforced",
    measure: Measure::Window,
    weights: &[100, 200, 400, 800],
    policies: &[Conventional, Memcg, Proportional, Strict],
    seconds: 120,
    memory_bytes: 768 << 20,
    disk_mb_per_s: 40,
    options: &["threads file-size block-size write-percent zipf lie"],
    workload: |args, _| Ok(Workload::Readmix(Parameters::from_args(args)?)),
};

impl Parameters {
    pub(super) fn from_args(args: &LoadArgs) -> Result<Self> {
        let default = Self::default();
        let block_bytes = args.block_size.unwrap_or(u64::from(default.block_bytes));
        size_in_range("--block-size", block_bytes, 512, 16 << 20)?;
        let parameters = Self {
            threads: args.threads.unwrap_or(default.threads),
            file_bytes: args.file_size.unwrap_or(default.file_bytes),
            block_bytes: block_bytes as u32,
            write_percent: args.write_percent.unwrap_or(default.write_percent),
            zipf_theta: args.zipf.unwrap_or(default.zipf_theta),
        };
        in_range("--threads", parameters.threads, 1, 256)?;
        size_in_range("--file-size", parameters.file_bytes, block_bytes, 64 << 30)?;
        in_range("--write-percent", parameters.write_percent, 0, 100)?;
        if !(0.0..=4.0).contains(&parameters.zipf_theta) {
            return Err(LabError::usage(
                format!(
                    "--zipf {} is not a number from 0 to 4",
                    parameters.zipf_theta
                ),
                "use a number in that range; 0 is uniform",
            ));
        }
        Ok(parameters)
    }
}

impl Setup for Parameters {
    fn load(&self, _at: &At) -> Load {
        Load::Readmix(self.clone())
    }

    fn bytes(&self, containers: u64) -> u64 {
        containers * self.file_bytes
    }

    fn table(&self) -> Vec<(&'static str, String)> {
        vec![
            ("threads per container", self.threads.to_string()),
            ("file size", format!("{} MB", self.file_bytes / 1_000_000)),
            ("request size", format!("{} KiB", self.block_bytes >> 10)),
            ("writes", format!("{} % of requests", self.write_percent)),
            ("Zipf exponent", self.zipf_theta.to_string()),
        ]
    }
}
