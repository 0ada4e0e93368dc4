//! [`justitia_fuzz::qcow2`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| justitia_fuzz::qcow2(bytes));
