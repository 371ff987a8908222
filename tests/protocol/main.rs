//! The protocol without a process or a file: its contract, and the fuzzers' corpus.

#[path = "../../fuzz/checks.rs"]
mod checks;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod corpus;
