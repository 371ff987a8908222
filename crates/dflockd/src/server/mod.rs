//! The server: listening sockets, connections, deadlines, authentication, draining.
//!
//! `run` needs a tokio runtime with I/O and time. `Shared` is for all other code: signals, HTTP, tests.

mod access;
mod connection;
mod core;
mod driver;
mod key_json;
#[cfg(feature = "etcd")]
mod link;
mod listener;
mod mint;
mod pace;
mod roster;
mod settings;
mod state;
mod tls;
mod transport;
#[cfg(feature = "http")]
mod visit;

#[cfg(feature = "http")]
pub(crate) use self::core::PARTIES_PER_TURN;
pub(crate) use self::core::{Full, Numbers, Readiness, SessionId, Shared, Tallies};
pub(crate) use access::{Access, AuthToken};
#[cfg(feature = "http")]
pub(crate) use connection::LONGEST_WATCH;
#[cfg(feature = "etcd")]
pub(crate) use link::place::{Link, Place, open_http};
pub(crate) use listener::{Listener, address};
pub(crate) use roster::{Roster, Wanted};
pub(crate) use settings::{HttpSettings, Settings};
pub(crate) use state::{StateDir, Synced};
pub(crate) use tls::{Tls, of_handshake};
pub(crate) use transport::Transport;
#[cfg(feature = "http")]
pub(crate) use visit::{Denied, Parting, Visit};

use leases::Seconds;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// For the fuzz target.
#[cfg(fuzzing)]
pub fn check_state(bytes: &[u8]) {
    state::corpus_tests::check(bytes);
}

/// Serves these sockets until [`Shared::drain`] has been called and the last connection has left, or `shutdown_timeout`
/// is over.
///
/// # Errors
/// The task that records holds has panicked.
pub(crate) async fn run(shared: Arc<Shared>, listeners: Vec<Listener>) -> io::Result<()> {
    let driver = tokio::spawn(driver::drive(Arc::clone(&shared)));
    let recorder = driver::start_recorder(&shared);
    #[cfg(feature = "etcd")]
    tokio::spawn(link::leader::serve_standbys(Arc::clone(&shared)));
    let accepting: Vec<JoinHandle<()>> = listeners
        .into_iter()
        .map(|listener| tokio::spawn(listener::accept(Arc::clone(&shared), listener)))
        .collect();
    while !shared.core().draining {
        shared.changed.notified().await;
    }
    // Dropping the loops closes the sockets: no new connections are accepted.
    for task in &accepting {
        task.abort();
    }
    #[cfg(feature = "etcd")]
    shared.standby.drain().await;
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

/// Waits until all clients have left; at the end of the time, ends the remaining connections.
async fn leave_in_time(shared: &Shared) {
    let over = async || {
        while !shared.is_empty() {
            shared.changed.notified().await;
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
