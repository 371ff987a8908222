//! What all tasks of a server share: the core, the clock, the secrets, the shutdown, and the pace of long lists. Signals
//! and HTTP use it to control a running server.

use super::{Core, Readiness, Tallies};
use crate::server::access::Access;
#[cfg(feature = "etcd")]
use crate::server::link::Cluster;
use crate::server::settings::Settings;
use crate::server::transport::{Peer, Tls};
use leases::journal::Failed;
use leases::{
    AutoRelease, Census, ConnId, Counters, Forced, Key, Moment, Progress, Request, Sight, Token,
};
use leases_etcd::EtcdNumbers;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as Turns, Notify, Semaphore};
use tokio::task::yield_now;
use tokio::time::sleep_until;

/// The number of holders and waiters that are shown, or of holders that lose their holds, in one turn, which takes some 50
/// to 100 microseconds.
pub(crate) const PARTIES_PER_TURN: usize = 64;

/// See the module.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    start: Instant,
    core: Mutex<Core>,
    /// The secrets that a new connection must show, and its TLS settings. Both may change while the server runs.
    open: Mutex<(Arc<Access>, Option<Tls>)>,
    /// Closed when every connection is to end. It has no permits.
    kicked: Semaphore,
    /// The gate for everything that reads the table of keys.
    pub(crate) pace: Pace,
    /// Notified when draining begins, when a connection has left, when a standby has come, and when a session may have
    /// lost what it had.
    pub(crate) changed: Notify,
    /// What this server knows of the others.
    #[cfg(feature = "etcd")]
    pub(crate) cluster: Cluster,
}

/// The metrics of a server at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// Events in the engine since the start.
    pub(crate) engine: Counters,
    /// Events at the connections since the start.
    pub(crate) connections: Tallies,
    /// Connections now, sessions of HTTP included.
    pub(crate) open_connections: usize,
    /// Sessions of HTTP now.
    pub(crate) sessions: usize,
    /// Clients that wait for changes of keys.
    pub(crate) watchers: usize,
    /// Keys, holders and waiters now.
    pub(crate) census: Census,
    /// The metrics of the record in etcd, if there is one.
    pub(crate) etcd: Option<EtcdNumbers>,
    /// Whether the server is shutting down.
    pub(crate) draining: bool,
    /// The time since the start.
    pub(crate) uptime: Duration,
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Self {
        let start = Instant::now();
        let open = (Arc::new(settings.access.clone()), settings.tls.clone());
        Self {
            open: Mutex::new(open),
            core: Mutex::new(Core::new(&settings)),
            settings,
            start,
            kicked: Semaphore::new(0),
            pace: Pace::new(),
            changed: Notify::new(),
            #[cfg(feature = "etcd")]
            cluster: Cluster::new(),
        }
    }

    /// The number of connections that are passed on to another server.
    pub(crate) fn passed(&self) -> usize {
        #[cfg(feature = "etcd")]
        return self.cluster.passed.now();
        #[cfg(not(feature = "etcd"))]
        0
    }

    /// Whether all clients have left for which the end of the server waits.
    pub(crate) fn is_empty(&self) -> bool {
        #[cfg(feature = "etcd")]
        if self.cluster.is_busy() {
            return false;
        }
        !self.core().has_clients()
    }

    pub(crate) fn now(&self) -> Moment {
        let micros = self.start.elapsed().as_micros();
        Moment::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    pub(crate) fn instant(&self, moment: Moment) -> Option<Instant> {
        self.start.checked_add(Duration::from_micros(moment.micros()))
    }

    /// From now on, these secrets are valid, and new connections use these TLS settings. Existing connections stay.
    pub(crate) fn reload(&self, access: Access, tls: Option<Tls>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        *open = (Arc::new(access), tls);
    }

    /// The secrets that are valid now.
    pub(crate) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.open.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// The TLS settings of new connections.
    pub(crate) fn tls(&self) -> Option<Tls> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Ready when all that was read or changed so far may be sent: it is recorded, and no other server has led since.
    ///
    /// # Errors
    /// Holds cannot be recorded, or the term is over, so it may be wrong.
    pub(crate) async fn recorded(&self) -> Result<(), Failed> {
        let mark = {
            let mut core = self.core();
            if !core.is_available() {
                return Err(Failed);
            }
            core.recording.mark()
        };
        let Some(mark) = mark else { return Ok(()) };
        poll_fn(|cx| self.core().recording.poll_recorded(mark, cx)).await
    }

    /// A connection has ended: removes its holds, by the policy, and its waits.
    pub(crate) fn end_connection(&self, id: ConnId, auto: AutoRelease) {
        let now = self.now();
        self.core().end_connection(id, now, auto);
        self.changed.notify_one();
    }

    /// Makes every connection end now.
    pub(crate) fn kick(&self) {
        self.kicked.close();
        let (now, mut core) = (self.now(), self.core());
        core.connections.wake_all();
        let auto = core.recording.auto_at_shutdown(self.settings.auto_release);
        core.end_sessions(now, auto);
        drop(core);
        self.changed.notify_one();
    }

    /// Whether there are as many connections as the system's limits allow.
    pub(crate) fn is_full(&self) -> bool {
        let most = self.settings.max_descriptors;
        most > 0 && self.core().connections.sockets() + self.passed() >= most
    }

    pub(crate) fn is_kicked(&self) -> bool {
        self.kicked.is_closed()
    }

    /// Ready when every connection is to end.
    pub(in crate::server) async fn kicked(&self) {
        let _closed = self.kicked.acquire().await;
    }

    /// Logs a peer that does not read its answers.
    pub(in crate::server) fn note_write_timeout(&self, peer: Peer, conn_id: Option<u64>) {
        self.core().tallies.write_timeouts += 1;
        tracing::warn!(%peer, conn_id, "write timeout");
    }

    pub(in crate::server) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the shutdown: no new connections are accepted, and waits end with `error_draining`. May be called
    /// twice.
    pub(crate) fn drain(&self) {
        let now = self.now();
        self.core().drain(now);
        self.changed.notify_one();
    }

    /// Whether [`Shared::drain`] was called.
    pub(crate) fn is_draining(&self) -> bool {
        self.core().engine.is_draining()
    }

    /// Counts a client that has just shown a wrong secret, or none. Returns when it may get its answer, so that
    /// guessing is slow.
    pub(crate) fn refuse_secret(&self) -> Moment {
        let now = self.now();
        let mut core = self.core();
        core.tallies.auth_failures += 1;
        core.penalties.next(now)
    }

    /// Takes away the holds that a key has now; returns their number. Others are served in between.
    ///
    /// # Errors
    /// Holds cannot be recorded; some of them may be gone.
    pub(crate) async fn force_release(&self, key: Key<'_>) -> Result<usize, Failed> {
        let mut forced = Forced::default();
        while self.force_step(key, &mut forced)? == Progress::More {
            yield_now().await;
        }
        self.recorded().await?;
        Ok(forced.released())
    }

    pub(in crate::server) fn force_step(
        &self,
        key: Key<'_>,
        forced: &mut Forced,
    ) -> Result<Progress, Failed> {
        let (now, mut core) = (self.now(), self.core());
        if !core.is_available() {
            return Err(Failed);
        }
        let progress = core.engine.force_release(now, key, forced, PARTIES_PER_TURN);
        core.deliver(now);
        self.changed.notify_one();
        Ok(progress)
    }

    /// Releases a hold of which no client knows.
    ///
    /// # Errors
    /// This server does not lead, or was succeeded meanwhile: then it released nothing.
    pub(in crate::server) async fn release_unknown(
        &self,
        key: Key<'_>,
        token: Token,
    ) -> Result<(), Failed> {
        let now = self.now();
        let release = Request::Release { key, token: Some(token) };
        {
            let mut core = self.core();
            let conn = core.engine.connect(0);
            let asked = core.ask(now, conn, release);
            core.engine.disconnect(now, conn, AutoRelease::Off);
            let _it_may_not_exist = asked?;
        }
        self.recorded().await
    }

    /// Whether the locks are in this process.
    #[cfg(feature = "etcd")]
    pub(crate) fn has_locks(&self) -> bool {
        !self.settings.is_shared() || self.cluster.leads()
    }

    /// Ends the connection with this number; false if there is none.
    pub(crate) fn kick_one(&self, serial: u64) -> bool {
        let (now, auto) = (self.now(), self.settings.auto_release);
        let mut core = self.core();
        let is_known = core.kick_session(now, serial, auto) || core.connections.kick(serial);
        self.changed.notify_one();
        is_known
    }

    /// Whether clients should use this server.
    pub(crate) fn readiness(&self) -> Readiness {
        let now = self.now();
        #[cfg(feature = "etcd")]
        if self.cluster.has_link() && !self.is_draining() {
            return Readiness::READY;
        }
        self.core().readiness(self.settings.state.as_deref(), now)
    }

    /// The metrics now.
    pub(crate) fn numbers(&self) -> Numbers {
        #[cfg(feature = "etcd")]
        let etcd = self.cluster.numbers();
        #[cfg(not(feature = "etcd"))]
        let etcd: Option<EtcdNumbers> = None;
        let passed = self.passed();
        let core = self.core();
        Numbers {
            engine: *core.engine.counters(),
            connections: core.tallies,
            open_connections: core.connections.len() + passed,
            sessions: core.sessions.len(),
            watchers: core.watchers.len(),
            census: *core.engine.census(),
            // What the clients of a leader see of it.
            etcd: etcd.map(|etcd| EtcdNumbers {
                full: if etcd.leads { core.recording.is_full } else { etcd.full },
                ..etcd
            }),
            draining: core.engine.is_draining(),
            uptime: Duration::from_micros(self.now().micros()),
        }
    }

    /// The holders of a key, as watching clients see them.
    pub(crate) fn sight(&self, key: Key<'_>) -> Option<Sight> {
        let (now, core) = (self.now(), self.core());
        core.engine.sight(now, key)
    }
}

/// The total time for each unit of time spent, including that unit.
const SHARE: u32 = 5;
/// How far steps may be ahead of the pace before they are delayed: as much as a timer can measure.
const BURST: Duration = Duration::from_millis(1);

/// Limits the share of the server's thread that lists of keys, holders and waiters may take, over TCP and over HTTP. All
/// code that reads many of them does so in small steps, through this one gate for all connections: one step at a time, and
/// after each step the locks get the thread for four times as long. So lists get a fifth of it at most, however many
/// clients ask.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When the time spent so far is made up for.
    even: Turns<Instant>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { even: Turns::new(Instant::now()) }
    }

    /// Does one small step when its time has come, and lets others be served afterwards.
    pub(crate) async fn step<T>(&self, step: impl FnOnce() -> T) -> T {
        let mut even = self.even.lock().await;
        if *even > Instant::now() + BURST {
            sleep_until((*even).into()).await;
        }
        let start = Instant::now();
        let result = step();
        let rest = start.elapsed().saturating_mul(SHARE);
        *even = (*even).max(start).checked_add(rest).unwrap_or(start);
        drop(even);
        yield_now().await;
        result
    }
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
