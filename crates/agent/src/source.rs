//! Chooses the counters of the groups' traffic: BPF programs where they can run, `/proc` elsewhere.
//!
//! Logs once, at the start, what this kernel does not offer and what that costs.

use std::io;

use justitia_cgroup::Fs;
use justitia_observe::bpf::{self, Tier};
use justitia_observe::{ProcIo, TrafficSource};
use rustix::thread::{capabilities, set_capabilities, CapabilitySet};

use crate::config::Observing;
use crate::error::{Error, Result};
use crate::log::Log;

/// Losses without BPF.
const COST: &str =
    "bytes include pipes and sockets, not mapped files; hits, misses, evictions and \
                    time in reclaim are not counted; the worth of page cache is not known";

/// The source that the operator chose. It is an error only if the source must be BPF and cannot be.
pub(crate) fn traffic_source(
    observing: Observing,
    fs: &Fs,
    log: &Log,
) -> Result<Box<dyn TrafficSource>> {
    if observing == Observing::Proc {
        return Ok(Box::new(ProcIo::new(fs.clone())));
    }
    let mut coverage = bpf::probe();
    let loaded = || {
        if let Err(error) = give_up_administration() {
            log.warn(format_args!("cannot give up CAP_SYS_ADMIN: {error}"));
        }
    };
    match bpf::Observer::open(fs.clone(), &mut coverage, loaded) {
        Ok(observer) => {
            log.info(match observer.tier() {
                Tier::Fentry => "BPF programs count in the kernel",
                Tier::Tracepoints => "BPF programs count at tracepoints",
            });
            for line in coverage.summary() {
                log.info(line);
            }
            Ok(Box::new(observer))
        }
        Err(error) if observing == Observing::Bpf => {
            let remedy = error.remedy();
            Err(Error::environment(error, remedy))
        }
        Err(error) => {
            log.info(format_args!("counts through /proc: {error}; {COST}"));
            Ok(Box::new(ProcIo::new(fs.clone())))
        }
    }
}

/// Gives up `CAP_SYS_ADMIN`, which only the search for functions of modules takes. Capabilities are per thread, so the
/// process must have only one.
fn give_up_administration() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    if !sets.permitted.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    for set in [
        &mut sets.effective,
        &mut sets.permitted,
        &mut sets.inheritable,
    ] {
        set.remove(CapabilitySet::SYS_ADMIN);
    }
    Ok(set_capabilities(None, sets)?)
}
