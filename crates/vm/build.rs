//! Compiles the BPF programs with clang and generates the Rust types of their records.

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let Some(out) = env::var_os("OUT_DIR") else {
        return;
    };
    println!("cargo:rerun-if-changed=bpf");
    let out = Path::new(&out);
    let result = SkeletonBuilder::new()
        .source("bpf/images.bpf.c")
        .clang_args([
            OsStr::new("-Wall"),
            OsStr::new("-Werror"),
            // Instructions of Linux 5.12: compare and exchange.
            OsStr::new("-mcpu=v3"),
            // Programs name only the arguments they read.
            OsStr::new("-Wno-unused-parameter"),
        ])
        .obj(out.join("images.o"))
        .build_and_generate(out.join("images.skel.rs"));
    assert!(
        result.is_ok(),
        "bpf/images.bpf.c: {:?}\nclang, libelf-dev and zlib1g-dev are needed: scripts/setup installs them",
        result.err(),
    );
}
