//! A store outside this process, as the rest of the program knows it: its settings, its counters, whether it
//! can be reached, and its way into the server. It exists with and without the feature `etcd`, so that
//! options and numbers have one form; `etcd` is the store itself.

use leases::Moment;
use std::path::PathBuf;
use std::sync::Weak;

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

/// The store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;

/// The server, for the tasks of a store. They lie below it and name no part of it but this.
pub trait Above: Send + Sync {
    /// The store has effects to take, or another deadline.
    fn stirred(&self);

    /// The server's clock.
    fn now(&self) -> Moment;
}

/// The way in for what comes by itself; cheap to clone, and no reason for the server to live.
#[derive(Clone)]
pub struct Inlet(Weak<dyn Above>);

impl Inlet {
    /// To this server.
    pub fn new(server: Weak<dyn Above>) -> Self {
        Self(server)
    }

    /// See [`Above::stirred`]. Not to be called from inside a store's call.
    pub fn stir(&self) {
        if let Some(server) = self.0.upgrade() {
            server.stirred();
        }
    }

    /// See [`Above::now`]; nothing when the server is gone.
    #[must_use]
    pub fn now(&self) -> Option<Moment> {
        self.0.upgrade().map(|server| server.now())
    }
}
