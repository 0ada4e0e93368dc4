//! [`justitia_fuzz::socket`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| justitia_fuzz::socket(bytes));
