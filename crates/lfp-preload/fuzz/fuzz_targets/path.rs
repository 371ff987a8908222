//! Any bytes for the path classifier: see `check` there.
#![no_main]

#[path = "../../src/path.rs"]
mod path;

libfuzzer_sys::fuzz_target!(|data: &[u8]| path::check(data));
