//! Starts `lfp`; everything else is in the library.

fn main() {}
