//! Lock files that are published whole, judged by their holder and broken by identity.

pub mod process;

pub use process::Pid;
