//! Runs CRI-O instead of containerd (driver cgroupfs).

use crate::common::said;
use crate::{fetched, of, with_runtime, AGENT, CALLS};

const SCRIPT: &str = include_str!("crio.sh");

#[test]
#[ignore = "boots a virtual machine; scripts/test --long runs it"]
fn pods_of_crio_have_the_weights_that_they_may_ask_for_with_nri_and_without() {
    let programs = ["crio", "pinns"].map(|name| fetched().join(name));
    for program in &programs {
        assert!(
            program.is_file(),
            "{} is not there: scripts/setup --kubernetes compiles it",
            program.display()
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let script = format!("{SCRIPT}{CALLS}{AGENT}crio_pods\n");
    let mut spec = with_runtime(&script, dir.path());
    spec.binaries.extend(programs);
    let packages = ["conmon", "podman"].map(str::to_owned);
    spec.extra_packages.extend(packages);
    let said = said(&spec, "");

    let (pause, main) = (of(100, "default"), of(100, "default"));
    for look in ["told", "recorded"] {
        let db = said.pod(look, 1);
        assert_eq!(db[0], of(300, "pod_annotation"), "{look}");
        let mut inside = db[1..].to_vec();
        inside.sort_unstable();
        assert_eq!(inside, [pause.clone(), of(700, "pod_annotation")], "{look}");
        let greedy = [of(500, "pod_cap"), pause.clone(), main.clone()];
        assert_eq!(said.pod(look, 2), greedy, "{look}");
        assert_eq!(said.pod(look, 3)[0], of(50, "qos_class"), "{look}");
    }
    assert_eq!(said.pod("recorded", 4)[0], of(140, "pod_annotation"));
    assert_eq!(said.json("named")["weight"], 100);
    assert!(!said.text("agent.log").contains("panicked"));
}
