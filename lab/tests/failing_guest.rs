//! The lab's errors for a failing guest. Every other test that boots a guest checks that guests boot and
//! answer.
//!
//! Slow, so ignored by default; `make test` runs it:
//! `cargo test -p justitia-lab --test failing_guest -- --ignored --nocapture`.

mod common;

use common::{boot, machine};
use justitia_machine::kernels::Series;

#[test]
#[ignore = "boots virtual machines"]
fn a_guest_that_gives_up_is_told_apart_from_one_that_panics() {
    let dir = tempfile::tempdir().unwrap();
    let gives_up = "#!/bin/bash\necho '@lab-error no data disk'\n";
    let error = boot(&machine(Series::V6_12, gives_up, dir.path()), "").unwrap_err();
    assert_eq!((error.exit_code(), error.cause()), (1, "no data disk"));

    let panics = "#!/bin/bash\necho c >/proc/sysrq-trigger\nsleep 60\n";
    let error = boot(&machine(Series::V6_12, panics, dir.path()), "").unwrap_err();
    assert_eq!(error.exit_code(), 69);
    assert!(error.cause().contains("panicked twice"), "{error}");
    assert!(dir.path().join("console.panic.log").exists());
}
