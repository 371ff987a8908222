//! Takes a lease: at once, or by waiting.

use super::connection::Connection;
use super::lease::{Beginning, Lease};
use super::route::Route;
use super::watch::Watch;
use crate::address::ServerAddress;
use crate::dialogue::{Grant, Releasing};
use crate::error::ClientError;
use crate::line::{Line, was_waited_for};
use crate::order::Part;
use crate::settings::Settings;
use crate::terms::{Key, Kind, Seconds, Token};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A client of one server, or of several: each with its own keys, or all with the same. Holds no connection: every
/// lease has its own. Cheap to clone, and can be shared by threads.
#[derive(Clone)]
pub struct Client {
    settings: Arc<Settings>,
}

impl Client {
    /// A client with these settings. Does not connect.
    ///
    /// # Errors
    /// [`ClientError::NoServer`] when the settings name none.
    pub fn new(settings: Settings) -> Result<Self, ClientError> {
        Ok(Self { settings: settings.checked()? })
    }

    /// A connection to one of the servers.
    ///
    /// # Errors
    /// [`ClientError::Connect`], or the refusal of `auth`.
    pub fn connect_to(&self, server: &ServerAddress) -> Result<Connection, ClientError> {
        Connection::open(server, &self.settings)
    }

    /// Names a lock.
    ///
    /// # Errors
    /// [`ClientError::Term`] for a key that no server accepts.
    pub fn lock(&self, key: impl Into<Vec<u8>>) -> Result<Claim, ClientError> {
        self.claim(key, Kind::Lock)
    }

    /// Names a lock that readers share; see [`crate::Client::shared`].
    ///
    /// # Errors
    /// [`ClientError::Term`] for a key that no server accepts.
    pub fn shared(&self, key: impl Into<Vec<u8>>) -> Result<Claim, ClientError> {
        self.claim(key, Kind::Shared)
    }

    /// Names a semaphore of `limit` slots.
    ///
    /// # Errors
    /// [`ClientError::Term`] for a key or limit that no server accepts.
    pub fn semaphore(&self, key: impl Into<Vec<u8>>, limit: u32) -> Result<Claim, ClientError> {
        self.claim(key, Kind::semaphore(limit)?)
    }

    /// Watches a key. Nothing is sent before [`Watch::next`].
    ///
    /// # Errors
    /// [`ClientError::Term`] for a key that no server accepts.
    pub fn watch(&self, key: impl Into<Vec<u8>>) -> Result<Watch, ClientError> {
        let route = Route::to(Key::new(key)?, Kind::Lock, Arc::clone(&self.settings));
        Ok(Watch::begin(route))
    }

    fn claim(&self, key: impl Into<Vec<u8>>, kind: Kind) -> Result<Claim, ClientError> {
        let route = Route::to(Key::new(key)?, kind, Arc::clone(&self.settings));
        Ok(Claim { route: Arc::new(route), ttl: None })
    }
}

/// A request for a lock or a slot. Nothing is sent before one of the blocking calls.
///
/// Times are rounded up to whole seconds, and may be at most [`MAX_TIME`](crate::MAX_TIME); longer ones give
/// [`TermError::TimeLong`](crate::TermError::TimeLong) before anything is sent. A call that waits
/// ends only with a grant, an error or its timeout.
#[derive(Clone)]
pub struct Claim {
    pub(super) route: Arc<Route>,
    pub(super) ttl: Option<Duration>,
}

impl Claim {
    /// What decides whether it can be sent together with others.
    pub(super) fn part(&self) -> Part<'_> {
        let Route { settings, key, kind, .. } = &*self.route;
        Part { servers: &settings.servers, key, kind: *kind, ttl: self.ttl }
    }

    /// What is claimed.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.route.key
    }

    /// Asks for leases of this length instead of the server's default.
    ///
    /// # Errors
    /// [`ClientError::Term`] for a length of zero, and for more than [`MAX_TIME`](crate::MAX_TIME).
    pub fn ttl(mut self, ttl: Duration) -> Result<Self, ClientError> {
        self.ttl = Some(Seconds::of_lease(ttl)?.time());
        Ok(self)
    }

    /// Takes it if it is free and no client is waiting.
    ///
    /// # Errors
    /// A refusal, or a server that cannot be reached.
    pub fn try_acquire(&self) -> Result<Option<Lease>, ClientError> {
        self.acquire(Duration::ZERO)
    }

    /// Waits in line for at most `timeout`; `None` if the time is over first.
    ///
    /// # Errors
    /// A time that does not fit, a refusal, or a server that cannot be reached.
    pub fn acquire(&self, timeout: Duration) -> Result<Option<Lease>, ClientError> {
        Seconds::to_wait(timeout)?;
        let mut connection = self.route.open_patiently()?;
        let asked_at = Instant::now();
        let Route { key, kind, .. } = &*self.route;
        let grant = connection.acquire(key, *kind, timeout, self.ttl)?;
        let Some(grant) = grant else { return Ok(None) };
        let token = grant.token.clone();
        let lease = self.confirmed(connection, grant, asked_at).and_then(Lease::begin);
        if lease.is_err() {
            // Not confirmed, and it may still be held.
            let _ = self.route.let_go(None, &token);
        }
        lease.map(Some)
    }

    /// Waits in line like [`Self::acquire`], and joins it again, at its end, if the server goes away meanwhile: after
    /// a restart or a broken connection. `told` is called each time with the reason.
    ///
    /// `None` if the time is over first. Without a time it waits for ever.
    ///
    /// # Errors
    /// A time that does not fit; a refusal; a server that is away for [`Settings::connect_limit`] at first, or until
    /// the time is over.
    pub fn acquire_persistently(
        &self,
        timeout: Option<Duration>,
        mut told: impl FnMut(&ClientError),
    ) -> Result<Option<Lease>, ClientError> {
        let mut line = Line::enter(timeout, self.route.patience(), Instant::now())?;
        let mut unheard = None;
        loop {
            let error = match self.stand_in(&mut line, &mut unheard) {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            if line.was_left_by_force(&error, Instant::now()) {
                told(&error);
            }
            self.route.turn();
            match line.comes_again_after(&error, Instant::now()) {
                Some(pause) => thread::sleep(pause),
                None => {
                    if let Some(token) = unheard {
                        let _ = self.route.let_go(None, &token);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// One attempt, from connecting to the grant. `unheard` was granted on a connection that broke before the grant
    /// was confirmed.
    fn stand_in(
        &self,
        line: &mut Line,
        unheard: &mut Option<Token>,
    ) -> Result<Option<Lease>, ClientError> {
        let Route { key, kind, .. } = &*self.route;
        line.begin_attempt();
        let mut connection = self.route.open(None)?;
        if let Some(token) = unheard {
            // Our own earlier grant is in the way.
            match connection.release(key, *kind, token) {
                Ok(()) | Err(ClientError::Refused(_)) => *unheard = None,
                Err(error) => return Err(error),
            }
        }
        let asked_at = Instant::now();
        let timeout = line.ask(asked_at);
        let grant = connection.acquire(key, *kind, timeout, self.ttl)?;
        let Some(grant) = grant else { return Ok(None) };
        let token = grant.token.clone();
        let lease = self.confirmed(connection, grant, asked_at).and_then(Lease::begin);
        if lease.is_err() {
            *unheard = Some(token);
        }
        lease.map(Some)
    }

    /// Releases by token; any connection may have taken it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the token holds nothing.
    pub fn release(&self, token: &Token) -> Result<(), ClientError> {
        self.route.release(token, Releasing::first(), self.route.patience(), None)
    }

    /// Renews the lease by its token. Returns its length from now.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the token holds nothing.
    pub fn renew(&self, token: &Token) -> Result<Duration, ClientError> {
        self.route.renew(token, self.ttl)
    }

    /// A grant after a wait is renewed before it is used.
    pub(super) fn confirmed(
        &self,
        connection: Connection,
        grant: Grant,
        asked_at: Instant,
    ) -> Result<Beginning, ClientError> {
        if was_waited_for(asked_at, Instant::now()) {
            return self.renewed(connection, grant);
        }
        Ok(Beginning { route: Arc::clone(&self.route), connection, grant, asked_at })
    }

    /// A grant of another connection gets one of its own. What a connection renews stays when the one that took it
    /// closes.
    pub(super) fn moved(&self, grant: &Grant) -> Result<Beginning, ClientError> {
        self.renewed(self.route.open(None)?, grant.clone())
    }

    fn renewed(&self, mut connection: Connection, grant: Grant) -> Result<Beginning, ClientError> {
        let Route { key, kind, settings, .. } = &*self.route;
        let asked_at = Instant::now();
        connection.set_answer_limit(settings.answer_limit.min(grant.ttl / 2));
        let renewed = connection.renew(key, *kind, &grant.token, Some(grant.ttl));
        renewed.map_err(ClientError::of_late_grant)?;
        Ok(Beginning { route: Arc::clone(&self.route), connection, grant, asked_at })
    }
}
