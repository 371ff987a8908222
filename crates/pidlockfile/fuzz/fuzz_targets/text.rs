//! Everything this crate parses, on any bytes. Its private modules are compiled in as they are,
//! so that nothing has to be public for the sake of fuzzing.

#![no_main]
#![allow(dead_code, reason = "only the parsers are called")]

#[path = "../../src/name.rs"]
mod name;
#[path = "../../src/process.rs"]
mod process;
#[path = "../../src/temporary.rs"]
mod temporary;

mod checks {
    include!("../checks.rs");
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::every_parser(data));
