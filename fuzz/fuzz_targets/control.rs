#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pilotlight_fuzz::control::check(bytes));
