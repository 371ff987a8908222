//! Takes a lease: at once, by waiting, or in two phases.

use super::address::ServerAddress;
use super::backoff::Patience;
use super::connection::Connection;
use super::dialogue::{Grace, Grant, Place};
use super::error::{ClientError, Refusal};
use super::lease::{Beginning, Lease, RENEWALS_PER_LEASE};
use super::route::Route;
use super::settings::Settings;
use super::shard::Servers;
use super::terms::{Key, Kind, TermError, Token};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

/// A grant that comes later than this was waited for.
const PROMPT: Duration = Duration::from_millis(100);
/// What stands for "wait for ever": the longest time every server can count (68 years).
const FOR_EVER_S: u32 = i32::MAX.unsigned_abs();

/// A client of one server, or of several that share the keys or the work among them.
///
/// Holds no connection: every lease has its own, because requests on one connection are served in
/// order and a waiting acquire would hold back the renewal of another lease. Cheap to clone.
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
        if settings.servers.addresses().is_empty() {
            return Err(ClientError::NoServer);
        }
        Ok(Self { settings: Arc::new(settings) })
    }

    /// The servers in the order of the settings.
    #[must_use]
    pub fn servers(&self) -> &[ServerAddress] {
        self.settings.servers.addresses()
    }

    /// Whether each of the servers knows every key.
    #[must_use]
    pub fn is_one_service(&self) -> bool {
        matches!(self.settings.servers, Servers::AnyOf(_))
    }

    /// The servers that know a key, the one that is asked first in front; see [`super::Servers`].
    #[must_use]
    pub fn servers_of(&self, key: &Key) -> Vec<&ServerAddress> {
        self.settings.servers.of(key.as_bytes())
    }

    /// A connection to a server that knows this key, and answers.
    ///
    /// # Errors
    /// [`ClientError::Connect`], or what `auth` answered.
    pub async fn connect(&self, key: &Key) -> Result<Connection, ClientError> {
        Route::to(key, Arc::clone(&self.settings)).open_patiently().await
    }

    /// A connection to one of the servers.
    ///
    /// # Errors
    /// [`ClientError::Connect`], or what `auth` answered.
    pub async fn connect_to(&self, server: &ServerAddress) -> Result<Connection, ClientError> {
        Connection::open(server, &self.settings).await
    }

    /// Names a lock.
    ///
    /// # Errors
    /// [`ClientError::Term`] for a key that no server accepts.
    pub fn lock(&self, key: impl Into<Vec<u8>>) -> Result<Claim, ClientError> {
        self.claim(key, Kind::Lock)
    }

    /// Names a semaphore of `limit` slots.
    ///
    /// # Errors
    /// [`ClientError::Term`] for a key or limit that no server accepts.
    pub fn semaphore(&self, key: impl Into<Vec<u8>>, limit: u32) -> Result<Claim, ClientError> {
        if limit == 0 {
            return Err(TermError::Limit.into());
        }
        self.claim(key, Kind::Semaphore(limit))
    }

    fn claim(&self, key: impl Into<Vec<u8>>, kind: Kind) -> Result<Claim, ClientError> {
        let key = Key::new(key)?;
        let route = Arc::new(Route::to(&key, Arc::clone(&self.settings)));
        Ok(Claim { route, key, kind, ttl_s: None })
    }
}

/// A wish for a lock or a slot: nothing is sent before one of the async calls.
#[derive(Clone)]
pub struct Claim {
    route: Arc<Route>,
    key: Key,
    kind: Kind,
    ttl_s: Option<u32>,
}

impl Claim {
    /// Asks for leases of this many seconds instead of the server's default.
    ///
    /// # Errors
    /// [`ClientError::Term`] for 0.
    pub fn ttl_s(mut self, ttl_s: u32) -> Result<Self, ClientError> {
        if ttl_s == 0 {
            return Err(TermError::Ttl.into());
        }
        self.ttl_s = Some(ttl_s);
        Ok(self)
    }

    /// Takes it if it is free and nobody is waiting.
    ///
    /// # Errors
    /// A refusal, or a server that cannot be reached.
    pub async fn try_acquire(&self) -> Result<Option<Lease>, ClientError> {
        self.acquire(0).await
    }

    /// Waits in line for at most `timeout_s` seconds; nothing when they pass first. Giving up by
    /// dropping the future leaves the line.
    ///
    /// # Errors
    /// A refusal, or a server that cannot be reached.
    pub async fn acquire(&self, timeout_s: u32) -> Result<Option<Lease>, ClientError> {
        let mut connection = self.route.open_patiently().await?;
        let asked_at = Instant::now();
        match connection.acquire(&self.key, self.kind, timeout_s, self.ttl_s).await? {
            Some(grant) => self.begin(connection, grant, asked_at).await.map(Some),
            None => Ok(None),
        }
    }

    /// Waits in line like [`Self::acquire`], and joins it again, at its end, when the server goes
    /// away meanwhile: after a restart, or a broken connection. `told` hears each time why.
    ///
    /// Nothing when the time passes first. Without a time it waits for ever.
    ///
    /// # Errors
    /// A refusal; a server that is away for [`Settings::connect_limit`] at first, or when the time passes.
    pub async fn acquire_persistently(
        &self,
        timeout_s: Option<u32>,
        told: impl FnMut(&ClientError),
    ) -> Result<Option<Lease>, ClientError> {
        Ok(self.wait_persistently(timeout_s, told).await?.map(Lease::begin))
    }

    async fn wait_persistently(
        &self,
        timeout_s: Option<u32>,
        mut told: impl FnMut(&ClientError),
    ) -> Result<Option<Beginning>, ClientError> {
        let mut line = Line::enter(timeout_s, self.route.patience());
        loop {
            let error = match self.stand_in(&mut line).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            if line.was_left_by_force(&error) {
                told(&error);
            }
            self.route.turn();
            if !line.may_be_joined_after(&error).await {
                return Err(error);
            }
        }
    }

    /// Once, from connecting to the grant.
    async fn stand_in(&self, line: &mut Line) -> Result<Option<Beginning>, ClientError> {
        line.asked_at = None;
        let mut connection = self.route.open().await?;
        if let Some(token) = line.unheard.take() {
            // Granted on a connection that broke before the grant was sure: it is in our way.
            match connection.release(&self.key, self.kind, &token).await {
                Ok(()) | Err(ClientError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let asked_at = Instant::now();
        line.asked_at = Some(asked_at);
        let timeout_s = line.left_s(asked_at);
        match connection.acquire(&self.key, self.kind, timeout_s, self.ttl_s).await? {
            Some(grant) => {
                let token = grant.token.clone();
                let beginning = self.confirmed(connection, grant, asked_at).await;
                if beginning.is_err() {
                    line.unheard = Some(token);
                }
                beginning.map(Some)
            }
            None => Ok(None),
        }
    }

    /// Takes it, waiting like [`Self::acquire_persistently`], and leaves it without a keeper: the token
    /// must be renewed and released by hand. Where the server would give it up before its lease ends,
    /// because nobody is connected, it is released at once.
    ///
    /// # Errors
    /// [`ClientError::GivenUp`], a refusal, or a server that cannot be reached.
    pub async fn acquire_detached(
        &self,
        timeout_s: Option<u32>,
        told: impl FnMut(&ClientError),
    ) -> Result<Option<Grant>, ClientError> {
        let Some(beginning) = self.wait_persistently(timeout_s, told).await? else {
            return Ok(None);
        };
        let Beginning { mut connection, grant, .. } = beginning;
        match connection.grace().await? {
            Some(Grace::Seconds(after_s)) if after_s < grant.ttl_s => {
                connection.release(&self.key, self.kind, &grant.token).await?;
                return Err(ClientError::GivenUp { after_s });
            }
            Some(Grace::Seconds(_) | Grace::Lease) => connection.close().await,
            None => {
                // Such a server knows no delay: it has let go by now, or will not before the lease ends.
                connection.close().await;
                let renewed =
                    self.route.renew(&self.key, self.kind, &grant.token, Some(grant.ttl_s));
                renewed.await.map_err(|error| match error {
                    error if error.is_not_held() => ClientError::GivenUp { after_s: 0 },
                    error => error,
                })?;
            }
        }
        Ok(Some(grant))
    }

    /// First phase: joins the line without waiting, so that others can be told before the wait.
    ///
    /// # Errors
    /// A refusal, or a server that cannot be reached.
    pub async fn enqueue(&self) -> Result<Entry, ClientError> {
        let mut connection = self.route.open_patiently().await?;
        let asked_at = Instant::now();
        match connection.enqueue(&self.key, self.kind, self.ttl_s).await? {
            Place::Granted(grant) => {
                self.begin(connection, grant, asked_at).await.map(Entry::Acquired)
            }
            Place::Queued => Ok(Entry::Queued(Ticket::begin(self.clone(), connection))),
        }
    }

    /// Releases by token, from whatever connection it came.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the token holds nothing.
    pub async fn release(&self, token: &Token) -> Result<(), ClientError> {
        self.route.release(&self.key, self.kind, token, self.route.patience()).await
    }

    /// Starts the lease over by token. The seconds the lease lasts from now.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the token holds nothing.
    pub async fn renew(&self, token: &Token) -> Result<u32, ClientError> {
        self.route.renew(&self.key, self.kind, token, self.ttl_s).await
    }

    /// A grant that took its time is renewed before anybody relies on it: when exactly the turn
    /// came, and so when the lease ends, is not known before. It may have ended already, when this
    /// machine slept while its answer lay in the socket.
    async fn confirmed(
        &self,
        mut connection: Connection,
        grant: Grant,
        mut asked_at: Instant,
    ) -> Result<Beginning, ClientError> {
        if asked_at.elapsed() >= PROMPT {
            asked_at = Instant::now();
            let half = Duration::from_secs(grant.ttl_s.into()) / 2;
            connection.set_answer_limit(self.route.settings.answer_limit.min(half));
            let renewed = connection.renew(&self.key, self.kind, &grant.token, Some(grant.ttl_s));
            renewed.await.map_err(over_already)?;
        }
        let (route, key, kind) = (Arc::clone(&self.route), self.key.clone(), self.kind);
        Ok(Beginning { route, connection, key, kind, grant, asked_at })
    }

    async fn begin(
        &self,
        connection: Connection,
        grant: Grant,
        asked_at: Instant,
    ) -> Result<Lease, ClientError> {
        self.confirmed(connection, grant, asked_at).await.map(Lease::begin)
    }
}

/// Somebody who waits for his turn, whatever becomes of his connections.
struct Line {
    end: Instant,
    /// When the request was sent on the connection there is, if it was.
    asked_at: Option<Instant>,
    /// Whether he has been in the line for a while.
    has_stood: bool,
    unheard: Option<Token>,
    /// For a server that is away: before he has been in the line, and after.
    patience: Patience,
}

impl Line {
    fn enter(timeout_s: Option<u32>, patience: Patience) -> Self {
        let end = Instant::now() + Duration::from_secs(timeout_s.unwrap_or(FOR_EVER_S).into());
        Self { end, asked_at: None, has_stood: false, unheard: None, patience }
    }

    fn left_s(&self, now: Instant) -> u32 {
        let left = self.end.saturating_duration_since(now);
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        u32::try_from(seconds).unwrap_or(FOR_EVER_S).min(FOR_EVER_S)
    }

    /// Whether the last attempt ended in the line, for somebody who had not left it before or who
    /// had been in it for a while again. Who was turned away at once was not in it.
    fn was_left_by_force(&mut self, error: &ClientError) -> bool {
        let Some(asked_at) = self.asked_at else { return false };
        if !error.is_passing() && !matches!(error, ClientError::Refused(Refusal::LeaseExpired)) {
            return false;
        }
        let is_new = !self.has_stood || asked_at.elapsed() >= PROMPT;
        if is_new {
            self.has_stood = true;
            self.patience = Patience::until(self.end);
        }
        is_new
    }

    /// After a pause.
    async fn may_be_joined_after(&mut self, error: &ClientError) -> bool {
        // Others may have come back before us and fill the server for a moment.
        let is_full = matches!(
            error,
            ClientError::Refused(Refusal::MaxLocks | Refusal::MaxWaiters | Refusal::LeaseExpired)
        );
        if self.has_stood && is_full {
            return self.patience.pause().await;
        }
        self.patience.outlasts(error).await
    }
}

fn over_already(error: ClientError) -> ClientError {
    if error.is_not_held() { ClientError::Refused(Refusal::LeaseExpired) } else { error }
}

/// What joining the line gave.
#[must_use = "dropping it gives the place or the lease up"]
pub enum Entry {
    /// There was room.
    Acquired(Lease),
    /// A place in the line.
    Queued(Ticket),
}

/// A place in the line. Its turn may come before [`Self::wait`] is called; the lease then runs
/// from that moment, so wait within its length.
#[must_use = "dropping a ticket leaves the line"]
pub struct Ticket {
    claim: Claim,
    orders: mpsc::Sender<oneshot::Sender<Connection>>,
}

impl Ticket {
    fn begin(claim: Claim, connection: Connection) -> Self {
        let (orders, inbox) = mpsc::channel(1);
        let settings = Arc::clone(&claim.route.settings);
        tokio::spawn(stay_in_line(settings, connection, inbox));
        Self { claim, orders }
    }

    /// Second phase: waits for the turn, at most `timeout_s` seconds; nothing when they pass
    /// first, and then the place is gone.
    ///
    /// # Errors
    /// A refusal, among them a lease that was granted and ran out before this call, or a
    /// connection that broke.
    pub async fn wait(self, timeout_s: u32) -> Result<Option<Lease>, ClientError> {
        let (order, hand_over) = oneshot::channel();
        self.orders.send(order).await.map_err(|_| ClientError::closed())?;
        let mut connection = hand_over.await.map_err(|_| ClientError::closed())?;
        let asked_at = Instant::now();
        match connection.wait(&self.claim.key, self.claim.kind, timeout_s).await? {
            Some(grant) => self.claim.begin(connection, grant, asked_at).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Keeps the connection from being closed as idle, and hands it over when it is wanted.
async fn stay_in_line(
    settings: Arc<Settings>,
    mut connection: Connection,
    mut inbox: mpsc::Receiver<oneshot::Sender<Connection>>,
) {
    loop {
        tokio::select! {
            order = inbox.recv() => {
                if let Some(order) = order {
                    let _ = order.send(connection);
                }
                return;
            }
            () = sleep(settings.read_timeout / RENEWALS_PER_LEASE) => {}
        }
        if connection.ping().await.is_err() {
            return;
        }
    }
}
