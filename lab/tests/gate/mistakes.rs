//! The debugging kernel that checks the module also finds mistakes made on purpose; without this, its silence
//! would mean nothing.

use justitia_machine::headers::build_module;
use justitia_machine::kernels::Series;

use crate::common::report_of;
use crate::{module_dir, own_kernel, spec};

/// A mistake and the kernel's message. Lockdep is silent after its first report, and after most other
/// reports.
const MISTAKES: [(&str, &str); 5] = [
    ("rcu", "WARNING: suspicious RCU usage"),
    ("order", "WARNING: possible circular locking dependency"),
    ("asleep", "BUG: scheduling while atomic"),
    ("list", "list_del corruption"),
    ("freed", "BUG: KASAN: slab-use-after-free"),
];

const SCRIPT: &str = r#"
for what in rcu order asleep list freed; do
    dmesg -C
    insmod /opt/lab/mistakes.ko what=$what || give_up "$what: does not load"
    rmmod mistakes
    echo "$what: $(dmesg | grep -E 'BUG:|WARNING:|corruption' | tr '\n' ' ')"
done
"#;

#[test]
#[ignore = "boots the kernel of JUSTITIA_TEST_KERNEL"]
fn a_kernel_that_looks_for_errors_reports_those_made_on_purpose() {
    let kernel = own_kernel().expect(
        "JUSTITIA_TEST_KERNEL names the tree of a kernel that looks for errors (docs/gate-debug-kernel.md)",
    );
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(Series::V6_12, SCRIPT, dir.path());
    let source = module_dir().join("tests/mistakes");
    let progress = &mut |line: &str| eprintln!("{line}");
    let mistakes = build_module(
        spec.architecture,
        &kernel,
        &source,
        "mistakes",
        dir.path(),
        progress,
    );
    spec.binaries.push(mistakes.unwrap());
    let (_, report) = report_of(&spec, "");
    println!("{report}");
    for (what, said) in MISTAKES {
        assert!(
            crate::line(&report, &format!("{what}: ")).contains(said),
            "{what}"
        );
    }
}
