//! Builders for the tests of this crate.

use crate::snapshot::{
    BlockDevice, Group, GroupId, Host, Knobs, Memory, OperatorLimits, Pressure, Snapshot, Traffic,
};
use crate::units::{Bytes, Limit, Weight};

/// A host with this much memory, all of it page cache.
pub(crate) fn host(total_mib: u64) -> Host {
    Host {
        total: Some(Bytes::mib(total_mib)),
        free: Some(Bytes::ZERO),
        file: Some(Bytes::mib(total_mib)),
        high_watermark: Some(Bytes::ZERO),
        swap: None,
        pressure: Pressure::default(),
    }
}

/// Groups on a host of which nothing is known.
pub(crate) fn of_groups(groups: Vec<Group>) -> Snapshot {
    Snapshot {
        groups,
        ..Snapshot::default()
    }
}

/// Groups on a host with this much memory, all of it page cache.
pub(crate) fn snapshot(total_mib: u64, groups: Vec<Group>) -> Snapshot {
    Snapshot {
        host: host(total_mib),
        groups,
        ..Snapshot::default()
    }
}

/// A disk with BFQ, which is set up already.
pub(crate) fn disk() -> BlockDevice {
    BlockDevice::new(GroupId(6 | 1 << 63), "block:vda")
}

/// A readable, idle group of weight 100 with every knob at its default.
pub(crate) fn group(id: u64, parent: Option<u64>, path: &str) -> Group {
    Group {
        parent: parent.map(GroupId),
        weight: Some(Weight::DEFAULT),
        memory: Memory {
            current: Some(Bytes::ZERO),
            file: Some(Bytes::ZERO),
            file_mapped: Some(Bytes::ZERO),
            file_dirty: Some(Bytes::ZERO),
            anon: Some(Bytes::ZERO),
            swap: None,
            refault_pages: Some(0),
        },
        traffic: Traffic {
            read_bytes: Some(0),
            write_bytes: Some(0),
            missed_bytes: Some(0),
        },
        pressure: Pressure {
            memory_some_us: Some(0),
            memory_full_us: Some(0),
            io_some_us: Some(0),
            io_full_us: Some(0),
            cpu_some_us: Some(0),
        },
        knobs: Knobs {
            low: Some(Limit::Bytes(Bytes::ZERO)),
            high: Some(Limit::Max),
            max: Some(Limit::Max),
            io_weight: Some(100),
            bfq_weight: Some(100),
            reclaim: true,
            operator: OperatorLimits {
                high: Some(Limit::Max),
                ..OperatorLimits::default()
            },
            ..Knobs::default()
        },
        ..Group::new(GroupId(id), path)
    }
}

/// Applies a plan to the knobs of a snapshot, as a perfect agent would.
pub(crate) fn apply(snapshot: &mut Snapshot, plan: &crate::Plan) {
    use crate::plan::Knob;
    for write in &plan.writes {
        let known = if write.knob == Knob::MemoryReclaim {
            Some(write.value)
        } else if let Some(device) = snapshot.devices.iter_mut().find(|d| d.id == write.group) {
            device.set(write.knob, write.value);
            device.get(write.knob)
        } else {
            let mut groups = snapshot.groups.iter_mut();
            let group = groups.find(|g| g.id == write.group).expect("a group");
            group.knobs.set(write.knob, write.value);
            group.knobs.get(write.knob)
        };
        assert_eq!(known, Some(write.value), "no value for {}", write.knob);
    }
}
