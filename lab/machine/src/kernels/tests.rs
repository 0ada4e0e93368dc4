use super::*;

fn abis(index: &[&str], series: &str) -> Vec<String> {
    let index: Vec<String> = index.iter().map(ToString::to_string).collect();
    let found = candidates(&index, series, "-cloud-amd64").into_iter();
    found.map(|candidate| candidate.abi).collect()
}

#[test]
fn the_newest_abi_of_the_series_comes_first() {
    let index = [
        "linux-image-6.1.0-47-cloud-amd64",
        "linux-image-6.1.0-9-cloud-amd64",
        "linux-image-6.1.0-50-cloud-amd64-unsigned",
        "linux-image-6.1.0-50-cloud-amd64-dbg",
        "linux-image-6.12.1+deb12-cloud-amd64",
    ];
    assert_eq!(abis(&index, "6.1"), ["6.1.0-47", "6.1.0-9"]);
}

#[test]
fn a_point_rebuild_is_newer_than_what_it_rebuilds() {
    let index = [
        "linux-image-6.12.90+deb12-cloud-amd64",
        "linux-image-6.12.90+deb12.1-cloud-amd64",
        "linux-image-6.12.9+deb12-cloud-amd64",
    ];
    let expected = ["6.12.90+deb12.1", "6.12.90+deb12", "6.12.9+deb12"];
    assert_eq!(abis(&index, "6.12"), expected);
}

#[test]
fn a_split_kernel_needs_its_binary_and_its_modules() {
    let index = [
        "linux-image-7.2.12+deb13-cloud-amd64",
        "linux-image-7.2.9+deb13-cloud-amd64",
        "linux-binary-7.2.12+deb13-cloud-amd64",
        "linux-binary-7.2.9+deb13-cloud-amd64",
        "linux-binary-unsigned-7.2.9+deb13-cloud-amd64",
        "linux-modules-7.2.9+deb13-cloud-amd64",
        "linux-base-7.2.9+deb13-cloud-amd64",
    ]
    .map(str::to_owned);
    let found = candidates(&index, "7.2", "-cloud-amd64");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].packages, [3, 5, 6].map(|at| index[at].clone()));
}

#[test]
fn a_kernel_that_was_built_here_is_booted_from_its_tree() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path();
    let error = built(tree).unwrap_err();
    assert!(error.cause().contains("no kernel"), "{error}");

    let image = tree.join("arch/x86/boot/bzImage");
    for (path, text) in [
        (tree.join("include/config/kernel.release"), "6.12.1-own\n"),
        (image.clone(), "kernel"),
        (tree.join("modules.builtin"), "kernel/block/bfq.ko\n"),
    ] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let kernel = built(tree).unwrap();
    assert_eq!(kernel.release, "6.12.1-own");
    assert_eq!(kernel.image().unwrap(), image);
    assert!(kernel.builtin_modules().contains("bfq"));
    assert_eq!(kernel.module_paths().count(), 0);
}
