//! Finds a server for a key among those that may be asked.

use super::connection::Connection;
use super::dialogue::Grace;
use super::error::ClientError;
use super::settings::Settings;
use super::terms::{Key, Proof, ServerAddress};
use super::timing::{Patience, TRIES_IN_TIME};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// How long to wait for one server before the next is tried as well (RFC 8305 says 250 ms).
const HEAD_START: Duration = Duration::from_millis(250);

/// Servers that know the same key. Remembers which one answered last.
pub(super) struct Route {
    pub(super) settings: Arc<Settings>,
    /// At least one.
    servers: Vec<ServerAddress>,
    at: AtomicUsize,
}

impl Route {
    pub(super) fn to(key: &Key, settings: Arc<Settings>) -> Self {
        let servers = settings.servers.of(key.as_bytes()).into_iter().cloned().collect();
        Self { settings, servers, at: AtomicUsize::new(0) }
    }

    /// How many servers there are.
    pub(super) fn width(&self) -> u32 {
        u32::try_from(self.servers.len()).unwrap_or(u32::MAX).max(1)
    }

    /// All servers with their numbers, with the one to ask first in front.
    fn in_order(&self) -> Vec<(usize, ServerAddress)> {
        let first = self.at.load(Ordering::Relaxed);
        let numbered = self.servers.iter().cloned().enumerate();
        numbered.cycle().skip(first).take(self.servers.len()).collect()
    }

    /// The server to ask first.
    pub(super) fn first(&self) -> Option<ServerAddress> {
        self.servers.get(self.at.load(Ordering::Relaxed)).cloned()
    }

    /// The next server is asked first from now on, because this one has failed or is late.
    pub(super) fn prefer_next(&self) {
        let next = self.at.load(Ordering::Relaxed).saturating_add(1);
        self.at.store(next.checked_rem(self.servers.len()).unwrap_or(0), Ordering::Relaxed);
    }

    /// A connection to a server that may be away for a moment.
    pub(super) async fn open_patiently(&self) -> Result<Connection, ClientError> {
        self.ask(self.patience(), |connection| async { Ok(connection) }).await
    }

    /// A connection on which the server has answered. Otherwise a server that is about to end, or does not speak the
    /// protocol, would look like one with a long queue. The servers are tried one after another, without waiting for
    /// slow ones; no request is sent that would matter if it arrived late.
    pub(super) async fn open(&self) -> Result<Connection, ClientError> {
        let mut waiting = self.in_order().into_iter();
        let mut attempts = JoinSet::new();
        let mut failure = ClientError::NoServer;
        loop {
            if let Some((at, server)) = waiting.next() {
                let settings = Arc::clone(&self.settings);
                attempts.spawn(async move { (at, answering(&server, &settings).await) });
            }
            let head_start = if waiting.len() == 0 { Duration::MAX } else { HEAD_START };
            let error = match timeout(head_start, attempts.join_next()).await {
                Ok(Some(Ok((at, Ok(connection))))) => {
                    self.at.store(at, Ordering::Relaxed);
                    return Ok(connection);
                }
                Ok(Some(Ok((_, Err(error))))) => error,
                Ok(Some(Err(_))) => ClientError::closed(),
                Ok(None) => return Err(failure),
                // The next server is tried as well.
                Err(_) => continue,
            };
            failure = failure.or(error);
        }
    }

    /// How long a server that answers keeps holds after their connection has closed.
    pub(super) async fn grace(&self) -> Result<Option<Grace>, ClientError> {
        let end = Instant::now() + self.settings.answer_limit;
        let grace = |mut connection: Connection| async move { connection.grace().await };
        self.ask(Patience::until(end), grace).await
    }

    /// Renews a lease by its token, at any server that answers.
    pub(super) async fn renew(
        &self,
        proof: &Proof,
        ttl: Option<Duration>,
    ) -> Result<Duration, ClientError> {
        let Proof { key, kind, token } = proof;
        let renew = |mut connection: Connection| async move {
            connection.renew(key, *kind, token, ttl).await
        };
        self.ask(self.patience(), renew).await
    }

    /// Releases by token, at any server that answers, and waits no longer than `limit` for each answer. If an earlier
    /// connection may have carried the request, "holds nothing" counts as released.
    pub(super) async fn release(
        &self,
        proof: &Proof,
        mut may_be_done: bool,
        patience: Patience,
        limit: Duration,
    ) -> Result<(), ClientError> {
        let Proof { key, kind, token } = proof;
        let release = |mut connection: Connection| {
            connection.answer_limit = limit;
            let may_be_done = std::mem::replace(&mut may_be_done, true);
            async move {
                match connection.release(key, *kind, token).await {
                    Err(error) if may_be_done && error.is_not_held() => Ok(()),
                    outcome => outcome,
                }
            }
        };
        self.ask(patience, release).await
    }

    /// Asks any server that answers. After a failure that may pass, the next server is asked first.
    async fn ask<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        mut patience: Patience,
        mut ask: impl FnMut(Connection) -> F,
    ) -> Result<T, ClientError> {
        loop {
            let outcome = match self.open().await {
                Ok(connection) => ask(connection).await,
                Err(error) => Err(error),
            };
            let Err(error) = outcome else { return outcome };
            self.prefer_next();
            patience.outlast(error).await?;
        }
    }

    pub(super) fn patience(&self) -> Patience {
        Patience::within(self.settings.connect_limit)
    }

    /// How long one connection may take to answer a release. One that loses the request leaves time for others.
    pub(super) fn release_share(&self) -> Duration {
        self.settings.answer_limit / TRIES_IN_TIME
    }

    /// Releases a hold of a connection that has failed or is left, for at most the answer limit.
    pub(super) async fn release_anew(&self, proof: &Proof) -> Result<(), ClientError> {
        let end = Instant::now() + self.settings.answer_limit;
        let released = self.release(proof, true, Patience::until(end), self.release_share());
        timeout_at(end, released).await.unwrap_or(Err(ClientError::TimedOut))
    }
}

async fn answering(server: &ServerAddress, settings: &Settings) -> Result<Connection, ClientError> {
    let mut connection = Connection::open(server, settings).await?;
    connection.hello().await?;
    Ok(connection)
}
