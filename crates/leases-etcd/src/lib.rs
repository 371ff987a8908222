//! Lease locks and semaphores in etcd: holds that outlive any one machine. [`Engine`] has the calls of
//! [`leases::Engine`](https://docs.rs/leases) and decides about owners by the same rule, so a lock server can use
//! either.
//!
//! It differs because it has to ask etcd: it answers most requests with [`Verdict::Later`](leases::Verdict::Later),
//! and its tasks run on the caller's tokio runtime and reach the server through [`Inlet`](leases::Inlet).

mod options;
#[cfg(feature = "store")]
mod store;

#[cfg(test)]
#[path = "../../dflockd/src/sample_tests.rs"]
mod sample;

pub use options::{EtcdNumbers, EtcdOptions, EtcdTls, EtcdUser};
#[cfg(feature = "store")]
pub use store::{Engine, Settings};
