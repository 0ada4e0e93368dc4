//! Compiles BPF programs, for build scripts.
//!
//! Programs are compiled with clang for the instruction set of Linux 5.12 (`-mcpu=v3`); a warning is an
//! error.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

/// Lints that generated types need not pass.
const GENERATED: &str = "#[allow(clippy::all, clippy::pedantic, dead_code, \
single_use_lifetimes, unreachable_pub, unused_imports, unsafe_op_in_unsafe_fn)]\n";

/// Compiles `bpf/NAME.bpf.c` of the package that is being built. Its `OUT_DIR` then holds `NAME.o`, to be
/// embedded in the binary, and `NAME.rs`, which defines a module `generated` with the Rust types of the
/// records in its submodule `types`.
///
/// # Panics
/// If a program does not compile or the files cannot be written: a build script has no other way to report
/// it.
pub fn build(name: &str) {
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        return;
    };
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed={}", include.display());
    let source = format!("bpf/{name}.bpf.c");
    let skeleton = out.join(format!("{name}.skel.rs"));
    let result = SkeletonBuilder::new()
        .source(&source)
        .clang_args([
            "-Wall".as_ref(),
            "-Werror".as_ref(),
            "-mcpu=v3".as_ref(),
            // Programs name only the arguments they read.
            "-Wno-unused-parameter".as_ref(),
            "-I".as_ref(),
            include.as_os_str(),
        ])
        .obj(out.join(format!("{name}.o")))
        .build_and_generate(&skeleton);
    assert!(
        result.is_ok(),
        "{source}: {:?}\nclang, libelf-dev and zlib1g-dev are needed: scripts/setup installs them",
        result.err(),
    );
    // Cargo also sets OUT_DIR for the crate itself.
    let module = format!(
        "{GENERATED}mod generated {{\n    include!(concat!(env!(\"OUT_DIR\"), \"/{name}.skel.rs\"));\n}}\n"
    );
    let written = fs::write(out.join(format!("{name}.rs")), module);
    assert!(written.is_ok(), "{}: {written:?}", out.display());
}
