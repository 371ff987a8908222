//! The record of holds in etcd, for lock servers of which one leads. [`EtcdJournal`] is a
//! [`Journal`](leases::journal::Journal) for the engine of [`leases`](https://docs.rs/leases): it takes the lead, reads
//! the holds, and records each change of them, unless another server has taken the lead meanwhile.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

#[cfg(feature = "journal")]
mod client;
#[cfg(feature = "journal")]
mod journal;
mod options;
#[cfg(feature = "journal")]
mod rpc;
#[cfg(feature = "journal")]
mod settings;

pub use options::{EtcdNumbers, EtcdOptions, EtcdTls, EtcdUser};
#[cfg(feature = "journal")]
pub use {
    journal::{Contact, EtcdJournal, Observer, Seen},
    settings::Settings,
};

/// A number that nobody can guess as long as the system has any randomness.
#[cfg(feature = "journal")]
#[must_use]
pub fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(0))
}
