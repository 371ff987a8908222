//! What the store is told, and what it counts. Both exist without the store, so that the options and numbers of a
//! server have one form.

use std::path::PathBuf;

/// What `--store etcd` is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdOptions {
    /// Host and port of members, in order of preference; at least one.
    pub endpoints: Vec<String>,
    /// All our keys begin so: several services may share one etcd.
    pub prefix: String,
    /// TLS towards etcd, if any.
    pub tls: Option<EtcdTls>,
    /// Name and password, if etcd has users.
    pub user: Option<EtcdUser>,
}

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// The authorities that may sign the certificates of members.
    pub authority: PathBuf,
    /// Our certificate and its key, for members that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUser {
    /// As etcd knows them.
    pub name: String,
    /// File with the password; blanks around it do not count.
    pub password_file: PathBuf,
}

/// What the store in etcd counts of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EtcdNumbers {
    /// Whether this front-end is registered.
    pub session: bool,
    /// Registrations that were lost.
    pub sessions_lost: u64,
    /// Front-ends that live, this one included.
    pub front_ends: usize,
    /// Calls to etcd.
    pub calls: u64,
    /// Transactions, of which one call takes several.
    pub transactions: u64,
    /// Calls with an unknown outcome.
    pub unclear: u64,
    /// Whether etcd has no more space.
    pub full: bool,
    /// Tickets with a create of unknown outcome that was made void.
    pub tombstones: u64,
    /// Contended keys that are watched.
    pub mirrors: usize,
}
