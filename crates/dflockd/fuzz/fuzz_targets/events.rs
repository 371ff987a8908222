//! Lists of events → engine and model, side by side.
#![no_main]

#[path = "../checks.rs"]
mod checks;
#[path = "../../tests/model/mod.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::events(bytes));
