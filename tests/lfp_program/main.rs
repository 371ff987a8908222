//! The program `lfp` as people use it: several users, one service, real programs.

mod bench;
mod clean;
mod codes;
mod look;
mod run;
mod signals;
