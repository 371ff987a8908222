//! Servers whose holds are in etcd, with three real members: what only they must bear. Other tests of the server and its
//! clients run with it, too: `tests/run`.
#![cfg(feature = "etcd")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails where it stands"
)]

mod clocks;
mod faults;
mod journal;
mod leader;
mod moves;
mod proxies;
mod reach;
mod relay;
mod report;
mod sessions;
mod tenure;
