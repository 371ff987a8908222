//! The server: listening sockets, connections, deadlines, authentication, draining.
//!
//! [`Server::new`] → [`Server::handle`] → [`Server::run`] on a tokio runtime with I/O and time. The
//! [`Handle`] is for all other code: signals, HTTP, tests.

mod access;
mod connection;
mod core;
mod driver;
mod key_json;
#[cfg(feature = "etcd")]
mod link;
mod listener;
mod mint;
#[cfg(feature = "http")]
mod pace;
mod recorder;
mod regular;
#[cfg(feature = "http")]
mod roster;
mod settings;
mod state;
mod tls;
mod transport;

pub use self::core::{Readiness, Tallies};
pub use access::{Access, AuthToken, Scope};
#[cfg(feature = "http")]
pub(crate) use key_json::push_key;
pub use key_json::{Client, Clients};
pub use listener::Listener;
#[cfg(feature = "http")]
pub(crate) use pace::Pace;
#[cfg(feature = "http")]
pub use roster::{Roster, Wanted};
pub use settings::Settings;
pub use state::{StateDir, Synced, check as check_state};
pub use tls::Tls;

use self::core::Shared;
use leases::journal::Failed;
use leases::wire::StatsCursor;
use leases::{Census, Counters, Key, Progress, Seconds};
pub use leases_etcd::EtcdNumbers;
#[cfg(all(feature = "etcd", feature = "http"))]
pub(crate) use link::stream::LinkStream;
use std::io;
use std::sync::Arc;
use std::time::Duration;
#[cfg(all(feature = "etcd", feature = "http"))]
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

/// A server that is ready to run.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
}

/// Controls a running server; cheap to clone, usable from any task or thread.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

/// The metrics of a server at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Events in the engine since the start.
    pub engine: Counters,
    /// Events at the connections since the start.
    pub connections: Tallies,
    /// Connections now.
    pub open_connections: usize,
    /// Clients that wait for changes of keys.
    pub watchers: usize,
    /// Keys, holders and waiters now.
    pub census: Census,
    /// The metrics of the record in etcd, if there is one.
    pub etcd: Option<EtcdNumbers>,
    /// Whether the server is shutting down.
    pub draining: bool,
    /// The time since the start.
    pub uptime: Duration,
}

impl Server {
    /// A server for these sockets.
    pub fn new(settings: Settings, listeners: Vec<Listener>) -> Self {
        Self { shared: Arc::new(Shared::new(settings)), listeners }
    }

    /// A handle to control it.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Serves until [`Handle::drain`] has been called and the last connection has left, or `shutdown_timeout` is
    /// over.
    ///
    /// # Errors
    /// A listening socket cannot be watched.
    pub async fn run(self) -> io::Result<()> {
        let Self { shared, listeners } = self;
        let driver = tokio::spawn(driver::drive(Arc::clone(&shared)));
        let recorder = recorder::start(&shared);
        #[cfg(feature = "etcd")]
        tokio::spawn(link::leader::serve_standbys(Arc::clone(&shared)));
        let accepting: Vec<JoinHandle<()>> = listeners
            .into_iter()
            .map(|listener| tokio::spawn(listener::accept(Arc::clone(&shared), listener)))
            .collect();
        while !shared.core().draining {
            shared.changed().notified().await;
        }
        // Dropping the loops closes the sockets: no new connections are accepted.
        for task in &accepting {
            task.abort();
        }
        #[cfg(feature = "etcd")]
        shared.standby().drain().await;
        // The clients of a leader of several servers leave when its term has ended: the next leader knows their holds.
        if !shared.settings.is_shared() {
            leave_in_time(&shared).await;
        }
        shared.core().recording.close();
        if let Some(recorder) = recorder {
            recorder.await?;
        }
        leave_in_time(&shared).await;
        driver.abort();
        Ok(())
    }
}

/// Waits until all clients have left; at the end of the time, ends the remaining connections.
async fn leave_in_time(shared: &Shared) {
    let over = async || {
        while !shared.is_empty() {
            shared.changed().notified().await;
        }
    };
    let limit = shared.settings.shutdown_timeout;
    if limit == Seconds::ZERO {
        return over().await;
    }
    let limit = Duration::from_secs(limit.count());
    if tokio::time::timeout(limit, over()).await.is_err() {
        tracing::warn!("shutdown timeout reached");
        shared.kick();
        over().await;
    }
}

impl Handle {
    /// Begins the shutdown: no new connections are accepted, and waits end with `error_draining`. May be called
    /// twice.
    pub fn drain(&self) {
        let now = self.0.now();
        self.0.core().drain(now);
        self.0.changed().notify_one();
    }

    /// Whether [`Handle::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.0.core().draining
    }

    /// From now on, these secrets are valid, and new connections use these TLS settings. Existing connections stay.
    pub fn reload(&self, access: Access, tls: Option<Tls>) {
        self.0.set_open(access, tls);
    }

    /// The secrets that are valid now.
    pub fn access(&self) -> Arc<Access> {
        self.0.access()
    }

    /// The TLS settings of new connections.
    pub fn tls(&self) -> Option<Tls> {
        self.0.tls()
    }

    /// How long a client that has just shown a wrong secret has to wait for the answer.
    pub fn penalty(&self) -> Duration {
        let now = self.0.now();
        Duration::from_micros(self.0.core().penalties.next(now).micros_since(now))
    }

    /// Takes away all holds of a key; returns their number.
    ///
    /// # Errors
    /// Holds cannot be recorded; some of them may be gone.
    pub async fn force_release(&self, key: Key<'_>) -> Result<usize, Failed> {
        let now = self.0.now();
        let released = self.0.core().force_release(now, key)?;
        self.recorded().await?;
        Ok(released)
    }

    /// Ready when all that was read or changed so far may be told: it is recorded, and no other server has led since.
    ///
    /// # Errors
    /// Holds cannot be recorded, so it may be wrong.
    pub async fn recorded(&self) -> Result<(), Failed> {
        self.0.recorded().await
    }

    /// Whether the locks are in this process.
    #[cfg(all(feature = "etcd", feature = "http"))]
    pub(crate) fn has_locks(&self) -> bool {
        !self.0.settings.is_shared() || self.0.standby().leads()
    }

    /// A stream to the leader's HTTP, if this server passes its clients on.
    #[cfg(all(feature = "etcd", feature = "http"))]
    pub(crate) async fn open_http(&self) -> Option<LinkStream> {
        self.0.standby().open_http().await
    }

    /// The streams of HTTP from other servers; once.
    #[cfg(all(feature = "etcd", feature = "http"))]
    pub(crate) fn take_http_streams(&self) -> Option<UnboundedReceiver<LinkStream>> {
        self.0.standby().take_http_streams()
    }

    /// Ends the connection with this number; false if there is none.
    pub fn kick(&self, serial: u64) -> bool {
        self.0.core().connections.kick(serial)
    }

    /// Whether clients should use this server.
    pub fn readiness(&self) -> Readiness {
        let now = self.0.now();
        #[cfg(feature = "etcd")]
        if self.0.standby().has_link() && !self.is_draining() {
            return Readiness::READY;
        }
        self.0.core().readiness(self.0.settings.state.as_deref(), now)
    }

    /// The metrics now.
    pub fn numbers(&self) -> Numbers {
        #[cfg(feature = "etcd")]
        let etcd = self.0.standby().numbers();
        #[cfg(not(feature = "etcd"))]
        let etcd: Option<EtcdNumbers> = None;
        let passed = self.0.passed();
        let core = self.0.core();
        Numbers {
            engine: *core.engine.counters(),
            connections: core.tallies,
            open_connections: core.connections.len() + passed,
            watchers: core.watchers.len(),
            census: *core.engine.census(),
            // What the clients of a leader see of it.
            etcd: etcd.map(|etcd| EtcdNumbers {
                full: if etcd.leads { core.recording.is_full } else { etcd.full },
                ..etcd
            }),
            draining: core.draining,
            uptime: Duration::from_micros(self.0.now().micros()),
        }
    }

    /// Appends the next piece of the `stats` body: JSON without `ok ` and newline, in pieces of
    /// about 64 KiB, between which others are to be served.
    pub fn stats_piece(&self, cursor: &mut StatsCursor, out: &mut String) -> Progress {
        let now = self.0.now();
        self.0.core().stats(now, cursor, out, core::STATS_PIECE_BYTES)
    }
}
