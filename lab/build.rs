//! Compiles the BPF programs.

fn main() {
    justitia_bpf::build("waits");
}
