//! The server: listening sockets, connections, deadlines, authentication, draining.
//!
//! ```text
//! listener ─▶ connection  one client of a socket: frames, answers, deadlines; over `link`, one of another server
//!    http  ─▶ visit       the same for one request over HTTP
//!             both ─▶ core            under one lock: the engine, and what is known of each connection
//!                     core::recording which answers wait for the record; the terms of a leader
//!             recorder ─▶ state       the record in files; or that in etcd, of the crate `leases_etcd`
//! ```
//!
//! A client that is gone is noticed by its connection. `Connection::close` ends it in the engine, which releases its
//! holds, or keeps them for the grace. They stay if it is not known what became of the client.
//!
//! A shutdown begins with `Shared::drain`: the engine ends all waits and refuses new holds, and `run` closes the listening
//! sockets and waits for the clients. A leader with etcd does not wait for its clients first: its term ends, which sends
//! them away and keeps their holds (`Core::end_term`). A standby that shuts down says so to the leader (`Cluster::drain`),
//! which answers the clients that come from there in the same way (`Transport::is_draining`).
//!
//! `run` needs a tokio runtime with I/O and time. `Shared` is for all other code: signals, HTTP, tests.
//!
//! Two tasks run as long as the server; with etcd, `link` has two more (`serve_standbys`, `follow`). The *timer* is that of
//! the engine: it sleeps until the next deadline of a lease, a wait or a session. A request wakes it only if it brings an
//! earlier deadline, or changes a key that clients watch.
//!
//! The *recorder* drives the journal: one commit or confirmation after another, and one term after another. Requests are
//! served meanwhile, and their answers wait for it, as [`Commits`](leases::journal::Commits) says.

mod access;
mod connection;
mod core;
#[cfg(feature = "etcd")]
mod link;
mod listener;
mod settings;
mod state;
mod transport;
#[cfg(feature = "http")]
mod visit;

#[cfg(feature = "http")]
pub(crate) use self::core::PARTIES_PER_TURN;
pub(crate) use self::core::{
    Full, Headcount, Numbers, Readiness, Roster, RosterQuery, SessionId, Shared, Tallies,
};
pub(crate) use access::{Access, AuthToken};
#[cfg(feature = "http")]
pub(crate) use connection::LONGEST_WATCH;
use leases::journal::{Call, Failed, Journal, Recovered};
use leases::{MAX_KEYS, Seconds};
#[cfg(feature = "etcd")]
use leases_etcd::{Contact, EtcdJournal};
#[cfg(feature = "etcd")]
use link::standby::{follow, release_unknown};
#[cfg(feature = "etcd")]
pub(crate) use link::{Leader, Link, open_http};
pub(crate) use listener::{Listener, address};
pub(crate) use settings::{HttpSettings, Settings};
use state::DiskJournal;
pub(crate) use state::{StateDir, Synced};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, timeout, timeout_at};
pub(crate) use transport::{Tls, Transport, of_handshake};
#[cfg(feature = "http")]
pub(crate) use visit::{Denied, Parting, Visit};

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
    let timer = tokio::spawn(run_timer(Arc::clone(&shared)));
    let recorder = start_recorder(&shared);
    #[cfg(feature = "etcd")]
    tokio::spawn(link::leader::serve_standbys(Arc::clone(&shared)));
    let accepting: Vec<JoinHandle<()>> = listeners
        .into_iter()
        .map(|listener| tokio::spawn(listener::accept(Arc::clone(&shared), listener)))
        .collect();
    while !shared.core().engine.is_draining() {
        shared.changed.notified().await;
    }
    // Dropping the loops closes the sockets: no new connections are accepted.
    for task in &accepting {
        task.abort();
    }
    #[cfg(feature = "etcd")]
    shared.cluster.drain().await;
    // The clients of a leader of several servers leave when its term has ended: the next leader knows their holds.
    if !shared.settings.is_shared() {
        leave_in_time(&shared).await;
    }
    shared.core().recording.close();
    if let Some(recorder) = recorder {
        recorder.await?;
    }
    leave_in_time(&shared).await;
    timer.abort();
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
    if timeout(limit, over()).await.is_err() {
        tracing::warn!("shutdown timeout reached");
        shared.kick();
        over().await;
    }
}

/// How often the timer fires if nothing is pending.
const IDLE: Duration = Duration::from_secs(3600);

/// Runs for as long as the server.
async fn run_timer(shared: Arc<Shared>) {
    let rearmed = Arc::clone(&shared.core().rearmed);
    loop {
        let now = shared.now();
        let next = {
            let mut core = shared.core();
            let has_ended = core.end_idle_sessions(now, shared.settings.auto_release);
            let next = core.turn(now);
            // A lease may have ended, and with it the last that a session had.
            if has_ended || core.engine.is_draining() {
                shared.changed.notify_one();
            }
            next
        };
        if next <= now {
            // More is due than one turn serves: connections get their turn first.
            yield_now().await;
            continue;
        }
        let idle = Instant::now() + IDLE;
        let at = shared.instant(next).map_or(idle, |at| Instant::from_std(at).min(idle));
        let _it_is_time = timeout_at(at, rearmed.notified()).await;
    }
}

/// How long the recorder waits for work before it asks the journal again: how much room there is, if that has a limit,
/// and whether this server still leads, if several share the journal.
const CHECK: Duration = Duration::from_secs(1);

/// How long the next commit waits for the clients whose changes the last one carried. With ten clients of keys of their
/// own, this doubles the number of cycles (docs/lock-server.md).
const GATHER: Duration = Duration::from_millis(1);

/// Starts the task that records holds, if they are recorded.
fn start_recorder(shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
    let settings = &shared.settings;
    let default_lease = settings.caps.default_ttl;
    #[cfg(feature = "etcd")]
    if let Some(etcd) = &settings.etcd {
        let cluster = &shared.cluster;
        let (address, is_tls) = (settings.advertise.clone(), settings.tls.is_some());
        let contact = Contact { address, secret: cluster.secret.clone(), is_tls };
        let journal = EtcdJournal::new(etcd.clone(), default_lease, contact);
        tokio::spawn(follow(Arc::clone(shared), journal.observer()));
        return Some(tokio::spawn(record(Arc::clone(shared), journal)));
    }
    let journal = DiskJournal::new(settings.state.as_ref()?, default_lease.span())?;
    Some(tokio::spawn(record(Arc::clone(shared), journal)))
}

/// Runs until the server has ended its last term.
async fn record<J: Journal>(shared: Arc<Shared>, mut journal: J) {
    while let Some(recovered) = load(&shared, &mut journal).await {
        let now = shared.now();
        shared.core().begin_term(&recovered, now);
        #[cfg(feature = "etcd")]
        shared.cluster.set_leading(true);
        let served = serve_term(&shared, &mut journal).await;
        #[cfg(feature = "etcd")]
        shared.cluster.set_leading(false);
        if served.is_err() {
            // The journal has logged why.
            tracing::warn!("all clients are sent away, and no hold is released");
            continue;
        }
        if J::IS_SHARED {
            // The last answers come first.
            yield_now().await;
            shared.core().end_term();
        }
        return journal.end().await;
    }
}

/// `None` if the server ends before the term begins.
async fn load(shared: &Shared, journal: &mut impl Journal) -> Option<Recovered> {
    tokio::select! {
        recovered = journal.load() => Some(recovered),
        () = poll_fn(|cx| shared.core().recording.poll_closing(cx)) => None,
    }
}

/// Drives the journal through one term. Returns `Ok` when the server ends, and an error when the term is over.
async fn serve_term<J: Journal>(shared: &Arc<Shared>, journal: &mut J) -> Result<(), Failed> {
    loop {
        let wanted = shared.core().connections.len() + MAX_KEYS;
        let room = journal.room(wanted);
        shared.core().set_room(room);
        let next = poll_fn(|cx| shared.core().recording.poll_call(cx));
        let is_checked = J::IS_SHARED || room < usize::MAX;
        let call = if is_checked { timeout(CHECK, next).await } else { Ok(next.await) };
        let (outcome, records) = match call {
            Ok(Some(Call::Commit(records))) => (journal.commit(&records).await, records),
            Ok(Some(Call::Confirm)) => (journal.confirm().await, Vec::new()),
            Ok(None) => return Ok(()),
            Err(_) => {
                // Clients that only wait must not wait at a server that was succeeded.
                let confirmed = journal.confirm().await;
                confirmed.inspect_err(|Failed| shared.core().end_term())?;
                continue;
            }
        };
        let now = shared.now();
        let coming_back = {
            let mut core = shared.core();
            let coming_back = core.recording.coming_back(&records);
            core.end_call(outcome, &records, now);
            coming_back
        };
        #[cfg(feature = "etcd")]
        if outcome.is_err() && J::IS_SHARED {
            tokio::spawn(release_unknown(Arc::clone(shared), records));
        }
        outcome?;
        if J::IS_SHARED && coming_back > 1 {
            // Clients that are answered together send their next requests together. This pause lets one commit carry
            // all of them. Without it they would be two crowds, each of which also waits for the commits of the other.
            let noted = shared.core().recording.commits.noted() + coming_back;
            let back = poll_fn(|cx| shared.core().recording.poll_noted(noted, cx));
            let _or_some_do_not = timeout(GATHER, back).await;
        }
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
