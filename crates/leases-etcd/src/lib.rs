//! The record of holds in etcd, for lock servers of which one leads. [`EtcdJournal`] is a
//! [`Journal`](leases::journal::Journal) for the engine of [`leases`](https://docs.rs/leases): it takes the lead, reads
//! the holds, and records each change of them, unless another server has taken the lead meanwhile.

mod client;
mod journal;
mod options;
mod rpc;
mod settings;

pub use journal::{Contact, EtcdJournal, Observer, Seen};
pub use options::{EtcdNumbers, EtcdOptions, EtcdTls, EtcdUser};
pub use settings::Settings;

/// A number that nobody can guess as long as the system has any randomness.
#[must_use]
pub fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(0))
}
