//! The record of holds in etcd, for lock servers of which one leads. [`EtcdJournal`] is a
//! [`Journal`](leases::journal::Journal) for the engine of [`leases`](https://docs.rs/leases): it takes the lead, reads
//! the holds, and records each change of them, unless another server has taken the lead meanwhile.
//!
//! The settings of the journal and its counters exist without it, so the options and numbers of a server always have the
//! same form.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

#[cfg(feature = "journal")]
mod client;
#[cfg(feature = "journal")]
mod journal;
#[cfg(feature = "journal")]
mod rpc;

use std::path::PathBuf;

#[cfg(feature = "journal")]
pub use client::{EtcdOption, InvalidOption, PRESENCE, Settings};
#[cfg(feature = "journal")]
pub use journal::{Contact, EtcdJournal, Observer, Seen};

/// A number that nobody can guess as long as the system has any randomness.
#[cfg(feature = "journal")]
#[must_use]
pub fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(0))
}

/// The settings of `--store etcd`. Begin with the default, and set at least `endpoints`.
///
/// ```
/// use leases_etcd::{EtcdOptions, EtcdTls, EtcdUser};
///
/// let mut options = EtcdOptions::default();
/// options.endpoints = vec!["https://etcd1:2379".to_owned(), "https://etcd2:2379".to_owned()];
/// options.tls = Some(EtcdTls::new("/etc/dflockd/etcd-ca.pem".into()));
/// options.user = Some(EtcdUser::new("dflockd", "/etc/dflockd/etcd-password"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// Hosts and ports of members, in order of preference; at least one.
    pub endpoints: Vec<String>,
    /// The prefix of all our keys, so that several services can share one etcd.
    pub prefix: String,
    /// TLS to etcd, if it is used.
    pub tls: Option<EtcdTls>,
    /// Name and password, if etcd has users.
    pub user: Option<EtcdUser>,
}

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdTls {
    /// The authorities that may sign the certificates of members.
    pub authority: PathBuf,
    /// Our certificate and its key, for members that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl EtcdTls {
    /// TLS to members that ask for no certificate of ours.
    #[must_use]
    pub const fn new(authority: PathBuf) -> Self {
        Self { authority, identity: None }
    }
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdUser {
    /// The name in etcd.
    pub name: String,
    /// File with the password; blanks around it do not count.
    pub password_file: PathBuf,
}

impl EtcdUser {
    /// A user whose password is in a file.
    pub fn new(name: impl Into<String>, password_file: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), password_file: password_file.into() }
    }
}

/// Counters of the journal in etcd only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a server shows every number")]
pub struct EtcdNumbers {
    /// Whether the leader in etcd is known.
    pub session: bool,
    /// Whether this server leads.
    pub leads: bool,
    /// Calls to etcd.
    pub calls: u64,
    /// Calls that did not get a clear answer.
    pub unclear: u64,
    /// Whether etcd has no more space.
    pub full: bool,
}
