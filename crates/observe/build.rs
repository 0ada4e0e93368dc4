//! Compiles the BPF programs with clang and generates the Rust types of their records.
//!
//! `OUT_DIR` then holds, for each program file, the object that is embedded in the binary and a
//! module with the types.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let Some(out) = env::var_os("OUT_DIR") else {
        return;
    };
    println!("cargo:rerun-if-changed=bpf");
    for name in ["observe", "probe"] {
        build(name, Path::new(&out));
    }
}

fn build(name: &str, out: &Path) {
    let source = PathBuf::from(format!("bpf/{name}.bpf.c"));
    let result = SkeletonBuilder::new()
        .source(&source)
        .clang_args([
            OsStr::new("-Wall"),
            OsStr::new("-Werror"),
            // Instructions of Linux 5.12: 32-bit arithmetic, shorter programs.
            OsStr::new("-mcpu=v3"),
            // Programs name only the arguments they read.
            OsStr::new("-Wno-unused-parameter"),
        ])
        .obj(out.join(format!("{name}.o")))
        .build_and_generate(out.join(format!("{name}.skel.rs")));
    assert!(
        result.is_ok(),
        "{}: {:?}\nclang, libelf-dev and zlib1g-dev are needed: scripts/setup installs them",
        source.display(),
        result.err(),
    );
}
