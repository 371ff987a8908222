//! `sema` and `semats` as real programs: alone, for other users, in other namespaces, and as a package.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod documents;
mod namespaces;
mod package;
mod programs;
mod run;
mod users;
