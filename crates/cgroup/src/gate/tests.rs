//! Compares the records and numbers here with those of `kmod/abi.h`, as the C compiler sees them.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use super::abi::{Config, Device, Group, Info, List, Member, LENGTHS, VERSION};
use super::{real, GateError, Order};
use rustix::io::Errno;

/// C expressions and their values here.
fn expected() -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = vec![
        ("JUSTITIA_GATE_VERSION".into(), u64::from(VERSION)),
        ("JUSTITIA_LENGTHS".into(), LENGTHS as u64),
        ("JUSTITIA_FIFO".into(), Order::Fifo as u64),
        ("JUSTITIA_AGING".into(), Order::Aging as u64),
        ("JUSTITIA_STRIDE".into(), Order::Stride as u64),
    ];
    let requests = [
        ("INFO", real::INFO),
        ("DEVICES", real::DEVICES),
        ("MEMBERS", real::MEMBERS),
        ("GET_CONFIG", real::GET_CONFIG),
        ("SET_CONFIG", real::SET_CONFIG),
        ("SET_GROUP", real::SET_GROUP),
        ("ENABLE", real::ENABLE),
        ("HEARTBEAT", real::HEARTBEAT),
    ];
    for (name, number) in requests {
        all.push((format!("JUSTITIA_IOC_{name}"), u64::from(number)));
    }
    macro_rules! record {
        ($c:literal, $rust:ty: $($field:ident)*) => {
            all.push((format!("sizeof(struct {})", $c), size_of::<$rust>() as u64));
            $(all.push((
                format!("offsetof(struct {}, {})", $c, stringify!($field)),
                offset_of!($rust, $field) as u64,
            ));)*
        };
    }
    record!("justitia_info", Info: version open_reason groups devices background_pages freerun_pages
        setpoint_pages calls passed heartbeats heartbeats_lost devices_refused);
    record!("justitia_group", Group: cgroup_id weight reserved);
    record!("justitia_config", Config: order aging lag_pages setpoint_permille batch_pages timeout_ms
        heartbeat_ms reserved);
    record!("justitia_device", Device: bdi_id major minor setpoint_pages dirty_pages writeback_pages
        unspent_pages budget_pages enqueued granted reordered timed_out killed opened longest_wait_ns
        waiting longest_queue lengths);
    record!("justitia_member", Member: cgroup_id bdi_id weight waiting pages waits wait_ns timed_out);
    record!("justitia_list", List: buffer capacity count);
    all
}

#[test]
fn records_and_requests_are_those_of_the_module() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <sys/ioctl.h>\n#include \"abi.h\"\nint main(void) {\n",
    );
    for (expression, _) in expected() {
        let _ = writeln!(
            source,
            "printf(\"%llu\\n\", (unsigned long long)({expression}));"
        );
    }
    source.push_str("return 0; }\n");
    let (program, file) = (dir.path().join("abi"), dir.path().join("abi.c"));
    std::fs::write(&file, source).unwrap();
    let kmod = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kmod");
    let built = Command::new("cc")
        .arg("-I")
        .arg(kmod)
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .status()
        .expect("a C compiler, which the BPF programs need too");
    assert!(built.success());
    let output = Command::new(&program).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let mut said = said.lines();
    for (expression, here) in expected() {
        let there: u64 = said.next().expect(&expression).parse().unwrap();
        assert_eq!(here, there, "{expression}");
    }
}

#[test]
fn who_may_not_open_the_gate_is_told_the_right_that_the_module_asks_for() {
    let module = include_str!("../../../../kmod/control.c");
    let right = "CAP_SYS_RESOURCE";
    assert!(module.contains(&format!("capable({right})")));
    let remedy = GateError::opening(Errno::PERM).remedy();
    assert!(remedy.contains(right), "{remedy}");
}

#[test]
fn every_refusal_is_one_line_of_cause_and_one_of_remedy() {
    let errors = [
        GateError::opening(Errno::NOENT),
        GateError::opening(Errno::PERM),
        GateError::opening(Errno::BUSY),
        GateError::opening(Errno::NOMEM),
        GateError::Version,
    ];
    let mut causes: Vec<String> = errors.iter().map(ToString::to_string).collect();
    for (error, cause) in errors.iter().zip(&causes) {
        assert!(
            cause.contains("/dev/justitia") && !cause.contains('\n'),
            "{cause}"
        );
        assert!(error.remedy().len() > 10);
    }
    causes.dedup();
    assert_eq!(causes.len(), errors.len());
}
