//! [`justitia_fuzz::parse`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| justitia_fuzz::parse(bytes));
