//! Starts `lfpd`; everything else is in the library.

fn main() {}
