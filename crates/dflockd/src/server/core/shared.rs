//! State that all tasks of a server share besides the core: the clock, the secrets, the shutdown.

use super::Tallies;
use super::connections::Connections;
use super::penalties::Penalties;
use super::recording::Recording;
use super::watching::Watchers;
use super::{Core, Shared};
use crate::server::access::Access;
#[cfg(feature = "etcd")]
use crate::server::link::place::Standby;
use crate::server::mint::ServerMint;
use crate::server::settings::Settings;
use crate::server::tls::{self, Tls};
use crate::server::transport::{Peer, Transport};
use leases::journal::Failed;
use leases::{AutoRelease, ConnId, Engine, Moment, Seconds};
use std::future::poll_fn;
use std::hash::RandomState;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

impl Shared {
    pub(in crate::server) fn new(settings: Settings) -> Self {
        let start = Instant::now();
        let mut engine = Engine::new(settings.caps, ServerMint::new(0), RandomState::new());
        if settings.startup_grace > Seconds::ZERO {
            engine.close(Moment::default().after(settings.startup_grace));
        }
        let core = Core {
            engine,
            recording: Recording::new(&settings),
            connections: Connections::default(),
            watchers: Watchers::default(),
            penalties: Penalties::default(),
            armed: Moment::NEVER,
            driver: None,
            draining: false,
            tallies: Tallies::default(),
        };
        let open = (Arc::new(settings.access.clone()), settings.tls.clone());
        Self {
            open: Mutex::new(open),
            settings,
            start,
            core: Mutex::new(core),
            kicked: AtomicBool::new(false),
            changed: Notify::new(),
            #[cfg(feature = "etcd")]
            standby: Standby::new(),
        }
    }

    /// What this server knows of the others.
    #[cfg(feature = "etcd")]
    pub(in crate::server) const fn standby(&self) -> &Standby {
        &self.standby
    }

    /// The number of connections that are passed on to another server.
    pub(in crate::server) fn passed(&self) -> usize {
        #[cfg(feature = "etcd")]
        return self.standby.passed();
        #[cfg(not(feature = "etcd"))]
        0
    }

    /// Whether all clients have left.
    pub(in crate::server) fn is_empty(&self) -> bool {
        #[cfg(feature = "etcd")]
        if self.standby.is_busy() {
            return false;
        }
        self.core().connections.len() == 0
    }

    pub(in crate::server) fn now(&self) -> Moment {
        let micros = self.start.elapsed().as_micros();
        Moment::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    pub(in crate::server) fn instant(&self, moment: Moment) -> Option<Instant> {
        self.start.checked_add(Duration::from_micros(moment.micros()))
    }

    pub(in crate::server) fn set_open(&self, access: Access, tls: Option<Tls>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        *open = (Arc::new(access), tls);
    }

    pub(in crate::server) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.open.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    pub(in crate::server) fn tls(&self) -> Option<Tls> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Ready when all that was read or changed so far may be told.
    ///
    /// # Errors
    /// Holds cannot be recorded, or the term is over, so it may be wrong.
    pub(in crate::server) async fn recorded(&self) -> Result<(), Failed> {
        let mark = {
            let mut core = self.core();
            if !core.is_available() {
                return Err(Failed);
            }
            core.recording.mark()
        };
        let Some(mark) = mark else { return Ok(()) };
        poll_fn(|cx| self.core().recording.poll(mark, cx)).await
    }

    /// Removes the holds and waits of a connection that has ended.
    pub(in crate::server) fn leave(&self, id: ConnId, auto: AutoRelease) {
        let now = self.now();
        self.core().leave(id, now, auto);
        self.changed.notify_one();
    }

    /// Makes every connection end now.
    pub(in crate::server) fn kick(&self) {
        self.kicked.store(true, Ordering::Relaxed);
        #[cfg(feature = "etcd")]
        self.standby.kick();
        self.core().connections.wake_all();
    }

    /// Whether there are as many connections as the system's limits allow.
    pub(in crate::server) fn is_full(&self) -> bool {
        let most = self.settings.max_descriptors;
        most > 0 && self.core().connections.len() + self.passed() >= most
    }

    pub(in crate::server) fn is_kicked(&self) -> bool {
        self.kicked.load(Ordering::Relaxed)
    }

    /// Logs a TLS peer that failed before its first frame, with the most frequent cause. Connections that are passed on
    /// have no number here.
    pub(in crate::server) fn note_handshake(
        &self,
        transport: &Transport,
        peer: Peer,
        conn_id: Option<u64>,
        err: &io::Error,
    ) {
        if !transport.is_shaking_hands() || err.kind() != ErrorKind::InvalidData {
            return;
        }
        self.core().tallies.tls_failures += 1;
        let err = tls::of_handshake(err);
        tracing::warn!(%peer, conn_id, err, "TLS handshake failed");
    }

    /// Logs a peer that does not read its answers.
    pub(in crate::server) fn note_write_timeout(&self, peer: Peer, conn_id: Option<u64>) {
        self.core().tallies.write_timeouts += 1;
        tracing::warn!(%peer, conn_id, "write timeout");
    }

    /// Notified when draining begins, when a connection has left, and when a standby has come.
    pub(in crate::server) const fn changed(&self) -> &Notify {
        &self.changed
    }

    pub(in crate::server) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
