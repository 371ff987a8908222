//! A held lease, and the thread that renews it. `schedule.rs` decides when.
//!
//! The thread and the holder share the connection and the state of the lease under a mutex. The thread does not hold
//! the mutex while it waits on the socket, so the holder never waits for a server that cannot be reached.

use super::connection::Connection;
use super::route::Route;
use super::stream::Watch;
use crate::backoff::Backoff;
use crate::dialogue::{self, Grant, Request};
use crate::error::{ClientError, Refusal};
use crate::lease::Loss;
use crate::schedule::{RENEWALS_PER_LEASE, Schedule, share};
use crate::terms::{Key, Seconds, Token};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A lock or a semaphore slot that is held, and renewed by a thread of its own until it is released.
///
/// Dropping it sends the release before it returns, and leaves the answer to that thread; [`Self::release`] reports
/// whether the server agreed. Other threads can use it by reference.
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    grant: Grant,
    renewal_interval: Duration,
    shared: Arc<Shared>,
}

/// The beginning of a lease; `asked_at` is a moment before the granted request, or the renewal of that grant, was
/// sent.
pub(super) struct Beginning {
    pub(super) route: Arc<Route>,
    pub(super) connection: Connection,
    pub(super) grant: Grant,
    pub(super) asked_at: Instant,
}

/// Shared by the holder and the keeper.
struct Shared {
    route: Arc<Route>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

/// The part under the mutex.
struct Inner {
    /// Until when it is trusted, or why it is lost.
    state: Result<Instant, Loss>,
    has_holder: bool,
    /// When the lease was last confirmed: the time before the request was sent.
    known_at: Instant,
    /// When the holder sent a renewal; the keeper takes the answer.
    urged_at: Option<Instant>,
    /// `None` while the keeper uses it, or looks for another one.
    connection: Option<Connection>,
}

impl Shared {
    /// No code that holds this mutex panics.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Starts the keeper.
    pub(super) fn begin(beginning: Beginning) -> Result<Self, ClientError> {
        let Beginning { route, connection, grant, asked_at } = beginning;
        let schedule = Schedule::new(route.settings.limits(), grant.ttl, asked_at);
        let renewal_interval = schedule.renewal_interval();
        let watch = connection.socket();
        let inner = Mutex::new(Inner {
            state: Ok(schedule.until()),
            has_holder: true,
            known_at: asked_at,
            urged_at: None,
            connection: Some(connection),
        });
        let shared = Arc::new(Shared { route, inner, changed: Condvar::new() });
        let keeper = Keeper { shared: Arc::clone(&shared), grant: grant.clone(), schedule, watch };
        thread::Builder::new().name("dflock keeps".to_owned()).spawn(move || keeper.keep())?;
        Ok(Self { grant, renewal_interval, shared })
    }

    /// The key that is held.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.shared.route.key
    }

    /// The token of the hold.
    #[must_use]
    pub fn token(&self) -> &Token {
        &self.grant.token
    }

    /// See [`Grant::fence`].
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        self.grant.fence
    }

    /// The length of the lease, in whole seconds; every renewal starts it over.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.grant.ttl
    }

    /// The pause between two renewals: a third of the time for which a renewal is sure to hold.
    #[must_use]
    pub fn renewal_interval(&self) -> Duration {
        self.renewal_interval
    }

    /// Until when the lease is trusted if no further renewal succeeds; `None` once it is lost.
    #[must_use]
    pub fn held_until(&self) -> Option<Instant> {
        self.shared.lock().state.ok()
    }

    /// Why the lease is lost, if it is.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.shared.lock().state.err()
    }

    /// Waits at most so long until the lease is lost; `None` if it is not lost by then.
    #[must_use]
    pub fn lost_within(&self, time: Duration) -> Option<Loss> {
        let inner = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(inner, time, |it| it.state.is_ok());
        waited.unwrap_or_else(PoisonError::into_inner).0.state.err()
    }

    /// Renews the lease unless it was confirmed after `time`, and waits for the answer, or the loss.
    pub(super) fn known_since(&self, time: Instant) {
        let mut inner = self.shared.lock();
        while inner.state.is_ok() && inner.known_at < time {
            let now = Instant::now();
            if let (None, Some(connection)) = (inner.urged_at, &mut inner.connection) {
                // If it cannot be sent, the connection has ended, and that wakes the keeper.
                let _ = connection.say(&renewal(&self.shared.route, &self.grant));
                inner.urged_at = Some(now);
            }
            let waited = self.shared.changed.wait(inner);
            inner = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Releases the hold, and closes the connection; if that has broken, releases over another one, for about
    /// [`Settings::answer_limit`](crate::Settings::answer_limit).
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the lease was already over, or a server that cannot be reached; it releases the
    /// key at the end of the lease at the latest.
    pub fn release(self) -> Result<(), ClientError> {
        let (state, connection) = {
            let mut inner = self.shared.lock();
            inner.has_holder = false;
            (inner.state, inner.connection.take())
        };
        self.shared.changed.notify_all();
        match state {
            Ok(_) => self.shared.route.let_go(connection, &self.grant.token),
            Err(_) => Err(ClientError::Refused(Refusal::Error)),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        if !std::mem::replace(&mut inner.has_holder, false) {
            return;
        }
        let Route { key, kind, .. } = &*self.shared.route;
        if let (Ok(_), Some(connection)) = (inner.state, &mut inner.connection) {
            // The answer, or the end of the connection, wakes the keeper.
            let request = Request::Release { key, kind: *kind, token: &self.grant.token };
            let _ = connection.say(&request);
        }
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("key", self.key()).field("grant", &self.grant).finish()
    }
}

/// The request that renews the lease.
fn renewal<'a>(route: &'a Route, grant: &'a Grant) -> Request<'a> {
    let ttl = Seconds::of_lease(grant.ttl).ok();
    Request::Renew { key: &route.key, kind: route.kind, token: &grant.token, ttl }
}

/// Why the keeper is done.
enum End {
    /// The holder has released, with the connection that the keeper was using.
    Left(Option<Connection>),
    /// The lease is lost. The connection stays open until the holder has released: a server that resumes would free
    /// the lock when it closes, and until the end of the lease the holder may still be stopping its work.
    Lost(Loss, Option<Connection>),
}

/// The thread that renews the lease.
struct Keeper {
    shared: Arc<Shared>,
    grant: Grant,
    schedule: Schedule,
    watch: Watch,
}

impl Keeper {
    fn keep(mut self) {
        loop {
            match self.stay() {
                Ok(()) => {}
                Err(End::Left(connection)) => return self.let_go(connection),
                Err(End::Lost(loss, connection)) => {
                    let mut inner = self.shared.lock();
                    inner.state = Err(loss);
                    if inner.has_holder {
                        inner.connection = connection;
                    }
                    self.shared.changed.notify_all();
                    return;
                }
            }
        }
    }

    /// Waits until the lease must be renewed or the connection breaks, and handles that.
    fn stay(&mut self) -> Result<(), End> {
        let stirs = self.watch.stirs_before(self.schedule.renew_at());
        let (connection, urged_at) = self.take()?;
        let Some(mut connection) = connection else { return self.reclaim() };
        if let Some(asked_at) = urged_at {
            return self.hear(connection, asked_at);
        }
        if !stirs {
            return self.renew(connection);
        }
        if connection.is_quiet() { self.put(connection) } else { self.reclaim() }
    }

    /// The connection, which the holder uses for the release, and when the holder sent a renewal on it.
    fn take(&self) -> Result<(Option<Connection>, Option<Instant>), End> {
        let mut inner = self.shared.lock();
        let (connection, urged_at) = (inner.connection.take(), inner.urged_at.take());
        if inner.has_holder { Ok((connection, urged_at)) } else { Err(End::Left(connection)) }
    }

    fn put(&mut self, connection: Connection) -> Result<(), End> {
        self.watch = connection.socket();
        let mut inner = self.shared.lock();
        if !inner.has_holder {
            return Err(End::Left(Some(connection)));
        }
        inner.state = Ok(self.schedule.until());
        inner.known_at = self.schedule.asked_at();
        inner.connection = Some(connection);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Asks on the connection that holds the lease. As long as the server may still receive our requests there, it
    /// has no reason to release the lease, so the connection stays. After a while another connection is tried as
    /// well, in case only this one loses data.
    fn renew(&mut self, mut connection: Connection) -> Result<(), End> {
        let asked_at = Instant::now();
        connection.set_answer_limit(self.answer_limit(asked_at));
        // If it cannot be sent, there is no answer.
        let _ = connection.say(&renewal(&self.shared.route, &self.grant));
        self.hear(connection, asked_at)
    }

    /// Waits for the answer to a renewal.
    fn hear(&mut self, mut connection: Connection, asked_at: Instant) -> Result<(), End> {
        match connection.answer_within(self.answer_limit(asked_at)) {
            Ok(line) => self.heard(connection, asked_at, &line),
            Err(ClientError::Silent) => {
                self.look_for_it(Some((connection, asked_at)), self.schedule.last_moment())
            }
            Err(_) => self.reclaim(),
        }
    }

    /// How long to wait for one answer before another connection is tried.
    fn answer_limit(&self, asked_at: Instant) -> Duration {
        self.schedule.last_moment().saturating_duration_since(asked_at) / RENEWALS_PER_LEASE
    }

    /// The connection is gone. Reconnects and asks whether the token still holds, for as long as the lease may last.
    fn reclaim(&mut self) -> Result<(), End> {
        let end = self.schedule.broken(Instant::now());
        self.shared.lock().state = Ok(self.schedule.until());
        self.look_for_it(None, end)
    }

    /// Opens connections until one of them renews the lease or is told that there is none, or until the silent one
    /// answers.
    fn look_for_it(
        &mut self,
        mut silent: Option<(Connection, Instant)>,
        end: Instant,
    ) -> Result<(), End> {
        let mut backoff = Backoff::new();
        loop {
            if !self.shared.lock().has_holder {
                return Err(End::Left(None));
            }
            match self.ask_anew(end) {
                Ok((connection, asked_at, ttl)) => {
                    self.schedule.renewed(asked_at, ttl);
                    return self.put(connection);
                }
                Err(error) if error.is_end_of_lease() => {
                    return Err(End::Lost(Loss::NotHeld, silent.map(|(connection, _)| connection)));
                }
                Err(_) => self.shared.route.turn(),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let connection = silent.map(|(connection, _)| connection);
                return Err(End::Lost(Loss::Unreachable, connection));
            }
            let pause = backoff.next().min(left);
            match silent.take() {
                None => self.pause(pause),
                Some((mut connection, asked_at)) => match connection.answer_within(pause) {
                    Ok(line) => return self.heard(connection, asked_at, &line),
                    Err(ClientError::Silent) => silent = Some((connection, asked_at)),
                    Err(_) => {}
                },
            }
        }
    }

    /// The answer to a renewal.
    fn heard(&mut self, connection: Connection, asked_at: Instant, line: &str) -> Result<(), End> {
        match dialogue::renewal(line, Seconds::of_lease(self.grant.ttl).ok()) {
            Ok(ttl) => {
                self.schedule.renewed(asked_at, ttl);
                self.put(connection)
            }
            Err(error) if error.is_end_of_lease() => {
                Err(End::Lost(Loss::NotHeld, Some(connection)))
            }
            Err(_) => self.reclaim(),
        }
    }

    fn ask_anew(&self, end: Instant) -> Result<(Connection, Instant, Duration), ClientError> {
        let route = &self.shared.route;
        let mut connection = route.open(Some(end))?;
        let asked_at = Instant::now();
        let limit = share(end, asked_at, route.width(), route.settings.answer_limit);
        connection.set_answer_limit(limit);
        let (token, ttl) = (&self.grant.token, Some(self.grant.ttl));
        let ttl = connection.renew(&route.key, route.kind, token, ttl)?;
        Ok((connection, asked_at, ttl))
    }

    /// Ends early when the holder releases.
    fn pause(&self, time: Duration) {
        let inner = self.shared.lock();
        let _ = self.shared.changed.wait_timeout_while(inner, time, |it| it.has_holder);
    }

    /// The holder has gone. If it took the connection, it has released the hold itself; if it only dropped the lease,
    /// the keeper releases it here.
    fn let_go(&self, connection: Option<Connection>) {
        let (route, token) = (&self.shared.route, &self.grant.token);
        let Some(mut connection) = connection else { return };
        if connection.is_answered() {
            let _ = route.let_go(Some(connection), token);
            return;
        }
        let limit = route.settings.answer_limit / RENEWALS_PER_LEASE;
        let answer = connection.answer_within(limit);
        drop(connection);
        if answer.is_err_and(|error| error.is_passing()) {
            let _ = route.let_go(None, token);
        }
    }
}
