//! Compiles the BPF programs.

fn main() {
    justitia_bpf::build("observe");
    justitia_bpf::build("probe");
}
