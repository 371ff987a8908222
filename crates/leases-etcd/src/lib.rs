//! Lease locks and semaphores in etcd: holds that outlive any one machine. [`Engine`] has the calls of
//! [`leases::Engine`](https://docs.rs/leases) and decides about owners by the same rule, so a lock server can use
//! either.
//!
//! It differs because it has to ask etcd: it answers most requests with [`Verdict::Later`](leases::Verdict::Later),
//! and its tasks run on the caller's tokio runtime and reach the server through [`Inlet`](leases::Inlet).

#[cfg(feature = "store")]
mod client;
#[cfg(feature = "store")]
mod journal;
mod options;
#[cfg(feature = "store")]
mod rpc;
#[cfg(feature = "store")]
mod settings;
#[cfg(feature = "store")]
mod store;

#[cfg(test)]
#[path = "../../dflockd/src/sample_tests.rs"]
mod sample;

pub use options::{EtcdNumbers, EtcdOptions, EtcdTls, EtcdUser};
#[cfg(feature = "store")]
pub use {
    journal::{Contact, EtcdJournal, Observer, Seen},
    settings::Settings,
    store::Engine,
};

/// Nobody can guess it as long as the system has any randomness.
#[cfg(feature = "store")]
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(0))
}
