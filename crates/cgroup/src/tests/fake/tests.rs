//! The fake behaves like the kernel, and its faults reach the caller.

use justitia_policy::plan::{Knob, Value};
use justitia_policy::units::{Bytes, Limit};
use rustix::io::Errno;

use super::*;
use crate::{Buffer, CgroupFs, Error, Group, Want, Why, Written};

fn bytes(n: u64) -> Value {
    Value::Limit(Limit::Bytes(Bytes(n)))
}

fn reclaim(group: &Group, n: u64) -> Result<Written, Error> {
    group.write_knob(Knob::MemoryReclaim, Value::Reclaim(Bytes(n)))
}

/// A host with `/app/db`: 100 MiB of clean page cache, 20 MiB of it mapped, and 10 MiB of anonymous memory.
fn host() -> (std::sync::Arc<FakeFs>, Group) {
    let fs = FakeFs::new();
    fs.mkdir("/app/db");
    fs.update("/app/db", |group| {
        group.file = Bytes::mib(100);
        group.file_mapped = Bytes::mib(20);
        group.anon = Bytes::mib(10);
    });
    let group = fs.open("/app/db").unwrap();
    (fs, group)
}

#[test]
fn gauges_are_what_a_test_has_set() {
    let (_fs, group) = host();
    let gauges = group.gauges(Want::ALL, &mut Buffer::new()).unwrap();
    assert_eq!(gauges.memory.current, Some(Bytes::mib(110)));
    assert_eq!(gauges.memory.file, Some(Bytes::mib(100)));
    assert_eq!(gauges.knobs.low, Some(Limit::Bytes(Bytes::ZERO)));
    assert_eq!(gauges.knobs.bfq_weight, None);
    assert!(gauges.knobs.reclaim);
}

#[test]
fn a_limit_is_rounded_down_to_pages_and_takes_clean_cache() {
    let (fs, group) = host();
    group
        .write_knob(Knob::MemoryHigh, bytes((60 << 20) + 5))
        .unwrap();
    assert_eq!(group.read_knob(Knob::MemoryHigh), Ok(Some(bytes(60 << 20))));
    assert_eq!(fs.group("/app/db").current(), Bytes::mib(60));
    group.write_knob(Knob::MemoryLow, bytes(4097)).unwrap();
    assert_eq!(fs.text("/app/db", "memory.low").unwrap(), "4096\n");
}

#[test]
fn reclaim_spares_mapped_cache_and_says_when_it_got_less() {
    let (fs, group) = host();
    assert_eq!(reclaim(&group, 30 << 20), Ok(Written::Done));
    assert_eq!(fs.group("/app/db").file, Bytes::mib(70));
    assert_eq!(reclaim(&group, 1 << 30), Ok(Written::Partial));
    assert_eq!(fs.group("/app/db").file, Bytes::mib(20));
}

#[test]
fn an_old_kernel_is_asked_for_swappiness_once() {
    let (fs, group) = host();
    fs.inject("/app/db", "memory.reclaim", Fault::NoSwappiness);
    assert_eq!(reclaim(&group, 4096), Ok(Written::Done));
    assert_eq!(reclaim(&group, 8192), Ok(Written::Done));
    let texts: Vec<String> = fs.writes().into_iter().map(|write| write.2).collect();
    assert_eq!(texts, ["4096 swappiness=0", "4096", "8192"]);
}

#[test]
fn a_bad_amount_does_not_blame_the_swappiness_argument() {
    let (fs, group) = host();
    fs.inject("/app/db", "memory.reclaim", Fault::Times(Errno::INVAL, 2));
    assert!(matches!(
        reclaim(&group, 1).unwrap_err().why,
        Why::Invalid(_)
    ));
    assert_eq!(reclaim(&group, 4096), Ok(Written::Done));
    assert_eq!(fs.writes()[0].2, "4096 swappiness=0");
}

#[test]
fn busy_and_interrupted_writes_are_tried_again_but_not_for_ever() {
    for errno in [Errno::BUSY, Errno::INTR] {
        let (fs, group) = host();
        fs.inject("/app/db", "memory.low", Fault::Times(errno, 3));
        assert_eq!(
            group.write_knob(Knob::MemoryLow, bytes(4096)),
            Ok(Written::Done)
        );
        fs.inject("/app/db", "memory.low", Fault::Errno(errno));
        let error = group.write_knob(Knob::MemoryLow, bytes(8192));
        assert!(matches!(error.unwrap_err().why, Why::Busy(_)));
        assert_eq!(fs.text("/app/db", "memory.low").unwrap(), "4096\n");
    }
}

#[test]
fn a_recreated_group_is_another_one_and_the_old_is_gone() {
    let (fs, old) = host();
    let id = fs.recreate("/app/db");
    let new = fs.open("/app/db").unwrap();
    assert!(new.id() == id && id != old.id());
    assert!(old.activity(&mut Buffer::new()).unwrap_err().is_gone());
    let write = old.write_knob(Knob::MemoryLow, bytes(4096));
    assert!(write.unwrap_err().is_gone());
    assert_eq!(fs.text("/app/db", "memory.low").unwrap(), "0\n");
}

#[test]
fn a_file_that_vanishes_is_unknown_not_zero() {
    let (fs, group) = host();
    fs.inject("/app/db", "memory.stat", Fault::Absent);
    fs.inject("/app/db", "io.pressure", Fault::Errno(Errno::OPNOTSUPP));
    let gauges = group.gauges(Want::ALL, &mut Buffer::new()).unwrap();
    assert_eq!(gauges.memory.file, None);
    assert_eq!(gauges.memory.current, Some(Bytes::mib(110)));
    assert_eq!(gauges.pressure.io_some_us, None);
    assert_eq!(gauges.pressure.memory_some_us, Some(0));
}

#[test]
fn a_refused_read_is_an_error_that_names_the_file() {
    let (fs, group) = host();
    fs.inject("/app/db", "memory.low", Fault::Denied);
    let error = group.gauges(Want::KNOBS, &mut Buffer::new()).unwrap_err();
    assert!(error.to_string().contains("memory.low"), "{error}");
    assert!(matches!(error.why, Why::Denied(_)));
}

#[test]
fn weights_out_of_the_kernels_range_are_refused() {
    let (fs, group) = host();
    fs.update("/app/db", |group| group.bfq_weight = Some(100));
    for (knob, most) in [(Knob::IoWeight, 10_000), (Knob::IoBfqWeight, 1000)] {
        assert!(group.write_knob(knob, Value::Weight(most)).is_ok());
        let error = group.write_knob(knob, Value::Weight(most + 1));
        assert!(matches!(error.unwrap_err().why, Why::Invalid(_)));
        assert_eq!(group.read_knob(knob), Ok(Some(Value::Weight(most))));
    }
}

#[test]
fn a_foreign_write_is_seen_and_not_taken_for_ours() {
    let (fs, group) = host();
    fs.foreign_write("/app/db", "io.weight", "default 700");
    assert_eq!(
        group.read_knob(Knob::IoWeight),
        Ok(Some(Value::Weight(700)))
    );
    assert!(fs.writes().is_empty());
}

#[test]
fn attributes_are_set_read_and_removed() {
    use crate::xattr;
    let (_fs, group) = host();
    assert_eq!(group.xattr(xattr::COLOR), Ok(None));
    group.set_xattr(xattr::COLOR, "green").unwrap();
    assert_eq!(group.xattr(xattr::COLOR), Ok(Some("green".to_owned())));
    group.remove_xattr(xattr::COLOR).unwrap();
    group.remove_xattr(xattr::COLOR).unwrap();
    assert_eq!(group.xattr(xattr::COLOR), Ok(None));
}

#[test]
fn children_are_those_directly_below() {
    let fs = FakeFs::new();
    for path in ["/a/b/c", "/a/d", "/ab"] {
        fs.mkdir(path);
    }
    let names = |path: &str| {
        let mut children = Vec::new();
        fs.children(path, usize::MAX, &mut children).unwrap();
        children
            .into_iter()
            .map(|child| child.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names("/"), ["a", "ab"]);
    assert_eq!(names("/a"), ["b", "d"]);
    assert!(names("/a/d").is_empty());
    fs.rmdir("/a");
    assert_eq!(names("/"), ["ab"]);
}

#[test]
fn a_disk_is_a_directory_of_knobs_beside_the_cgroups() {
    let (fs, group) = host();
    let id = fs.add_disk("nvme0n1", true);
    let mut paths = Vec::new();
    fs.block_devices(false, &mut paths);
    assert_eq!(paths, ["block:nvme0n1"]);
    let mut children = Vec::new();
    fs.children("/", usize::MAX, &mut children).unwrap();
    assert_eq!(children.len(), 1, "no cgroup");
    let disk = fs.open("block:nvme0n1").unwrap();
    assert!(disk.id() == id && id.0 >> 63 == 1);
    let knob = Knob::BfqLowLatency;
    assert_eq!(group.read_knob(knob), Ok(None));
    assert_eq!(disk.read_knob(knob), Ok(Some(Value::Switch(true))));
    disk.write_knob(knob, Value::Switch(false)).unwrap();
    assert_eq!(fs.text("block:nvme0n1", "low_latency").unwrap(), "0\n");
    fs.inject("block:nvme0n1", "low_latency", Fault::Errno(Errno::ROFS));
    let error = disk.write_knob(knob, Value::Switch(true)).unwrap_err();
    assert!(matches!(error.why, Why::Denied(_)), "{error}");
    assert_ne!(fs.recreate("block:nvme0n1"), id);
    assert!(disk.read_knob(knob).unwrap_err().is_gone());
}

/// A tick reads every busy group once. Debug builds are slow: the bound is a sanity check, the
/// numbers come from `make bench`.
#[test]
fn five_thousand_groups_are_read_within_a_second() {
    let fs = FakeFs::new();
    let groups: Vec<Group> = (0..5000)
        .map(|n| {
            let path = format!("/app/{n}");
            fs.mkdir(&path);
            fs.open(&path).unwrap()
        })
        .collect();
    let mut buffer = Buffer::new();
    let start = std::time::Instant::now();
    for group in &groups {
        group.activity(&mut buffer).unwrap();
    }
    assert!(start.elapsed() < std::time::Duration::from_secs(1));
}
