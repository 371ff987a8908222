//! The client for programs without a runtime: each call blocks its thread.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # fn example() -> Result<(), dflock::ClientError> {
//! let client = dflock::blocking::Client::new(dflock::Settings::default())?; // 127.0.0.1:6388
//! let claim = client.lock("nightly-report")?.ttl(Duration::from_secs(30))?;
//! if let Some(lease) = claim.acquire(Duration::from_secs(10))? {
//!     // ... work; the lease is renewed in the background
//!     assert_eq!(lease.loss(), None); // ask before what must not be done twice
//!     lease.release()?; // dropping it does the same, but reports no failure
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The work is that of the asynchronous client, in a hidden runtime. Its one thread begins with the first call, renews
//! all leases of the process, and stays until the process ends. The calls may be made by any thread, also by one that
//! is inside another runtime.
//!
//! The two phases (`enqueue`, `wait`) and leases that nothing renews exist only in the asynchronous client.
//!
//! One thread of the runtime serves sockets, timers and the tasks that keep leases. The calling thread polls its own
//! future, so that callbacks run on the thread of their caller, and so that a call inside another runtime works, too.

use std::future::pending;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{fmt, io};

use tokio::runtime::{Builder, Handle};
use tokio::task::unconstrained;
use tokio::time::timeout;

use crate::Holder;
use crate::claims::{KeyEvent, first_loss, held_until};
use crate::connection::Stats;
use crate::dialogue::Grant;
use crate::error::ClientError;
use crate::lease::{self, Loss};
use crate::settings::Settings;
use crate::terms::{Key, Kind, ServerAddress, Token};

/// A client of one server, or of several; see [`crate::Client`]. Cheap to clone, and can be shared by threads.
///
/// ```no_run
/// # fn main() -> Result<(), dflock::ClientError> {
/// use dflock::{Settings, blocking::Client};
/// use std::time::Duration;
///
/// let client = Client::new(Settings::default())?;
/// match client.lock("nightly-report")?.acquire(Duration::from_secs(10))? {
///     // ... work; the lease is renewed meanwhile ...
///     Some(lease) => lease.release()?,
///     None => println!("it was in use for ten seconds"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client(crate::Client);

impl Client {
    /// A client with these settings. Does not connect.
    ///
    /// # Errors
    /// [`ClientError::NoServer`] when the settings name none.
    pub fn new(settings: Settings) -> Result<Self, ClientError> {
        crate::Client::new(settings).map(Self)
    }

    /// A connection to one of the servers.
    ///
    /// # Errors
    /// [`ClientError::Connect`], or the refusal of `auth`.
    pub fn connect_to(&self, server: &ServerAddress) -> Result<Connection, ClientError> {
        wait(self.0.connect_to(server)).map(Connection)
    }

    /// Names a lock.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for a key that no server accepts.
    pub fn lock(&self, key: impl Into<Vec<u8>>) -> Result<Claim, ClientError> {
        self.0.lock(key).map(Claim)
    }

    /// Names a lock that readers share; see [`crate::Client::shared`].
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for a key that no server accepts.
    pub fn shared(&self, key: impl Into<Vec<u8>>) -> Result<Claim, ClientError> {
        self.0.shared(key).map(Claim)
    }

    /// Names a semaphore of `limit` slots.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for a key or limit that no server accepts.
    pub fn semaphore(&self, key: impl Into<Vec<u8>>, limit: u32) -> Result<Claim, ClientError> {
        self.0.semaphore(key, limit).map(Claim)
    }

    /// Watches a key. Nothing is sent before [`Watch::next`].
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for a key that no server accepts.
    pub fn watch(&self, key: impl Into<Vec<u8>>) -> Result<Watch, ClientError> {
        self.0.watch(key).map(Watch)
    }
}

/// A request for a lock or a slot; see [`crate::Claim`]. Nothing is sent before one of the blocking calls, each of
/// which ends only with a grant, an error or its timeout.
#[derive(Clone)]
pub struct Claim(crate::Claim);

impl Claim {
    /// What is claimed.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.0.key()
    }

    /// Asks for leases of this length instead of the server's default.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for a length of zero, and for more than [`MAX_TIME`](crate::MAX_TIME).
    pub fn ttl(self, ttl: Duration) -> Result<Self, ClientError> {
        self.0.ttl(ttl).map(Self)
    }

    /// Takes it if it is free and no client is waiting.
    ///
    /// # Errors
    /// A refusal, or a server that cannot be reached.
    pub fn try_acquire(&self) -> Result<Option<Lease>, ClientError> {
        self.acquire(Duration::ZERO)
    }

    /// Waits in the queue for at most `timeout`; `None` if the time is over first.
    ///
    /// # Errors
    /// A time that does not fit, a refusal, or a server that cannot be reached.
    pub fn acquire(&self, timeout: Duration) -> Result<Option<Lease>, ClientError> {
        Ok(wait(self.0.acquire(timeout))?.map(Lease::of))
    }

    /// Waits in the queue like [`Self::acquire`], and joins it again, at its end, if the server goes away meanwhile; see
    /// [`crate::Claim::acquire_persistently`].
    ///
    /// # Errors
    /// As for that method.
    pub fn acquire_persistently(
        &self,
        timeout: Option<Duration>,
        report: impl FnMut(&ClientError),
    ) -> Result<Option<Lease>, ClientError> {
        Ok(wait(self.0.acquire_persistently(timeout, report))?.map(Lease::of))
    }

    /// Releases by token; any connection may have taken it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the token holds nothing.
    pub fn release(&self, token: &Token) -> Result<(), ClientError> {
        wait(self.0.release(token))
    }

    /// Renews the lease by its token. Returns its length from now.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the token holds nothing.
    pub fn renew(&self, token: &Token) -> Result<Duration, ClientError> {
        wait(self.0.renew(token))
    }
}

/// A request for several keys: all of them, or none. See [`crate::Claims`].
///
/// ```no_run
/// # fn main() -> Result<(), dflock::ClientError> {
/// # let client = dflock::blocking::Client::new(dflock::Settings::default())?;
/// use dflock::blocking::Claims;
///
/// let both = Claims::of([client.lock("stock")?, client.lock("till")?])?;
/// if let Some(leases) = both.try_acquire()? {
///     leases.release()?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Claims(crate::Claims);

impl Claims {
    /// All these claims. Kinds, lengths and clients can differ.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for no claim, and for a key that is named twice.
    pub fn of(claims: impl IntoIterator<Item = Claim>) -> Result<Self, ClientError> {
        crate::Claims::of(claims.into_iter().map(|claim| claim.0)).map(Self)
    }

    /// The keys, in the order in which they are taken.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.keys()
    }

    /// Takes all keys if they are free and no client is waiting.
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    pub fn try_acquire(&self) -> Result<Option<Leases>, ClientError> {
        self.acquire(Duration::ZERO)
    }

    /// Waits in one queue after another for at most `timeout` in all; see [`crate::Claims::acquire`].
    ///
    /// # Errors
    /// As for that method.
    pub fn acquire(&self, timeout: Duration) -> Result<Option<Leases>, ClientError> {
        Ok(wait(self.0.acquire(timeout))?.map(Leases::of))
    }

    /// Waits like [`Self::acquire`], and continues if servers go away meanwhile; see
    /// [`crate::Claims::acquire_persistently`].
    ///
    /// # Errors
    /// As for that method.
    pub fn acquire_persistently(
        &self,
        timeout: Option<Duration>,
        report: impl FnMut(&Key, KeyEvent<'_>),
    ) -> Result<Option<Leases>, ClientError> {
        Ok(wait(self.0.acquire_persistently(timeout, report))?.map(Leases::of))
    }
}

/// A connection to one server; see [`crate::Connection`].
///
/// After an error other than [`ClientError::Refused`] and [`ClientError::InvalidArgument`] it cannot be used any more.
pub struct Connection(crate::Connection);

impl Connection {
    /// Connects, authenticates, and sends the client's name.
    ///
    /// # Errors
    /// [`ClientError::Connect`], or the refusal of `auth`.
    pub fn open(server: &ServerAddress, settings: &Settings) -> Result<Self, ClientError> {
        wait(crate::Connection::open(server, settings)).map(Self)
    }

    /// `l`, `rl` or `sl`: waits at most `timeout` for a grant; `None` if the time is over first.
    ///
    /// # Errors
    /// A time that does not fit, a refusal, or a connection that broke or stayed silent.
    pub fn acquire(
        &mut self,
        key: &Key,
        kind: Kind,
        timeout: Duration,
        ttl: Option<Duration>,
    ) -> Result<Option<Grant>, ClientError> {
        wait(self.0.acquire(key, kind, timeout, ttl))
    }

    /// `r` or `sr`. Works for a token from any connection.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the token does not hold the key (any more).
    pub fn release(&mut self, key: &Key, kind: Kind, token: &Token) -> Result<(), ClientError> {
        wait(self.0.release(key, kind, token))
    }

    /// `n` or `sn`: the lease starts over; returns its length. Without `ttl` that is the server's default, not the
    /// length of the first request.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the token does not hold the key (any more); as for
    /// [`Self::acquire`].
    pub fn renew(
        &mut self,
        key: &Key,
        kind: Kind,
        token: &Token,
        ttl: Option<Duration>,
    ) -> Result<Duration, ClientError> {
        wait(self.0.renew(key, kind, token, ttl))
    }

    /// `ping`: also keeps the server from closing an idle connection.
    ///
    /// # Errors
    /// A refusal, or a connection that broke or stayed silent.
    pub fn ping(&mut self) -> Result<(), ClientError> {
        wait(self.0.ping())
    }

    /// `stats`: one JSON object as text.
    ///
    /// # Errors
    /// A refusal, or a connection that broke or stayed silent.
    pub fn stats(&mut self, of: Stats<'_>) -> Result<String, ClientError> {
        wait(self.0.stats(of))
    }
}

/// Watches a key, over whatever connections; see [`crate::Watch`].
///
/// ```no_run
/// # fn main() -> Result<(), dflock::ClientError> {
/// # let client = dflock::blocking::Client::new(dflock::Settings::default())?;
/// let mut watch = client.watch("leader")?;
/// loop {
///     match watch.next()? {
///         Some(holder) => println!("the leader is at {:?}", holder.value),
///         None => println!("there is no leader"),
///     }
/// }
/// # }
/// ```
pub struct Watch(crate::Watch);

impl Watch {
    /// See [`crate::Watch::next`], which waits where this blocks the thread.
    ///
    /// # Errors
    /// As for that method.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end with an error")]
    pub fn next(&mut self) -> Result<Option<Holder>, ClientError> {
        wait(self.0.next())
    }
}

/// How long [`Lease`] waits for the answer to its release when it is dropped.
const DROP_LIMIT: Duration = Duration::from_secs(1);

/// A lock or a semaphore slot that is held, and renewed in the background until it is released. What can be asked of it
/// without waiting is asked of the [`crate::Lease`] inside.
///
/// Dropping it releases it, and waits for the answer for a moment; [`Self::release`] reports whether the server
/// agreed. Other threads can use it by reference.
///
/// ```no_run
/// # fn main() -> Result<(), dflock::ClientError> {
/// # let client = dflock::blocking::Client::new(dflock::Settings::default())?;
/// use std::time::Duration;
///
/// if let Some(lease) = client.lock("nightly-report")?.try_acquire()? {
///     for _part in 0..10 {
///         // ... a part of the work ...
///         if let Some(loss) = lease.lost_within(Duration::ZERO) {
///             println!("stopped: {loss}");
///             return Ok(());
///         }
///     }
///     lease.release()?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    held: lease::Lease,
}

impl Lease {
    fn of(held: lease::Lease) -> Self {
        Self { held }
    }

    /// Waits at most `time` for the loss of the lease; `None` if it is not lost by then.
    #[must_use]
    pub fn lost_within(&self, time: Duration) -> Option<Loss> {
        wait(async { Ok(timeout(time, self.held.lost()).await.ok()) }).ok()?
    }

    /// Releases the hold, and closes the connection; if that has broken, releases over another one, for about
    /// [`Settings::answer_limit`](crate::Settings::answer_limit).
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the lease was already over, or a server that cannot be reached; it releases the
    /// key at the end of the lease at the latest.
    pub fn release(self) -> Result<(), ClientError> {
        wait(self.held.release_for_all())
    }
}

impl Deref for Lease {
    type Target = lease::Lease;

    fn deref(&self) -> &lease::Lease {
        &self.held
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The program may end now. If the answer takes longer, the release continues in the background. A lease that
        // has been released is known to be, at once.
        let _ = wait(async { Ok(timeout(DROP_LIMIT, self.held.release_for_all()).await) });
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}

/// Leases of several keys, each renewed in the background; see [`Lease`].
///
/// Dropping them releases them.
#[must_use = "leases that are dropped are released"]
#[derive(Debug)]
pub struct Leases {
    leases: Vec<Lease>,
}

impl Leases {
    fn of(leases: crate::Leases) -> Self {
        Self { leases: leases.into_vec().into_iter().map(Lease::of).collect() }
    }

    /// Each of them, in the order of the keys.
    pub fn as_slice(&self) -> &[Lease] {
        &self.leases
    }

    /// Each by itself, in the order of the keys.
    #[must_use]
    pub fn into_vec(self) -> Vec<Lease> {
        self.leases
    }

    /// Until when all leases are trusted if no further renewal succeeds; `None` after one is lost.
    #[must_use]
    pub fn held_until(&self) -> Option<Instant> {
        held_until(self.leases.iter().map(|lease| &lease.held))
    }

    /// The first key in their order with a lost lease, and why it is lost.
    #[must_use]
    pub fn loss(&self) -> Option<(&Key, Loss)> {
        first_loss(self.leases.iter().map(|lease| &lease.held))
    }

    /// Releases one after another; see [`Lease::release`].
    ///
    /// # Errors
    /// The first failure in the order of the keys. The other leases are released even so.
    pub fn release(self) -> Result<(), ClientError> {
        let mut outcome = Ok(());
        for lease in self.leases {
            outcome = outcome.and(lease.release());
        }
        outcome
    }
}

/// The runtime of the process with this number. A child process that was forked has no thread for it, and gets one of
/// its own.
static RUNTIME: Mutex<Option<(u32, Handle)>> = Mutex::new(None);

fn runtime() -> io::Result<Handle> {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((_, handle)) = runtime.as_ref().filter(|(owner, _)| *owner == process) {
        return Ok(handle.clone());
    }
    let new = Builder::new_current_thread().enable_all().build()?;
    let handle = new.handle().clone();
    let serve = move || new.block_on(pending::<()>());
    thread::Builder::new().name("dflock".to_owned()).spawn(serve)?;
    *runtime = Some((process, handle.clone()));
    Ok(handle)
}

/// Wakes a thread that is parked.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the thread until the future is ready.
fn wait<T>(future: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    let runtime = runtime()?;
    let _inside = runtime.enter();
    // Inside a task of another runtime, its budget would never be refilled.
    let mut future = pin!(unconstrained(future));
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}
