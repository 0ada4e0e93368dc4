//! Sharing: who is protected for a file that one container touched first and a heavier one uses (the paper's
//! III.B.2).

use serde::{Deserialize, Serialize};

use super::{mib, At, Description, Measure, Setup, Workload};
use crate::args::LoadArgs;
use crate::choices::size_in_range;
use crate::load::sharing::{Sharing, SharingRole};
use crate::load::Load;
use crate::policy::Policy::{Conventional, FirstTouch, Proportional};
use justitia_machine::error::Result;

pub const DESCRIPTION: Description = Description {
    name: "sharing",
    claim: "a shared file is protected for its heaviest user, whoever touched it first",
    method: "The first container reads a file that it shares with the second, so the kernel \
             charges it, and then rests. The second reads the shared file again every few seconds. \
             After the warm-up the others read files of their own, larger than their share, over \
             and over. All have private files that they read once.",
    expected: "Under proportional the shared file stays resident, and the first container's \
               private file keeps no more than its weight allows. Under first-touch, which is \
               proportional without the observer that sees sharing, the shared file has to live on \
               the first container's small weight.",
    question: "shared files stay for their heaviest user, whoever touched them first",
    measure: Measure::Residency,
    weights: &[100, 800, 400],
    policies: &[Conventional, FirstTouch, Proportional],
    seconds: 80,
    memory_bytes: 1 << 30,
    disk_mb_per_s: 40,
    options: &["file-size shared-size polluter"],
    workload: |args, _| Ok(Workload::Sharing(Parameters::from_args(args)?)),
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    pub shared_bytes: u64,
    /// Size of the private file of each container that shares.
    pub own_bytes: u64,
    /// Size of the file of each other container.
    pub polluter_bytes: u64,
    /// Seconds from one reading of the shared file to the next.
    pub every_s: u32,
}

impl Parameters {
    /// The parameters of a command line. By default the files do not fit together in 1 GiB, the polluter's file
    /// alone exceeds the polluter's share, and the second container's working set fits into its share.
    fn from_args(args: &LoadArgs) -> Result<Self> {
        let parameters = Self {
            shared_bytes: args.shared_size.unwrap_or(192 << 20),
            own_bytes: args.file_size.unwrap_or(192 << 20),
            polluter_bytes: args.polluter.unwrap_or(768 << 20),
            every_s: 10,
        };
        size_in_range("--shared-size", parameters.shared_bytes, 1 << 20, 64 << 30)?;
        size_in_range("--file-size", parameters.own_bytes, 1 << 20, 64 << 30)?;
        size_in_range("--polluter", parameters.polluter_bytes, 1 << 20, 64 << 30)?;
        Ok(parameters)
    }
}

impl Setup for Parameters {
    fn load(&self, at: &At) -> Load {
        let (role, own_bytes) = match at.place {
            0 => (SharingRole::Payer, self.own_bytes),
            1 => (SharingRole::User, self.own_bytes),
            _ => (SharingRole::Polluter, self.polluter_bytes),
        };
        Load::Sharing(Sharing {
            role,
            shared_bytes: self.shared_bytes,
            own_bytes,
            every_s: self.every_s,
            from_s: at.from_s as u32,
        })
    }

    fn bytes(&self, containers: u64) -> u64 {
        self.shared_bytes
            + self.own_bytes * containers.min(2)
            + self.polluter_bytes * containers.saturating_sub(2)
    }

    fn table(&self) -> Vec<(&'static str, String)> {
        vec![
            ("shared file", mib(self.shared_bytes)),
            ("private file of the first two", mib(self.own_bytes)),
            ("file of each other container", mib(self.polluter_bytes)),
            (
                "shared file is read again every",
                format!("{} s", self.every_s),
            ),
        ]
    }
}
