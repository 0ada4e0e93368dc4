//! The debugging kernel that checks the module also finds mistakes made on purpose; without this, its silence
//! would mean nothing.

use std::fs;

use justitia_machine::kernels::{Series, Wanted};

use crate::common::report_of;
use crate::{module, module_dir, own_kernel, spec};

/// A mistake, the option of the kernel that finds it, and the kernel's message. Lockdep is silent after its
/// first report, and after most other reports.
const MISTAKES: [(&str, &str, &str); 6] = [
    ("rcu", "PROVE_RCU", "WARNING: suspicious RCU usage"),
    (
        "order",
        "PROVE_LOCKING",
        "WARNING: possible circular locking dependency",
    ),
    ("asleep", "PREEMPT_COUNT", "BUG: scheduling while atomic"),
    ("list", "DEBUG_LIST", "list_del corruption"),
    ("freed", "KASAN", "BUG: KASAN: slab-use-after-free"),
    ("race", "KCSAN", "BUG: KCSAN: data-race in count [mistakes]"),
];

const SCRIPT: &str = r#"
for what in $(job); do
    dmesg -C
    insmod /opt/lab/mistakes.ko what=$what || give_up "$what: does not load"
    rmmod mistakes
    echo "$what: $(dmesg | grep -E 'BUG:|WARNING:|corruption' | tr '\n' ' ')"
done
"#;

#[test]
#[ignore = "boots the kernel of JUSTITIA_TEST_KERNEL"]
fn a_kernel_that_looks_for_errors_reports_those_made_on_purpose() {
    let Some(Wanted::Built(tree)) = own_kernel() else {
        panic!("JUSTITIA_TEST_KERNEL names the tree of a kernel that looks for errors (docs/gate-debug-kernel.md)")
    };
    let config = fs::read_to_string(tree.join(".config")).unwrap();
    let finds = |option: &str| config.contains(&format!("\nCONFIG_{option}=y\n"));
    let mistakes = MISTAKES.iter().filter(|(_, option, _)| finds(option));
    let made: Vec<&str> = mistakes.clone().map(|(what, _, _)| *what).collect();
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(Series::V6_12, SCRIPT, dir.path());
    let source = module_dir().join("tests/mistakes");
    let (architecture, kernel) = (spec.architecture, Wanted::Built(tree));
    let module = module(architecture, &kernel, &source, "mistakes", dir.path());
    spec.binaries.push(module);
    let (_, report) = report_of(&spec, &made.join(" "));
    println!("{report}");
    for (what, _, said) in mistakes {
        assert!(
            crate::line(&report, &format!("{what}: ")).contains(said),
            "{what}"
        );
    }
}
