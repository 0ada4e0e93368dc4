use super::*;

fn index(names: &[&str]) -> Vec<Package> {
    names
        .iter()
        .map(|name| Package {
            name: (*name).into(),
            version: "1".into(),
        })
        .collect()
}

#[test]
fn the_newest_abi_of_the_series_comes_first() {
    let index = index(&[
        "linux-image-6.1.0-47-cloud-amd64",
        "linux-image-6.1.0-9-cloud-amd64",
        "linux-image-6.1.0-50-cloud-amd64-unsigned",
        "linux-image-6.1.0-50-cloud-amd64-dbg",
        "linux-image-6.12.1+deb12-cloud-amd64",
    ]);
    let abis: Vec<_> = candidates(&index, "6.1", "-cloud-amd64")
        .into_iter()
        .map(|c| c.abi)
        .collect();
    assert_eq!(abis, ["6.1.0-47", "6.1.0-9"]);
}

#[test]
fn a_point_rebuild_is_newer_than_what_it_rebuilds() {
    let index = index(&[
        "linux-image-6.12.90+deb12-cloud-amd64",
        "linux-image-6.12.90+deb12.1-cloud-amd64",
        "linux-image-6.12.9+deb12-cloud-amd64",
    ]);
    let abis: Vec<_> = candidates(&index, "6.12", "-cloud-amd64")
        .into_iter()
        .map(|c| c.abi)
        .collect();
    assert_eq!(abis, ["6.12.90+deb12.1", "6.12.90+deb12", "6.12.9+deb12"]);
}

#[test]
fn a_split_kernel_needs_its_binary_and_its_modules() {
    let index = index(&[
        "linux-image-7.2.12+deb13-cloud-amd64",
        "linux-image-7.2.9+deb13-cloud-amd64",
        "linux-binary-7.2.12+deb13-cloud-amd64",
        "linux-binary-7.2.9+deb13-cloud-amd64",
        "linux-binary-unsigned-7.2.9+deb13-cloud-amd64",
        "linux-modules-7.2.9+deb13-cloud-amd64",
        "linux-base-7.2.9+deb13-cloud-amd64",
    ]);
    let found = candidates(&index, "7.2", "-cloud-amd64");
    assert_eq!(found.len(), 1, "{found:?}");
    let names: Vec<_> = found[0].packages.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "linux-binary-7.2.9+deb13-cloud-amd64",
            "linux-modules-7.2.9+deb13-cloud-amd64",
            "linux-base-7.2.9+deb13-cloud-amd64"
        ]
    );
}

#[test]
fn a_changed_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("vmlinuz"), "k").unwrap();
    let sum = sha256_file(&dir.path().join("vmlinuz")).unwrap();
    let kernel = Kernel {
        release: "r".into(),
        dir: dir.path().to_owned(),
        image: "vmlinuz",
        files: BTreeMap::from([("vmlinuz".into(), sum)]),
    };
    assert!(kernel.image().is_ok());
    fs::write(dir.path().join("vmlinuz"), "x").unwrap();
    assert_eq!(kernel.image().unwrap_err().exit_code(), 69);
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
