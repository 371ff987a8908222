//! The program `lfp` as people use it: several users, one service, real programs.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails where it stands"
)]

mod bench;
mod clean;
mod codes;
mod exclusive;
mod help;
mod limits;
mod look;
mod people;
mod picture;
mod recipes;
mod rights;
mod run;
mod signals;
