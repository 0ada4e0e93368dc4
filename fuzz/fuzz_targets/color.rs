//! [`justitia_fuzz::color`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| justitia_fuzz::color(bytes));
