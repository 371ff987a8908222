//! Bytes from the network → requests.
#![no_main]

#[path = "../checks.rs"]
mod checks;
#[path = "../../tests/model/mod.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::requests(bytes));
