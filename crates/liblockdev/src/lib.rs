//! `liblockdev.so.1`: the interface of the old library for the locks of serial devices, over the
//! Lock File Protocol service. Its programs need no right to write the lock directory, no group
//! and no setgid helper.
//!
//! `c` faces C; `device` and `program` are ordinary Rust.

pub mod c;
mod device;
pub mod program;
