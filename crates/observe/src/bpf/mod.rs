//! The observer in the kernel: BPF programs count per group and per CPU, and user space reads the
//! sums once a tick.
//!
//! Three steps: [`probe`] finds out what this kernel offers (facts, never a version number), `choice::choose`
//! decides which programs to run (pure), and [`Observer::open`] loads and attaches them.
//!
//! There are two tiers. With fentry (kernels built with direct calls, as all of Debian's are), everything is
//! counted in the kernel. Without it, the tracepoints remain: pages inserted and evicted, and time in
//! reclaim. Bytes then come from `/proc`, as without BPF.
//!
//! The programs are in `bpf/*.bpf.c`; their comments define each counter. Invariants: nothing stays attached
//! when the [`Observer`] is dropped. A cgroup ID is never reused, so a recycled path is another group. A
//! value that is not counted is `None`.

mod choice;
mod counters;
mod curves;
mod estimate;
mod features;
mod memory;
mod observer;
mod points;
mod reads;
mod sharing;
mod sizes;
mod slots;

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use justitia_bpf::Mapping;
use libbpf_rs::{Link, Map, MapCore as _, Object, ProgramMut};
use rustix::time::{clock_gettime, ClockId};

pub use choice::Tier;
pub use counters::Counters;
pub use features::{probe, Answer, Coverage, Feature};
pub use observer::Observer;

/// Reason why BPF cannot observe here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel lacks something that every tier needs.
    #[error("{0}")]
    Missing(String),
    /// The kernel refused the programs.
    #[error("the kernel refused the BPF programs: {reason}")]
    Load {
        /// The reason, in one line.
        reason: String,
        /// The last output of libbpf and the verifier.
        log: String,
        /// The first program that failed, if it was one.
        program: Option<String>,
    },
    /// The kernel accepted a program, but it could not be attached.
    #[error("cannot attach the BPF program {0}: {1}")]
    Attach(String, String),
    /// A map could not be used.
    #[error("cannot use the BPF map {0}: {1}")]
    Map(&'static str, String),
    /// The counters could not be mapped.
    #[error("cannot map the counters: {0}")]
    Memory(io::Error),
}

impl Error {
    /// The program that failed.
    fn program(&self) -> Option<&str> {
        match self {
            Error::Load { program, .. } => program.as_deref(),
            Error::Attach(program, _) => Some(program),
            _ => None,
        }
    }

    /// The remedy, in one line.
    pub fn remedy(&self) -> &'static str {
        match self {
            Error::Missing(_) => {
                "run as root (CAP_BPF and CAP_PERFMON) on a kernel with BTF, or use observer = \"proc\""
            }
            Error::Load { .. } | Error::Attach(..) => {
                "report this with the kernel's release; observer = \"proc\" works without BPF"
            }
            Error::Map(..) | Error::Memory(_) => {
                "check that memory is free; observer = \"proc\" works without BPF"
            }
        }
    }
}

/// Finds a map by its name.
fn find<'obj>(object: &'obj Object, name: &'static str) -> Result<Map<'obj>, Error> {
    let mut maps = object.maps();
    maps.find(|map| map.name() == name)
        .ok_or_else(|| Error::Map(name, "it is not there".into()))
}

/// Maps a map into our memory. `writable`: its words may be changed.
fn mapped(
    object: &Object,
    name: &'static str,
    bytes: usize,
    writable: bool,
) -> Result<Mapping, Error> {
    Mapping::new(find(object, name)?.as_fd(), bytes, writable).map_err(Error::Memory)
}

/// CPU time that this takes in the calling thread.
fn cpu_time_of(run: impl FnOnce()) -> Duration {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let before = now();
    run();
    now().saturating_sub(before)
}

fn attach_one(object: &Object, name: &str) -> Result<Link, Error> {
    attach_by(object, name, |program: &ProgramMut<'_>| program.attach())
}

fn attach_by(
    object: &Object,
    name: &str,
    attach: impl FnOnce(&ProgramMut<'_>) -> libbpf_rs::Result<Link>,
) -> Result<Link, Error> {
    let failed = |why: String| Error::Attach(name.to_owned(), why);
    let program = object.progs_mut().find(|program| program.name() == name);
    let program = program.ok_or_else(|| failed("it is not there".into()))?;
    attach(&program).map_err(|error| failed(error.to_string()))
}

// The Rust types of the records in `bpf/record.h`.
include!(concat!(env!("OUT_DIR"), "/observe.rs"));

pub(crate) use generated::types;

const _: () = assert!(size_of::<types::counters>() == 128);
const _: () = assert!(size_of::<types::reuse>() == 24 + 3 * 4 * crate::reuse::BINS);
const _: () = assert!(size_of::<types::control>() == 32);
const _: () = assert!(size_of::<types::shared_file>() == 208);
const _: () = assert!(size_of::<types::settings>() == 20);
