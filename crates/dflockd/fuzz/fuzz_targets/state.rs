//! Two state files → the holds there are.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dflockd::server::check_state(bytes));
