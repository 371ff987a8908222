//! Any bytes as a lock file: see `tests/corpus/checks.rs`.
#![no_main]

#[path = "../../tests/corpus/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::record(data));
