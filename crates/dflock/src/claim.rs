//! Takes a lease: at once, by waiting, or in two phases. For several leases, see [`crate::claims`].

use crate::connection::Connection;
use crate::error::ClientError;
use crate::lease::{Lease, Turn, answer, one_of};
use crate::route::Route;
use crate::session::Sessions;
use crate::settings::Settings;
use crate::terms::{
    ArgumentError, Key, Kind, MAX_TIME, Proof, ServerAddress, Servers, Token, Wanted, seconds,
    seconds_of_lease, seconds_to_wait,
};
use crate::watch::Watch;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A client of one server, or of several: each with its own keys, or all with the same.
///
/// Up to 16 leases of a server share one connection, which closes with the last of them. Only an acquire that waits
/// has its own: requests on one connection are served in order, and it would hold back the renewals of other leases.
/// Cheap to clone; clones share their connections, each runtime has its own.
///
/// ```no_run
/// use dflock::{Client, Servers, Settings};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // Three servers that share their locks: whichever answers first.
/// let servers = ["a:6388".parse()?, "b:6388".parse()?, "c:6388".parse()?];
/// let client = Client::new(Settings::new(Servers::AnyOf(servers.into())))?;
/// let writer = client.lock("index")?;
/// let reader = client.shared("index")?;
/// let slot = client.semaphore("convert", 4)?;
/// # drop((writer, reader, slot)); Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    settings: Arc<Settings>,
    sessions: Arc<Sessions>,
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
        Ok(Self { settings: Arc::new(settings), sessions: Arc::new(Sessions::new()) })
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

    /// The servers that know a key, with the one to ask first in front; see [`crate::Servers`].
    #[must_use]
    pub fn servers_of(&self, key: &Key) -> Vec<&ServerAddress> {
        self.settings.servers.of(key.as_bytes())
    }

    /// How long it tries to reach a server that is away at first.
    #[cfg(feature = "cli")]
    pub(super) fn patience(&self) -> Duration {
        self.settings.connect_limit
    }

    /// Waits until nothing is held any more, and everything that was given up is released.
    #[cfg(feature = "cli")]
    pub(super) async fn ended(&self) {
        self.sessions.ended().await;
    }

    /// A connection to a server that knows this key and answers. Dropping the future closes it.
    ///
    /// # Errors
    /// [`ClientError::Connect`], or the refusal of `auth`.
    pub async fn connect(&self, key: &Key) -> Result<Connection, ClientError> {
        Route::to(key, Arc::clone(&self.settings)).open_patiently().await
    }

    /// A connection to one of the servers. Dropping the future closes it.
    ///
    /// # Errors
    /// [`ClientError::Connect`], or the refusal of `auth`.
    pub async fn connect_to(&self, server: &ServerAddress) -> Result<Connection, ClientError> {
        Connection::open(server, &self.settings).await
    }

    /// Names a lock.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for a key that no server accepts.
    pub fn lock(&self, key: impl Into<Vec<u8>>) -> Result<Claim, ClientError> {
        self.claim(key, Kind::Lock)
    }

    /// Names a lock that readers share: [`Client::lock`] of the same key waits for all of them, and they wait for it.
    /// Readers and writers wait in one queue.
    ///
    /// Not every server has this: [`ClientError::NotShared`].
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for a key that no server accepts.
    pub fn shared(&self, key: impl Into<Vec<u8>>) -> Result<Claim, ClientError> {
        self.claim(key, Kind::Shared)
    }

    /// Names a semaphore of `limit` slots.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for a key or limit that no server accepts.
    pub fn semaphore(&self, key: impl Into<Vec<u8>>, limit: u32) -> Result<Claim, ClientError> {
        if limit == 0 {
            return Err(ArgumentError::Limit.into());
        }
        self.claim(key, Kind::Semaphore(limit))
    }

    /// Watches a key. Nothing is sent before [`Watch::next`].
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for a key that no server accepts.
    pub fn watch(&self, key: impl Into<Vec<u8>>) -> Result<Watch, ClientError> {
        Ok(Watch::begin(Key::new(key)?, &self.settings))
    }

    fn claim(&self, key: impl Into<Vec<u8>>, kind: Kind) -> Result<Claim, ClientError> {
        let key = Key::new(key)?;
        let route = Arc::new(Route::to(&key, Arc::clone(&self.settings)));
        let sessions = Arc::clone(&self.sessions);
        Ok(Claim { sessions, route, wanted: Wanted { key, kind, ttl: None } })
    }
}

/// A request for a lock or a slot. Nothing is sent before one of the async calls.
///
/// The protocol has whole seconds. Timeouts and lengths of leases are rounded up to them, and may be at most
/// [`MAX_TIME`]. Longer ones give [`ArgumentError::TimeLong`] before anything is sent.
///
/// ```no_run
/// use std::time::Duration;
///
/// # async fn example(client: dflock::Client) -> Result<(), dflock::ClientError> {
/// let claim = client.lock("nightly-report")?.ttl(Duration::from_secs(30))?;
/// match claim.acquire(Duration::from_secs(10)).await? {
///     Some(lease) => lease.release().await?,
///     None => println!("it was in use for ten seconds"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Claim {
    pub(super) sessions: Arc<Sessions>,
    pub(super) route: Arc<Route>,
    pub(super) wanted: Wanted,
}

impl Claim {
    /// What is claimed.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.wanted.key
    }

    /// Asks for leases of this length instead of the server's default.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for a length of zero, and for more than [`MAX_TIME`].
    pub fn ttl(mut self, ttl: Duration) -> Result<Self, ClientError> {
        self.wanted.ttl = seconds_of_lease(Some(ttl))?.map(seconds);
        Ok(self)
    }

    /// Takes it if it is free and no client is waiting.
    ///
    /// Dropping the future gives up, as for [`Self::acquire`].
    ///
    /// # Errors
    /// A refusal, or a server that cannot be reached.
    pub async fn try_acquire(&self) -> Result<Option<Lease>, ClientError> {
        self.acquire(Duration::ZERO).await
    }

    /// Waits in the queue for at most `timeout`; `None` if the time is over first.
    ///
    /// Dropping the future leaves the queue, at the latest a second after the request was sent, and releases a grant
    /// that is on its way: in the background, as long as the runtime runs. One case remains: if the connection breaks
    /// before the grant arrives, the grant stays until the server ends it. It does so at once, or, with
    /// `--disconnect-grace` or without auto-release, after the grace or the lease.
    ///
    /// # Errors
    /// A time that does not fit, a refusal, or a server that cannot be reached.
    pub async fn acquire(&self, timeout: Duration) -> Result<Option<Lease>, ClientError> {
        self.obtain(timeout, None::<&mut fn(&ClientError)>).await
    }

    /// Waits in the queue like [`Self::acquire`], and joins it again, at its end, if the server goes away meanwhile:
    /// after a restart or a broken connection. `report` is called each time with the reason.
    ///
    /// `None` if the time is over first. Without a time it waits for ever. Dropping the future gives up, as for
    /// [`Self::acquire`].
    ///
    /// # Errors
    /// A time that does not fit; a refusal; a server that is away for [`Settings::connect_limit`] at first, or until
    /// the time is over.
    pub async fn acquire_persistently(
        &self,
        timeout: Option<Duration>,
        mut report: impl FnMut(&ClientError),
    ) -> Result<Option<Lease>, ClientError> {
        self.obtain(timeout.unwrap_or(MAX_TIME), Some(&mut report)).await
    }

    /// Waits in the queue for at most `timeout`. If the server goes away meanwhile, reports it, and joins the queue
    /// again; or fails without a `report`.
    pub(super) async fn obtain(
        &self,
        timeout: Duration,
        mut report: Option<&mut impl FnMut(&ClientError)>,
    ) -> Result<Option<Lease>, ClientError> {
        let end = Instant::now() + seconds(seconds_to_wait(timeout)?);
        let mut patience = self.route.patience();
        loop {
            let mut asked_at = None;
            let open = async {
                let connection = self.route.open().await?;
                let now = *asked_at.insert(Instant::now());
                Ok((connection, end.saturating_duration_since(now)))
            };
            let (wanted, may_wait) = (vec![self.wanted.clone()], !timeout.is_zero());
            let error = match self.sessions.take(&self.route, wanted, may_wait, open).await {
                Ok(leases) => return Ok(one_of(leases)),
                Err(error) => error,
            };
            match (&mut report, asked_at) {
                (None, Some(_)) if !error.is_for_another_server() => return Err(error),
                (Some(report), Some(at))
                    if patience.was_in_queue(&error, at, end, Instant::now()) =>
                {
                    report(&error);
                }
                (_, _) => {}
            }
            self.route.prefer_next();
            patience.outlast(error).await?;
        }
    }

    /// First phase: joins the queue without waiting, so that the caller can act before the wait.
    ///
    /// Dropping the future gives up, as for [`Self::acquire`].
    ///
    /// # Errors
    /// A refusal, or a server that cannot be reached.
    pub async fn enqueue(&self) -> Result<Entry, ClientError> {
        let connection = self.route.open_patiently().await?;
        let (taken, turn) = self.sessions.enqueue(&self.route, self.wanted.clone(), connection);
        let lease = one_of(answer(taken).await?);
        Ok(lease.map_or(Entry::Queued(Ticket(turn)), Entry::Acquired))
    }

    /// Releases by token; any connection may have taken it.
    ///
    /// A future that is dropped may have released it or not; ask again to be sure.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the token holds nothing.
    pub async fn release(&self, token: &Token) -> Result<(), ClientError> {
        let limit = self.route.settings.answer_limit;
        self.route.release(&self.proof(token), false, self.route.patience(), limit).await
    }

    /// Renews the lease by its token. Returns its length from now.
    ///
    /// A future that is dropped may have renewed or not; nothing else has changed.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the token holds nothing.
    pub async fn renew(&self, token: &Token) -> Result<Duration, ClientError> {
        self.route.renew(&self.proof(token), self.wanted.ttl).await
    }

    /// The same with connections of its own.
    pub(super) fn apart(&self, sessions: &Arc<Sessions>) -> Self {
        Self { sessions: Arc::clone(sessions), ..self.clone() }
    }

    pub(super) fn proof(&self, token: &Token) -> Proof {
        let Wanted { key, kind, .. } = self.wanted.clone();
        Proof { key, kind, token: token.clone() }
    }
}

/// The result of joining the queue.
#[must_use = "dropping it gives the place or the lease up"]
#[expect(clippy::exhaustive_enums, reason = "granted at once or in the queue")]
pub enum Entry {
    /// It was granted at once.
    Acquired(Lease),
    /// A place in the queue.
    Queued(Ticket),
}

/// A place in the queue. Its turn may come before [`Self::wait`] is called; the lease runs from that moment, so call
/// it within the lease.
#[must_use = "dropping a ticket leaves the queue"]
pub struct Ticket(oneshot::Sender<Turn>);

impl Ticket {
    /// Second phase: waits for the turn, at most `timeout`; `None` if the time is over first, and then the place is
    /// lost.
    ///
    /// Dropping the future leaves the queue, as for [`Claim::acquire`].
    ///
    /// # Errors
    /// A time that does not fit; a refusal, including a lease that was granted and ended before this call; or a
    /// connection that broke.
    pub async fn wait(self, timeout: Duration) -> Result<Option<Lease>, ClientError> {
        seconds_to_wait(timeout)?;
        let (outcome, taken) = oneshot::channel();
        // If the session has ended, there is no answer.
        let _ = self.0.send(Turn { timeout, outcome });
        answer(taken).await.map(one_of)
    }
}
