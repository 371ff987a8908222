//! Bytes from the network → requests.
#![no_main]

#[allow(dead_code, reason = "each target uses its half")]
#[path = "../checks.rs"]
mod checks;
#[allow(dead_code, reason = "each target uses its half")]
#[path = "../../tests/model/mod.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::requests(bytes));
