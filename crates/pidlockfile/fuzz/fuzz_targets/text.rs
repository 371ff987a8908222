//! Everything this crate parses, on any bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pidlockfile::fuzz_every_parser(data));
