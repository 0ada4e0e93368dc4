//! Checks for dirty limits that are large for the disk. An allocation waits for writeback if all reclaimable
//! memory is dirty. The longest wait is the dirty limit divided by the speed of the slowest disk.

use justitia_cgroup::survey::{Disk, Known};
use justitia_policy::units::Bytes;

use crate::check::{Check, Outcome, Severity, Subject};
use crate::facts::Facts;

pub(crate) const SLOW_DISK: Check = Check {
    id: "dirty-limit-slow-disk",
    title: "a dirty limit that a disk takes long to write",
    severity: Severity::Warning,
    needs: "vm.dirty_ratio, vm.dirty_bytes, MemAvailable, /proc/diskstats twice, \
            queue/rotational",
    consequence:
        "an allocation that finds only dirty page cache, a sync or an fsync waits until it \
                  is written: tens of seconds of standstill",
    run: slow_disk,
};

/// Longest acceptable wait, seconds.
const PATIENCE_S: f64 = 10.0;
/// Assumed speed of a rotational disk until it is measured, bytes per second.
const SPINNING: f64 = 100e6;
/// Assumed speed of a solid-state disk until it is measured, bytes per second.
const SOLID: f64 = 500e6;
/// From this busy share of the time on, a disk writes as fast as it can.
const BUSY: f64 = 0.9;

/// Dirty memory of this host at which writers wait: `vm.dirty_bytes`, or `vm.dirty_ratio` of the memory that
/// could be page cache (`MemAvailable`).
pub(crate) fn limit(facts: &Facts) -> Known<Bytes> {
    let bytes = facts.host.dirty_bytes.clone()?;
    if bytes > 0 {
        return Ok(Bytes(bytes));
    }
    let ratio = facts.host.dirty_ratio.clone()?;
    let available = facts.meminfo(|info| info.available, "MemAvailable")?;
    Ok(available.scale(ratio as f64 / 100.0))
}

/// Measured write speed in bytes per second; `None`: the disk was not saturated.
fn measured(facts: &Facts, disk: &Disk) -> Option<f64> {
    let window = facts.window_s?;
    let device = disk.device.clone().ok()?;
    let [first, second] = [0, 1].map(|look| {
        let disks = facts.disk_counters[look].as_ref().ok()?;
        disks.iter().find(|(of, _)| *of == device)
    });
    let ((_, first), (_, second)) = (first?, second?);
    let busy = second.busy_ms.saturating_sub(first.busy_ms) as f64 / 1000.0 / window;
    let written = second.write_bytes.saturating_sub(first.write_bytes) as f64 / window;
    // A disk that is busy with reads does not show how fast it writes.
    (busy >= BUSY && written >= 1e6).then_some(written)
}

fn slow_disk(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let limit = out.known(limit(facts))?;
    let disks = out.known(facts.disks())?;
    for disk in disks {
        let (speed, how) = match measured(facts, disk) {
            Some(speed) => (speed, "as measured just now"),
            None => match out.known(disk.rotational.clone()) {
                Some(true) => (SPINNING, "assumed for a rotational disk"),
                Some(false) => (SOLID, "assumed for a solid-state disk"),
                None => continue,
            },
        };
        let wait_s = limit.as_f64() / speed;
        if wait_s <= PATIENCE_S {
            continue;
        }
        let fits = (speed * PATIENCE_S / 2.0) as u64;
        let evidence = format!(
            "up to {limit} may be dirty; at {:.0} MB/s ({how}) writing them takes \
                     {wait_s:.0} s",
            speed / 1e6
        );
        out.find(Subject::Disk(disk.name.clone()), evidence)
            .bytes("dirty_limit_bytes", limit)
            .number("disk_bytes_per_s", speed)
            .number("wait_s", wait_s)
            .remedy(format!(
                "sysctl vm.dirty_bytes={fits} vm.dirty_background_bytes={}",
                fits / 2
            ));
    }
    Some(())
}
