//! The program `lfp` as people use it: several users, one service, real programs.

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
mod run;
mod signals;
