//! Weights of Kubernetes pods.

use super::*;

const POD: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice";

fn of_kubernetes(fs: &Arc<FakeFs>, root: &Path, caps: &[(&str, u32)]) -> Scanner {
    let caps = caps
        .iter()
        .map(|(name, cap)| ((*name).to_owned(), weight(*cap)));
    let config = DiscoverConfig {
        kubernetes: KubernetesConfig {
            caps: caps.collect(),
            ..KubernetesConfig::default()
        },
        ..DiscoverConfig::default()
    };
    scanner_with(fs, config, RuntimeDirs::under(root))
}

type Seen = (String, u32, WeightSource, Option<String>);

/// Path, weight, source of the weight, and alias of each group.
fn seen(scanner: &mut Scanner) -> Vec<Seen> {
    scanner.rescan().unwrap();
    let groups = scanner.groups().iter();
    let of = |group: &Discovered| {
        let alias = group.alias.clone();
        (group.path.clone(), group.weight.get(), group.source, alias)
    };
    groups.map(of).collect()
}

#[test]
fn a_pod_of_which_only_its_cgroup_is_known_has_the_weight_of_its_qos_class() {
    let root = tempfile::tempdir().unwrap();
    let (guaranteed, best_effort) = ("/kubepods/podab-cd", "/kubepods/besteffort/podab-ce");
    let fs = fake(&[guaranteed, best_effort, POD]);
    let class = |path: &str, weight| (path.to_owned(), weight, WeightSource::QosClass, None);
    let expected = [
        class(POD, 200),
        class(best_effort, 50),
        class(guaranteed, 400),
    ];
    assert_eq!(seen(&mut of_kubernetes(&fs, root.path(), &[])), expected);
}

#[test]
fn an_annotation_of_a_pod_counts_up_to_the_cap_of_its_namespace() {
    let root = tempfile::tempdir().unwrap();
    let container = format!("{POD}/cri-containerd-{ID}.scope");
    let fs = fake(&[&container]);
    let record = format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json");
    let asks = r#", "justitia.io/weight": "900", "justitia.io/weight.main": "3000", "io.justitia.weight": "9000""#;
    write(root.path(), &record, &container_of_pod(asks));
    let named = |name: &str| Some(name.to_owned());
    for (caps, expected) in [
        (&[][..], (200, WeightSource::PodCap)),
        (&[("shop", 500), ("*", 10_000)], (500, WeightSource::PodCap)),
        (&[("*", 1000)], (900, WeightSource::PodAnnotation)),
        (&[("other", 1000)], (200, WeightSource::PodCap)),
    ] {
        let (weight, source) = expected;
        let expected = [
            (POD.to_owned(), weight, source, named("shop/db-0")),
            (
                container.clone(),
                3000,
                WeightSource::PodAnnotation,
                named("shop/db-0/main"),
            ),
        ];
        assert_eq!(
            seen(&mut of_kubernetes(&fs, root.path(), caps)),
            expected,
            "{caps:?}"
        );
    }
    // If only containers are managed, the pod's weight still bounds them.
    let runtime = RuntimeDirs::under(root.path());
    let mut scanner = scanner(&fs, &["/kubepods.slice/**/*.scope"], runtime);
    assert_eq!(seen(&mut scanner)[0].0, container);
    let weighed = scanner.weighed();
    assert_eq!(
        (weighed[0].path.as_str(), weighed[0].weight.get()),
        (POD, 200)
    );
}

#[test]
fn a_pod_reported_by_a_runtime_precedes_its_record_and_counts_at_the_next_look() {
    let root = tempfile::tempdir().unwrap();
    let container = format!("{POD}/cri-containerd-{ID}.scope");
    let fs = fake(&[&container]);
    let record = format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json");
    write(root.path(), &record, &container_of_pod(""));
    let mut scanner = of_kubernetes(&fs, root.path(), &[]);
    assert_eq!(seen(&mut scanner)[0].2, WeightSource::QosClass);
    let mut pods = Pods::default();
    let annotations = [
        ("justitia.io/weight", "70"),
        ("justitia.io/weight.main", "30"),
    ];
    pods.add_pod("ab-cd", Pod::new("shop", "db-1", annotations).unwrap());
    pods.add_container(ID, "ab-cd", "main");
    scanner.set_pods(Arc::new(pods));
    assert!(scanner.rescan().unwrap());
    assert!(!scanner.rescan().unwrap());
    let weights = seen(&mut scanner).into_iter().map(|group| group.1);
    assert_eq!(weights.collect::<Vec<_>>(), [70, 30]);
    let names = scanner.groups()[1].pod.clone().unwrap();
    let expected = PodNames {
        namespace: "shop".into(),
        pod: "db-1".into(),
        container: Some("main".into()),
    };
    assert_eq!(names, expected);
    assert_eq!(scanner.find("shop/db-1").unwrap().path, POD);
}

#[test]
fn roots_word_comes_before_a_pods_annotation_and_its_kernel_files_before_the_qos_class() {
    let root = tempfile::tempdir().unwrap();
    let fs = fake(&[POD]);
    fs.open(POD)
        .unwrap()
        .write_knob(Knob::IoWeight, Value::Weight(700))
        .unwrap();
    let mut scanner = of_kubernetes(&fs, root.path(), &[]);
    assert_eq!(seen(&mut scanner)[0].2, WeightSource::IoWeight);
    let mut pods = Pods::default();
    pods.add_pod(
        "ab-cd",
        Pod::new("shop", "db-0", [("justitia.io/weight", "70")]).unwrap(),
    );
    scanner.set_pods(Arc::new(pods));
    assert_eq!(seen(&mut scanner)[0].2, WeightSource::PodAnnotation);
    fs.open(POD)
        .unwrap()
        .set_xattr(xattr::WEIGHT, "800")
        .unwrap();
    assert_eq!(
        (seen(&mut scanner)[0].1, seen(&mut scanner)[0].2),
        (800, WeightSource::Xattr)
    );
}

#[test]
fn cri_o_records_the_annotations_of_a_pod_as_text_in_an_annotation() {
    let root = tempfile::tempdir().unwrap();
    let fs = fake(&[POD]);
    let text = r#"{"annotations": {"io.kubernetes.pod.uid": "ab-cd", "io.kubernetes.pod.name": "db-0",
        "io.kubernetes.pod.namespace": "shop", "io.kubernetes.cri-o.Annotations": "{\"justitia.io/weight\": \"90\"}"}}"#;
    let record = format!("var/lib/containers/storage/overlay-containers/{ID}/userdata/config.json");
    write(root.path(), &record, text);
    let of_pod = seen(&mut of_kubernetes(&fs, root.path(), &[])).remove(0);
    let alias = Some("shop/db-0".to_owned());
    assert_eq!(
        of_pod,
        (POD.to_owned(), 90, WeightSource::PodAnnotation, alias)
    );
}

#[test]
fn a_pod_of_cri_o_is_no_other_pod_by_what_its_creator_wrote() {
    let root = tempfile::tempdir().unwrap();
    let fs = fake(&[POD]);
    let forged = r#", "justitia.io/weight": "90", "io.kubernetes.pod.uid": "ef", "io.kubernetes.pod.name": "evil",
        "io.kubernetes.pod.namespace": "tenant""#;
    let storage = format!("var/lib/containers/storage/overlay-containers/{ID}/userdata");
    for dir in [storage, format!("run/crun/{ID}")] {
        let record = format!("{dir}/config.json");
        write(root.path(), &record, &container_of_pod(forged));
    }
    let of_pod = seen(&mut of_kubernetes(&fs, root.path(), &[])).remove(0);
    let qos = (POD.to_owned(), 200, WeightSource::QosClass, None);
    assert_eq!(of_pod, qos);
}

#[test]
fn a_containers_annotation_is_no_weight_where_no_pods_cgroup_bounds_it() {
    let root = tempfile::tempdir().unwrap();
    let outside = format!("/system.slice/cri-containerd-{ID}.scope");
    let fs = fake(&[&outside]);
    let record = format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json");
    let asks = r#", "justitia.io/weight": "900", "justitia.io/weight.main": "3000""#;
    write(root.path(), &record, &container_of_pod(asks));
    let found = seen(&mut of_kubernetes(&fs, root.path(), &[("*", 10_000)])).remove(0);
    assert_eq!((found.1, found.2), (100, WeightSource::Default));
}
