//! Any bytes in a lock file: see `checks.rs`.
#![no_main]

#[path = "../checks.rs"]
#[allow(dead_code, reason = "each target has its own check")]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::lock_file(data));
