//! Runs the pod of the Helm chart through CRI. Helm's output is translated as the kubelet does it. Each key
//! is translated, or listed here as not for the runtime.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde::Deserialize as _;
use serde_json::Value;

use crate::common::said;
use crate::{fetched, node, of};

const SERVICES: &str = include_str!("../services.sh");
const SCRIPT: &str = include_str!("chart.sh");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Directory for the content of volumes that are not host paths.
const VOLUMES: &str = "/run/kubelet";

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; scripts/setup --test and --package fetch what is missing")
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Helm's output with a file of values, for an image with this tag.
fn rendered(values: &str, tag: &str) -> Vec<Value> {
    let paths = env::var_os("PATH").unwrap_or_default();
    let paths = env::split_paths(&paths).chain([fetched()]);
    let mut helm = Command::new("helm");
    helm.env("PATH", env::join_paths(paths).unwrap())
        .current_dir(ROOT)
        .args(["template", "justitia", "packaging/helm/justitia"])
        .args(["--namespace=justitia", "--kube-version=1.31.0"])
        .arg(format!("--values=packaging/helm/tests/{values}.yaml"))
        .arg("--set=image.repository=localhost/justitia")
        .arg(format!("--set=image.tag={tag}"));
    serde_norway::Deserializer::from_str(&done(&mut helm))
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let found = documents.iter().find(|document| document["kind"] == kind);
    found.unwrap_or_else(|| panic!("helm renders no {kind}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Panics at a key that is not translated.
fn has_only(value: &Value, keys: &[&str]) {
    for key in value.as_object().expect("an object").keys() {
        assert!(keys.contains(&key.as_str()), "{key} is not translated");
    }
}

/// A Kubernetes quantity in thousandths.
fn thousandths(quantity: &Value) -> u64 {
    let quantity = text(quantity);
    let (number, unit) = match quantity.strip_suffix("Mi") {
        Some(number) => (number, 1000 << 20),
        None => (quantity.trim_end_matches('m'), 1),
    };
    number.parse::<u64>().unwrap() * unit
}

/// The path of a volume on the node.
fn host_path(pod: &Value, name: &Value) -> String {
    let volume = list(&pod["volumes"])
        .iter()
        .find(|volume| volume["name"] == *name);
    let volume = volume.unwrap_or_else(|| panic!("no volume {name}"));
    match &volume["hostPath"]["path"] {
        Value::String(path) => path.clone(),
        _ => format!("{VOLUMES}/{}", text(name)),
    }
}

/// A container of this pod as text of CRI's `ContainerConfig`, without its name.
fn container(pod: &Value, container: &Value) -> String {
    const OF_THE_KUBELET: [&str; 2] = ["imagePullPolicy", "ports"];
    has_only(
        container,
        &[
            &[
                "name",
                "image",
                "command",
                "args",
                "volumeMounts",
                "resources",
            ][..],
            &["securityContext"],
            &OF_THE_KUBELET,
        ]
        .concat(),
    );
    let security = &container["securityContext"];
    has_only(
        security,
        &[
            "privileged",
            "allowPrivilegeEscalation",
            "readOnlyRootFilesystem",
            "capabilities",
            "appArmorProfile",
        ],
    );
    let of_pod = &pod["securityContext"];
    has_only(of_pod, &["runAsUser", "runAsGroup", "seccompProfile"]);
    assert_eq!(of_pod["seccompProfile"]["type"], "RuntimeDefault");

    let mut all = format!("image {{ image: {} }}\n", container["image"]);
    for key in ["command", "args"] {
        for word in list(&container[key]) {
            writeln!(all, "{key}: {word}").unwrap();
        }
    }
    for mount in list(&container["volumeMounts"]) {
        has_only(mount, &["name", "mountPath", "readOnly"]);
        let read_only = mount["readOnly"] == true;
        let path = host_path(pod, &mount["name"]);
        writeln!(
            all,
            "mounts {{ container_path: {} host_path: {path:?} readonly: {read_only} }}",
            mount["mountPath"]
        )
        .unwrap();
    }
    let mut capabilities = String::new();
    for (key, field) in [("add", "add_capabilities"), ("drop", "drop_capabilities")] {
        for name in list(&security["capabilities"][key]) {
            write!(capabilities, "{field}: {name} ").unwrap();
        }
    }
    let resources = &container["resources"];
    // An unset profile means the runtime's default if the node has AppArmor. The guest has none.
    let unconfined = security["appArmorProfile"]["type"] == "Unconfined";
    let apparmor = if unconfined {
        "apparmor { profile_type: 1 }"
    } else {
        ""
    };
    writeln!(
        all,
        "linux {{ resources {{ cpu_shares: {} memory_limit_in_bytes: {} }} security_context {{
            capabilities {{ {capabilities} }} privileged: {} namespace_options {{ network: 2 pid: {} }}
            run_as_user {{ value: {} }} run_as_group {{ value: {} }} readonly_rootfs: {} no_new_privs: {}
            seccomp {{ profile_type: 0 }} {apparmor} }} }}",
        thousandths(&resources["requests"]["cpu"]) * 1024 / 1000,
        thousandths(&resources["limits"]["memory"]) / 1000,
        security["privileged"],
        if pod["hostPID"] == true { 2 } else { 0 },
        of_pod["runAsUser"],
        of_pod["runAsGroup"],
        security["readOnlyRootFilesystem"],
        security["allowPrivilegeEscalation"] == false,
    )
    .unwrap();
    all
}

/// An image as scripts/image builds it, with the programs beside this one, stripped of debug information.
fn image(dir: &Path, revision: &str, time: u32) -> PathBuf {
    let (programs, out) = (dir.join("programs"), dir.join(revision));
    fs::create_dir_all(&programs).unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_justitia")).parent().unwrap();
    for name in ["justitia", "justitia-web", "justitia-probe"] {
        let (from, to) = (built.join(name), programs.join(name));
        if !to.exists() {
            done(Command::new("strip").arg("-o").arg(to).arg(from));
        }
    }
    let mut make = Command::new(format!("{ROOT}/scripts/image"));
    make.arg(&out)
        .env("TARGET", &programs)
        .env("NAME", format!("localhost/justitia:{revision}"))
        .env("SOURCE_DATE_EPOCH", time.to_string());
    done(&mut make);
    let made = fs::read_dir(out).unwrap().next().expect("an image");
    let path = dir.join(format!("justitia.{revision}.tar"));
    fs::rename(made.unwrap().path(), &path).unwrap();
    path
}

#[test]
#[ignore = "boots a virtual machine; scripts/test --long runs it"]
fn the_chart_s_pod_holds_weights_hands_over_when_it_is_replaced_and_restores_when_it_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut spec = node(&format!("{SERVICES}{SCRIPT}"), dir);
    for (time, revision) in [(1, "first"), (2, "second")] {
        spec.binaries.push(image(dir, revision, time));
        let documents = rendered("enforce", revision);
        let pod = &of_kind(&documents, "DaemonSet")["spec"]["template"]["spec"];
        for one in list(&pod["containers"]) {
            let path = dir.join(format!("{}.{revision}", text(&one["name"])));
            fs::write(&path, container(pod, one)).unwrap();
            spec.binaries.push(path);
        }
        if revision == "first" {
            let volumes = list(&pod["volumes"]).iter();
            let paths = volumes.map(|volume| host_path(pod, &volume["name"]) + "\n");
            let config = &of_kind(&documents, "ConfigMap")["data"]["justitia.toml"];
            for (name, content) in [
                ("host-paths", paths.collect::<String>()),
                ("justitia.toml", text(config).to_owned()),
            ] {
                fs::write(dir.join(name), content).unwrap();
                spec.binaries.push(dir.join(name));
            }
        }
    }
    spec.data_bytes = 2 << 30;
    spec.disk_mbps = Some(20);
    let said = said(&spec, "");
    let (steps, agent) = (said.text("steps"), said.text("log.1.agent"));
    let left = "knobs stay in force for the next agent";
    assert!(agent.contains(left), "not there: {left}\n{agent}");
    assert_eq!(said.pod("status", 1)[0], of(100, "pod_annotation"));
    assert_eq!(said.pod("status", 2)[0], of(600, "pod_annotation"));
    for step in [
        "weights hold",
        // CapEff: DAC_OVERRIDE, IPC_LOCK, SYS_PTRACE, SYS_RESOURCE, PERFMON, BPF.
        "agent: Uid:0000 CapEff:000000c001084002 CapBnd:000000c001084002 NoNewPrivs:1 Seccomp:2 root:ro",
        "web: Uid:65534655346553465534 CapEff:0000000000000000 CapBnd:00000000000000c0 NoNewPrivs:1 Seccomp:2 root:ro",
        "the page is served by the Secret's certificate",
        "who asks without TLS is told",
        "the page's container has no file of the Secret",
        "the page is served by the renewed one",
        "kill: prior values seen 0 times",
        "weights hold again",
        "the next agent waits",
        "the next agent goes on",
        "roll: prior values seen 0 times",
        "weights hold under the next image",
        "deleted: every knob is as before",
    ] {
        assert!(steps.contains(step), "not there: {step}\n{steps}");
    }
}
