//! [`justitia_fuzz::journal`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| justitia_fuzz::journal(bytes));
