//! [`justitia_fuzz::nri`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| justitia_fuzz::nri(bytes));
