//! Worth: memory goes where it has an effect. A reader whose working set fits runs beside a scan that memory
//! does not help. Sizes in bytes, times in seconds after the common start.

use serde::{Deserialize, Serialize};

use super::containers::ContainerSpec;
use super::{mib, At, Description, Measure, Setup, Workload};
use crate::args::LoadArgs;
use crate::choices::{in_range, size_in_range};
use crate::load::worth::Worth;
use crate::load::Load;
use crate::policy::Policy;
use justitia_machine::error::Result;

pub const DESCRIPTION: Description = Description {
    name: "worth",
    claim: "a reader whose set fits into memory is as fast beside a scan as alone, whatever the weights",
    method: "The first container reads random blocks of a file that fits into memory, first alone \
             (quiet). Then the second begins to read a file larger than memory from start to \
             end, over and over, and after a while both are measured (pressed).",
    expected: "With the classic LRU the scan takes the reader's page cache under conventional and \
               wherever memory is divided by weight alone: the reader falls to the speed of the disk. \
               Where memory goes by worth the reader keeps what it had, and the scan loses nothing.",
    question: "readers keep the page cache that brings them hits, beside a scan that gets no hits from it",
    measure: Measure::Phases,
    weights: &[100, 100],
    policies: &[Policy::Conventional, Policy::Memcg, Policy::Proportional],
    seconds: 150,
    memory_bytes: 1 << 30,
    disk_mb_per_s: 40,
    options: &["file-size polluter rate"],
    workload: |args, _| Ok(Workload::Worth(Parameters::from_args(args)?)),
};

/// Start of the quiet phase, after the file was read once at the speed of the disk.
const QUIET_FROM_S: u32 = 20;
const SCAN_FROM_S: u32 = 40;
const PRESSED_FROM_S: u32 = 90;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    pub file_bytes: u64,
    pub scan_bytes: u64,
    /// Requests per second that the reader is offered.
    pub rate: Option<u32>,
}

impl Parameters {
    fn from_args(args: &LoadArgs) -> Result<Self> {
        let parameters = Self {
            file_bytes: args.file_size.unwrap_or(600 << 20),
            scan_bytes: args.polluter.unwrap_or(2 << 30),
            rate: args.rate,
        };
        size_in_range("--file-size", parameters.file_bytes, 1 << 20, 64 << 30)?;
        size_in_range("--polluter", parameters.scan_bytes, 1 << 20, 64 << 30)?;
        if let Some(rate) = parameters.rate {
            in_range("--rate", rate, 1, 1_000_000)?;
        }
        Ok(parameters)
    }
}

impl Setup for Parameters {
    fn load(&self, at: &At) -> Load {
        let scans = at.place > 0;
        Load::Worth(Worth {
            scans,
            file_bytes: if scans {
                self.scan_bytes
            } else {
                self.file_bytes
            },
            rate: self.rate,
            quiet_from_s: QUIET_FROM_S,
            scan_from_s: SCAN_FROM_S,
            pressed_from_s: PRESSED_FROM_S,
        })
    }

    fn bytes(&self, containers: u64) -> u64 {
        self.file_bytes + self.scan_bytes * containers.saturating_sub(1)
    }

    fn settle(&self, containers: &mut [ContainerSpec], named: bool) {
        for (place, container) in containers.iter_mut().enumerate().filter(|_| !named) {
            container.name = match place {
                0 => "reader".to_owned(),
                1 => "scan".to_owned(),
                _ => format!("scan-{place}"),
            };
        }
    }

    fn table(&self) -> Vec<(&'static str, String)> {
        vec![
            ("the reader's file", mib(self.file_bytes)),
            (
                "requests offered to the reader",
                self.rate.map_or("as many as it can".to_owned(), |rate| {
                    format!("{rate} per second")
                }),
            ),
            ("the scan's file", mib(self.scan_bytes)),
            ("alone from", format!("{QUIET_FROM_S} s")),
            ("the scan begins at", format!("{SCAN_FROM_S} s")),
            ("measured beside it from", format!("{PRESSED_FROM_S} s")),
        ]
    }
}
