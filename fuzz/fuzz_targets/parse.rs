//! Any bytes, every parser of kernel files: nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| justitia_cgroup::parse::everything(text));
